//! The proxies that this server itself is told to use, for onward connections.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue, PROXY_AUTHORIZATION};
use hyper::http::uri::Scheme;
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

use super::dial;
use super::gate::Route;
use super::relay::End;
use super::resolve::{Resolve, addresses};
use crate::outbound::proxy::{Variables, address};
use crate::policy::egress::Authority;
use crate::policy::hosts::{Host, is_public};

/// How long an upstream proxy may take to open a tunnel.
const LIMIT: Duration = Duration::from_secs(30);
/// Where a proxy is if its URL names no port.
const DEFAULT_PORT: u16 = 80;

/// Variables of an environment, by name.
pub type Variable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// What the operator of this server says about upstream proxies.
#[derive(Default)]
pub struct UpstreamSettings<'a> {
    /// Through which proxy every TCP connection by SOCKS goes.
    pub tcp: Option<Authority>,
    /// Destinations in private networks go upstream too.
    pub private_ips: bool,
    /// This server's environment. `None`: it names no proxies.
    pub variable: Option<Variable<'a>>,
}

impl fmt::Debug for UpstreamSettings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tcp, private_ips, variable: _ } = self;
        f.debug_struct("UpstreamSettings").field("tcp", tcp).field("private_ips", private_ips).finish()
    }
}

/// The upstream proxies of a server.
#[derive(Debug)]
pub(super) struct Upstream {
    matcher: Matcher,
    tcp: Option<Authority>,
    private_ips: bool,
}

/// An upstream proxy. Its credentials are not for logs.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Via {
    authority: Authority,
    credentials: Option<HeaderValue>,
}

impl fmt::Debug for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Via({})", self.authority)
    }
}

impl Upstream {
    pub(super) fn has_tcp(&self) -> bool {
        self.tcp.is_some()
    }

    pub(super) fn new(settings: UpstreamSettings<'_>) -> Self {
        let UpstreamSettings { tcp, private_ips, variable } = settings;
        let variables = variable.map(Variables::read).unwrap_or_default();
        Self { matcher: variables.matcher(), tcp, private_ips }
    }

    /// Through what a request goes, or a tunnel. `None`: nothing is between.
    ///
    /// # Errors
    /// A proxy is named that this server cannot speak to.
    pub(super) fn of(&self, route: &Route, scheme: Scheme) -> io::Result<Option<Via>> {
        if self.is_direct(route) {
            return Ok(None);
        }
        let authority = Authority { host: route.host.to_string(), port: Some(route.port) };
        let target = Uri::builder().scheme(scheme).authority(authority.to_string()).path_and_query("/");
        let target = target.build().map_err(io::Error::other)?;
        self.matcher.intercept(&target).as_ref().map(via).transpose()
    }

    /// Through what a connection by SOCKS goes.
    pub(super) fn of_tcp(&self, route: &Route) -> Option<Via> {
        let authority = self.tcp.clone().filter(|_| !self.is_direct(route))?;
        Some(Via { authority, credentials: None })
    }

    /// An upstream proxy has another loopback, and may have another private network.
    fn is_direct(&self, route: &Route) -> bool {
        route.addresses.iter().any(|address| {
            let ip = address.ip().to_canonical();
            ip.is_loopback() || ip.is_unspecified() || (!self.private_ips && !is_public(ip))
        })
    }
}

fn via(intercept: &Intercept) -> io::Result<Via> {
    let uri = intercept.uri();
    if uri.scheme() != Some(&Scheme::HTTP) {
        let scheme = uri.scheme_str().unwrap_or_default();
        let message =
            format!("the upstream proxy of this server is spoken to by `{scheme}`, and not by `http`");
        return Err(io::Error::new(io::ErrorKind::Unsupported, message));
    }
    let (host, port) = address(intercept).ok_or(io::ErrorKind::InvalidInput)?;
    let authority = Authority { host, port: Some(port) };
    Ok(Via { authority, credentials: intercept.basic_auth().cloned() })
}

impl Via {
    /// What the proxy wants to see in a request, if anything.
    pub(super) fn credentials(&self) -> Option<&HeaderValue> {
        self.credentials.as_ref()
    }

    /// A connection to the proxy.
    pub(super) async fn connect(&self, resolver: &dyn Resolve) -> io::Result<TcpStream> {
        let port = self.authority.port.unwrap_or(DEFAULT_PORT);
        let host: Host = self.authority.host.parse().map_err(io::Error::other)?;
        let found = tokio::time::timeout(dial::LIMIT, addresses(resolver, &host, port)).await??;
        dial::connect(&found).await
    }

    /// A tunnel through the proxy.
    pub(super) async fn tunnel(&self, resolver: &dyn Resolve, route: &Route) -> io::Result<End> {
        let stream = self.connect(resolver).await?;
        tokio::time::timeout(LIMIT, self.open(stream, route)).await?
    }

    async fn open(&self, stream: TcpStream, route: &Route) -> io::Result<End> {
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let _driver = AbortOnDropHandle::new(tokio::spawn(connection.with_upgrades()));
        let answer = sender.send_request(self.question(route)?).await.map_err(io::Error::other)?;
        if answer.status() != StatusCode::OK {
            return Err(io::Error::other(format!("the upstream proxy answers {}", answer.status())));
        }
        let upgraded = hyper::upgrade::on(answer).await.map_err(io::Error::other)?;
        End::of::<TokioIo<TcpStream>>(upgraded, TokioIo::into_inner)
    }

    fn question(&self, route: &Route) -> io::Result<Request<Empty<Bytes>>> {
        let target = Authority { host: route.host.to_string(), port: Some(route.port) }.to_string();
        let mut request = Request::builder().method(Method::CONNECT).uri(&target).header(HOST, &target);
        if let Some(credentials) = &self.credentials {
            request = request.header(PROXY_AUTHORIZATION, credentials);
        }
        request.body(Empty::new()).map_err(io::Error::other)
    }
}
