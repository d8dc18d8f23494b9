//! Headers that are for the next hop only.

use hyper::HeaderMap;
use hyper::header::{CONNECTION, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE};

const FOR_ONE_HOP: [HeaderName; 5] =
    [CONNECTION, TE, TRANSFER_ENCODING, UPGRADE, HeaderName::from_static("keep-alive")];
const PROXY: &str = "proxy-";
/// What a client may not make of a connection: on it, each request could go unseen.
const UNSEEN: &str = "h2c";

/// Takes away what is for the next hop: what `Connection` names, and what always is. The rest keeps its order.
pub(super) fn strip(headers: &mut HeaderMap) {
    let named = connection_options(headers);
    let is_for_others = |name: &HeaderName| {
        !(named.contains(name) || FOR_ONE_HOP.contains(name) || name.as_str().starts_with(PROXY))
    };
    let kept = headers.iter().filter(|(name, _)| is_for_others(name));
    *headers = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
}

fn connection_options(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).filter_map(|option| option.trim().parse().ok()).collect()
}

/// What a message wants to make of the connection, if that can be.
pub(super) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let protocol = headers.get(UPGRADE)?;
    let is_unseen = protocol.to_str().ok()?.to_ascii_lowercase().contains(UNSEEN);
    (connection_options(headers).contains(&UPGRADE) && !is_unseen).then(|| protocol.clone())
}

/// Puts back what [`upgrade`] found and [`strip`] took.
pub(super) fn set_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, protocol);
}

/// Whether a body comes in chunks.
///
/// # Errors
/// It is encoded for this hop in another way too, which nobody here can undo.
pub(super) fn is_chunked(headers: &HeaderMap) -> Result<bool, &'static str> {
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_plain = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    match (encodings.next(), encodings.next()) {
        (None, _) => Ok(false),
        (Some(only), None) if is_plain(only) => Ok(true),
        _ => Err("the only transfer encoding is `chunked`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        lines.iter().map(pair).collect()
    }

    #[test]
    fn what_is_for_one_hop_goes() {
        let mut given = headers(&[
            ("connection", "close, X-Drop ,, bad name"),
            ("connection", "x-too"),
            ("x-drop", "1"),
            ("x-drop", "2"),
            ("x-too", "1"),
            ("proxy-authorization", "Basic eA=="),
            ("proxy-connection", "keep-alive"),
            ("keep-alive", "5"),
            ("te", "trailers"),
            ("upgrade", "websocket"),
            ("transfer-encoding", "chunked"),
            ("x-keep", "yes"),
            ("authorization", "Bearer t"),
            ("trailer", "x-sum"),
        ]);
        strip(&mut given);
        let left: Vec<&str> = given.keys().map(HeaderName::as_str).collect();
        assert_eq!(left, ["x-keep", "authorization", "trailer"]);
    }

    #[test]
    fn upgrades_need_both_headers() {
        let of = |lines: &[_]| upgrade(&headers(lines)).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(
            of(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")]),
            Some("websocket".into())
        );
        assert_eq!(of(&[("upgrade", "websocket")]), None);
        assert_eq!(of(&[("connection", "upgrade")]), None);
        assert_eq!(of(&[("connection", "upgrade, http2-settings"), ("upgrade", "websocket, H2C")]), None);
    }

    #[test]
    fn encodings() {
        assert_eq!(is_chunked(&headers(&[])), Ok(false));
        assert_eq!(is_chunked(&headers(&[("transfer-encoding", "Chunked ")])), Ok(true));
        assert!(is_chunked(&headers(&[("transfer-encoding", "gzip, chunked")])).is_err());
        assert!(
            is_chunked(&headers(&[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")]))
                .is_err()
        );
    }
}
