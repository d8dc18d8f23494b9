//! Proxies, as the environment names them.

use std::ffi::OsString;

use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use url::Url;

/// What the variables for proxies say, each read in either case.
#[derive(Clone, Default)]
pub struct Variables {
    /// For `http` and `ws`.
    pub http: Option<Url>,
    /// For `https` and `wss`.
    pub https: Option<Url>,
    /// For what has no other.
    pub all: Option<Url>,
    /// Who is reached without one, as a list with commas.
    pub except: Option<String>,
}

impl Variables {
    /// Reads them. A value that is no URL is ignored, with a warning.
    pub fn read(variable: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let proxy = |name| {
            let value = value(name, variable)?;
            let url = url(&value);
            if url.is_none() {
                tracing::warn!(variable = name, "a proxy that is not a URL is ignored");
            }
            url
        };
        Self {
            http: proxy("HTTP_PROXY"),
            https: proxy("HTTPS_PROXY"),
            all: proxy("ALL_PROXY"),
            except: value("NO_PROXY", variable),
        }
    }

    /// The proxies themselves.
    pub fn urls(&self) -> impl Iterator<Item = &Url> {
        [&self.http, &self.https, &self.all].into_iter().flatten()
    }

    /// Finds the proxy of a destination.
    pub(crate) fn matcher(&self) -> Matcher {
        let text = |url: &Option<Url>| url.as_ref().map(Url::to_string).unwrap_or_default();
        Matcher::builder()
            .http(text(&self.http))
            .https(text(&self.https))
            .all(text(&self.all))
            .no(self.except.clone().unwrap_or_default())
            .build()
    }
}

/// One proxy for everything, as [`Variables::matcher`] would find it.
pub(super) fn only(proxy: &Url) -> Matcher {
    Matcher::builder().all(proxy.to_string()).build()
}

/// Whether the proxy itself is reached by TLS.
pub(super) fn is_encrypted(proxy: &Intercept) -> bool {
    proxy.uri().scheme_str() == Some("https")
}

/// Host and port of a proxy.
pub(crate) fn address(proxy: &Intercept) -> Option<(String, u16)> {
    let uri = proxy.uri();
    let default = match uri.scheme_str() {
        Some("https") => 443,
        Some(scheme) if scheme.starts_with("socks") => 1080,
        _ => 80,
    };
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']').to_owned();
    Some((host, uri.port_u16().unwrap_or(default)))
}

/// The value of a variable in either case.
fn value(name: &str, variable: &dyn Fn(&str) -> Option<OsString>) -> Option<String> {
    [name.to_uppercase(), name.to_lowercase()]
        .iter()
        .filter_map(|name| variable(name)?.into_string().ok())
        .find(|value| !value.is_empty())
}

/// `HOST:PORT` means a proxy over HTTP.
fn url(value: &str) -> Option<Url> {
    let value = value.trim();
    let url = if value.contains("://") { Url::parse(value) } else { Url::parse(&format!("http://{value}")) };
    url.ok().filter(Url::has_host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;
    use test_case::test_case;

    #[test_case("http://u:p@proxy:3128", Some("http://u:p@proxy:3128/"); "a URL")]
    #[test_case("proxy:3128", Some("http://proxy:3128/"); "host and port")]
    #[test_case("127.0.0.1", Some("http://127.0.0.1/"); "an address")]
    #[test_case("http://", None; "no host")]
    #[test_case("not a url", None; "spaces")]
    fn values(value: &str, expected: Option<&str>) {
        assert_eq!(url(value).as_ref().map(Url::as_str), expected);
    }

    fn environment(name: &str) -> Option<OsString> {
        match name {
            "HTTP_PROXY" => Some(OsString::new()),
            "http_proxy" => Some("proxy:1".into()),
            "all_proxy" => Some("socks5://u:p@socks".into()),
            "HTTPS_PROXY" => Some("%%%".into()),
            "no_proxy" => Some("near.example,10.0.0.0/8".into()),
            _ => None,
        }
    }

    #[test]
    fn empty_and_bad_values_are_no_proxy() {
        let variables = Variables::read(&environment);
        let urls: Vec<&str> = variables.urls().map(Url::as_str).collect();
        assert_eq!(urls, ["http://proxy:1/", "socks5://u:p@socks"]);
    }

    #[test_case("http://far.example/", Some(("proxy", 1)))]
    #[test_case("https://far.example/", Some(("socks", 1080)); "all")]
    #[test_case("http://near.example/", None)]
    #[test_case("https://deep.near.example/", None; "below")]
    #[test_case("https://10.1.2.3/", None; "range")]
    fn a_destination_has_its_proxy(destination: &str, expected: Option<(&str, u16)>) {
        let matcher = Variables::read(&environment).matcher();
        let found = matcher.intercept(&destination.parse().unwrap());
        let expected = expected.map(|(host, port)| (host.to_owned(), port));
        assert_eq!(found.as_ref().and_then(address), expected);
    }
}
