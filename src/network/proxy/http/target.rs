//! Where a request wants to go: its target and its `Host`, which must not say two things.

use hyper::header::HOST;
use hyper::http::uri::{PathAndQuery, Scheme};
use hyper::{HeaderMap, Uri};

use crate::policy::egress::Authority;

/// The port where none is written, for tunnels too.
pub(crate) const DEFAULT_PORT: u16 = 80;

/// The target of a plain request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// As the request writes it, without a user.
    pub(crate) authority: Authority,
    /// As the request writes it; `*` is one.
    pub(crate) path: PathAndQuery,
}

impl Target {
    /// The target of a plain request. A user in it is dropped.
    ///
    /// # Errors
    /// It has none, or two.
    pub(crate) fn of(uri: &Uri, headers: &HeaderMap) -> Result<Self, &'static str> {
        let host = host(headers)?;
        let authority = match (uri.scheme(), uri.authority()) {
            (None, None) => host.ok_or("missing host")?,
            (Some(scheme), Some(named)) if *scheme == Scheme::HTTP => {
                let named = without_user(named.as_str()).ok_or("invalid target")?;
                match host {
                    Some(host) if !host.is_same(&named, DEFAULT_PORT) => {
                        return Err("the Host header does not match the target");
                    }
                    _ => named,
                }
            }
            (Some(scheme), _) if *scheme == Scheme::HTTPS => return Err("use CONNECT for https"),
            _ => return Err("invalid target: expected http:// or a path"),
        };
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        Ok(Self { authority, path })
    }

    /// The port that is meant.
    pub(crate) fn port(&self) -> u16 {
        self.authority.port.unwrap_or(DEFAULT_PORT)
    }
}

/// The target of a tunnel. Its `Host` says nothing.
///
/// # Errors
/// It has none.
pub(crate) fn of_tunnel(uri: &Uri) -> Result<Authority, &'static str> {
    let authority = uri.authority().filter(|_| uri.scheme().is_none());
    authority.and_then(|named| without_user(named.as_str())).ok_or("invalid target: expected HOST:PORT")
}

/// Who counts as the user ends at the last `@`.
fn without_user(text: &str) -> Option<Authority> {
    text.rsplit_once('@').map_or(text, |(_, rest)| rest).parse().ok()
}

fn host(headers: &HeaderMap) -> Result<Option<Authority>, &'static str> {
    let mut given = headers.get_all(HOST).iter();
    let Some(host) = given.next() else { return Ok(None) };
    if given.next().is_some() {
        return Err("more than one Host header");
    }
    let text = host.to_str().map_err(|_| "invalid Host header")?.trim();
    if text.is_empty() { Ok(None) } else { text.parse().map(Some).map_err(|_| "invalid Host header") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;
    use test_case::test_case;

    fn target(uri: &str, hosts: &[&'static str]) -> Result<(String, String), &'static str> {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(HOST, HeaderValue::from_static(host));
        }
        let target = Target::of(&uri.parse().unwrap(), &headers)?;
        Ok((target.authority.to_string(), target.path.to_string()))
    }

    #[test_case("http://a.test/x?y", &[], "a.test", "/x?y"; "absolute without Host")]
    #[test_case("http://a.test", &["A.TEST.:80"], "a.test", "/"; "Host in another form")]
    #[test_case("http://a.test:80/", &["a.test"], "a.test:80", "/"; "default port")]
    #[test_case("/x", &["a.test:8080"], "a.test:8080", "/x"; "origin form")]
    #[test_case("*", &["a.test"], "a.test", "*"; "asterisk form")]
    #[test_case("http://user:pass@a.test/", &["a.test"], "a.test", "/"; "user is dropped")]
    #[test_case("http://127.0.0.1:80@blocked.test/", &["blocked.test"], "blocked.test", "/"; "address as user")]
    #[test_case("http://blocked.test#@localhost:80/", &[], "blocked.test", "/"; "fragment")]
    #[test_case("http://[::1]:81/", &["[::1]:81"], "[::1]:81", "/"; "IPv6")]
    #[test_case("http://a.test/", &[""], "a.test", "/"; "empty Host")]
    fn targets(uri: &str, hosts: &[&'static str], authority: &str, path: &str) {
        assert_eq!(target(uri, hosts), Ok((authority.to_owned(), path.to_owned())));
    }

    #[test_case("/", &[]; "no host")]
    #[test_case("/", &[""]; "empty host")]
    #[test_case("/", &["a", "a"]; "two hosts")]
    #[test_case("/", &["u@a"]; "user in Host")]
    #[test_case("/", &["a, b"]; "list")]
    #[test_case("http://a.test/", &["evil.test"]; "another host")]
    #[test_case("http://a.test/", &["a.test:81"]; "another port")]
    #[test_case("http://a.test:81/", &["a.test"]; "another port in the target")]
    #[test_case("http://127.0.0.1/", &["2130706433"]; "a number is no address")]
    #[test_case("https://a.test/", &["a.test"]; "https")]
    #[test_case("ftp://a.test/", &["a.test"]; "ftp")]
    #[test_case("a.test:80", &["a.test:80"]; "authority form")]
    fn what_is_no_target(uri: &str, hosts: &[&'static str]) {
        assert!(target(uri, hosts).is_err());
    }

    #[test_case("a.test:443", Some("a.test:443"))]
    #[test_case("a.test", Some("a.test"); "no port")]
    #[test_case("u@a.test:443", Some("a.test:443"); "user")]
    #[test_case("[::1]:443", Some("[::1]:443"); "IPv6")]
    #[test_case("/", None; "path")]
    #[test_case("http://a.test/", None; "URL")]
    fn tunnels(uri: &str, expected: Option<&str>) {
        let found = of_tunnel(&uri.parse().unwrap());
        assert_eq!(found.ok().map(|authority| authority.to_string()).as_deref(), expected);
    }
}
