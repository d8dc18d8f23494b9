//! Proxies, as the environment names them.

use std::collections::HashSet;
use std::ffi::OsString;

use reqwest::{NoProxy, Proxy, Url};

const VARIABLES: [&str; 3] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];

/// The names of the hosts of all proxies of an environment.
pub(super) fn hosts(variable: &dyn Fn(&str) -> Option<OsString>) -> HashSet<String> {
    let values = VARIABLES.iter().filter_map(|name| value(name, variable));
    values.filter_map(|value| Some(url(&value)?.host_str()?.to_owned())).collect()
}

/// The value of a variable in either case.
fn value(name: &str, variable: &dyn Fn(&str) -> Option<OsString>) -> Option<String> {
    [name.to_uppercase(), name.to_lowercase()]
        .iter()
        .filter_map(|name| variable(name)?.into_string().ok())
        .find(|value| !value.is_empty())
}

/// The proxies of an environment, the first that fits counts. A value that is no URL is ignored.
pub(super) fn from_environment(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<Proxy> {
    let except = value("NO_PROXY", variable).and_then(|list| NoProxy::from_string(&list));
    VARIABLES
        .iter()
        .filter_map(|name| {
            let made = proxy(name, &value(name, variable)?);
            if made.is_none() {
                tracing::warn!(variable = name, "a proxy that is not a URL is ignored");
            }
            made
        })
        .map(|proxy| proxy.no_proxy(except.clone()))
        .collect()
}

fn proxy(name: &str, value: &str) -> Option<Proxy> {
    let url = url(value)?;
    match name {
        "HTTP_PROXY" => Proxy::http(url),
        "HTTPS_PROXY" => Proxy::https(url),
        _ => Proxy::all(url),
    }
    .ok()
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
    use test_case::test_case;

    #[test_case("http://u:p@proxy:3128", Some("http://u:p@proxy:3128/"); "a URL")]
    #[test_case("proxy:3128", Some("http://proxy:3128/"); "host and port")]
    #[test_case("127.0.0.1", Some("http://127.0.0.1/"); "an address")]
    #[test_case("http://", None; "no host")]
    #[test_case("not a url", None; "spaces")]
    fn values(value: &str, expected: Option<&str>) {
        assert_eq!(url(value).as_ref().map(Url::as_str), expected);
    }

    #[test]
    fn empty_and_bad_values_are_no_proxy() {
        let environment = |name: &str| match name {
            "HTTP_PROXY" => Some(OsString::new()),
            "http_proxy" => Some("proxy:1".into()),
            "ALL_PROXY" => Some("%%%".into()),
            _ => None,
        };
        assert_eq!(from_environment(&environment).len(), 1);
        assert!(from_environment(&|_| None).is_empty());
    }
}
