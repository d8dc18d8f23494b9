//! The `Host` rule of loopback listeners, against pages that make a browser resolve their own name to 127.0.0.1.
//!
//! Such a request carries the page's name in `Host`; only names that cannot belong to a stranger pass.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use axum::http::HeaderMap;
use axum::http::header::HOST;

use crate::config::HostName;

/// Whether a request to a loopback listener may go on, else it is 403. Exactly one `Host` is needed, as HTTP/1.1 demands.
#[must_use]
pub fn is_allowed(headers: &HeaderMap, allowed: &[HostName]) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().is_ok_and(|host| is_allowed_host(host, allowed)),
        _ => false,
    }
}

/// The rule for the text of one `Host` header, with or without a port.
fn is_allowed_host(text: &str, allowed: &[HostName]) -> bool {
    let Some(host) = without_port(text) else { return false };
    match host.strip_prefix('[') {
        Some(inner) => inner
            .strip_suffix(']')
            .and_then(|inner| inner.parse::<Ipv6Addr>().ok())
            .is_some_and(|ip| ip.to_canonical().is_loopback() || is_named(&ip.to_string(), allowed)),
        None => match host.parse::<Ipv4Addr>() {
            Ok(ip) => ip.is_loopback() || is_named(host, allowed),
            Err(_) => is_local_name(host) || is_named(host, allowed),
        },
    }
}

fn without_port(text: &str) -> Option<&str> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (port.is_empty() || port.parse::<u16>().is_ok()).then_some(host)
        }
        _ => Some(text),
    }
}

fn is_local_name(host: &str) -> bool {
    host.strip_suffix('.').unwrap_or(host).eq_ignore_ascii_case("localhost")
}

fn is_named(host: &str, allowed: &[HostName]) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let same_address = |name: &str| name.parse::<IpAddr>().is_ok_and(|ip| host.parse() == Ok(ip));
    allowed.iter().any(|name| name.as_str().eq_ignore_ascii_case(host) || same_address(name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use proptest::prelude::*;
    use test_case::test_case;

    fn names() -> Vec<HostName> {
        ["box.example", "10.0.0.7", "fe80::1"].map(|name| name.parse().unwrap()).into()
    }

    #[test_case("localhost")]
    #[test_case("LocalHost:8765"; "port and case")]
    #[test_case("localhost."; "root dot")]
    #[test_case("127.0.0.1:1"; "v4")]
    #[test_case("127.1.2.3"; "any of 127")]
    #[test_case("[::1]:8765"; "v6")]
    #[test_case("[::1]"; "v6 without port")]
    #[test_case("[0:0::1]"; "v6 spelt out")]
    #[test_case("[::ffff:127.0.0.1]"; "mapped")]
    #[test_case("box.example"; "name")]
    #[test_case("BOX.example.:80"; "name with port")]
    #[test_case("10.0.0.7:80"; "address")]
    #[test_case("[fe80:0::1]:80"; "v6 address")]
    fn passes(host: &str) {
        assert!(is_allowed_host(host, &names()));
    }

    #[test_case("evil.example")]
    #[test_case(""; "empty")]
    #[test_case("localhost.evil.example"; "prefix")]
    #[test_case("evil-localhost"; "suffix")]
    #[test_case("a.box.example"; "below a name")]
    #[test_case("0.0.0.0:8765"; "unspecified")]
    #[test_case("127.1"; "short form")]
    #[test_case("2130706433"; "decimal")]
    #[test_case("127.0.0.1.evil.example"; "address prefix")]
    #[test_case("::1"; "no brackets")]
    #[test_case("[::1"; "half brackets")]
    #[test_case("[127.0.0.1]"; "v4 in brackets")]
    #[test_case("[::1]x"; "after brackets")]
    #[test_case("localhost:99999"; "port too large")]
    #[test_case("localhost:x"; "port that is a word")]
    #[test_case("localhost:80:80"; "two ports")]
    #[test_case("user@localhost"; "user")]
    #[test_case("localhost, evil"; "list")]
    #[test_case("."; "dot")]
    fn is_refused(host: &str) {
        assert!(!is_allowed_host(host, &names()));
    }

    #[test]
    fn exactly_one_host_is_needed() {
        let mut headers = HeaderMap::new();
        assert!(!is_allowed(&headers, &[]));
        headers.append(HOST, HeaderValue::from_static("localhost"));
        assert!(is_allowed(&headers, &[]));
        headers.append(HOST, HeaderValue::from_static("localhost"));
        assert!(!is_allowed(&headers, &[]));
        headers.insert(HOST, HeaderValue::from_bytes(b"loc\xe4lhost").unwrap());
        assert!(!is_allowed(&headers, &[]));
    }

    proptest! {
        #[test]
        fn any_text_is_judged(text in "\\PC*|\\[?[a-z0-9.:\\[\\]]{0,24}") {
            is_allowed_host(&text, &names());
        }
    }
}
