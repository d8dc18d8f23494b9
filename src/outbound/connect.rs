//! From a destination to a byte stream: directly or through a proxy, in clear or in TLS.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use futures_util::future::Either;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderName, HeaderValue, PROXY_AUTHORIZATION};
use hyper::{Request, StatusCode, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::SocksV5;
use hyper_util::client::proxy::matcher::Intercept;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower_service::Service;

use super::network_policy::PolicyRefusal;
use super::proxy;

/// Where a WebSocket goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Name or address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Whether it is `wss`.
    pub tls: bool,
}

impl Endpoint {
    /// `ws` or `wss`.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.tls { "wss" } else { "ws" }
    }

    /// Whether it is on this machine.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let name = self.host.strip_suffix('.').unwrap_or(&self.host);
        name.eq_ignore_ascii_case("localhost")
            || self.host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
    }

    /// `HOST:PORT`, with brackets where it needs them.
    fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// The URL by which proxies are looked up: `ws` as `http`, `wss` as `https`.
    pub(super) fn looked_up_as(&self) -> String {
        format!("{}://{}/", if self.tls { "https" } else { "http" }, self.authority())
    }
}

/// A connection: both directions, whatever is below.
pub type Stream = Box<dyn Duplex>;

/// What a [`Stream`] is.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The network policy does not allow it.
    #[error(transparent)]
    Policy(#[from] PolicyRefusal),
    /// The destination cannot be reached.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The proxy cannot be reached, or does not go on.
    #[error("the proxy {proxy} {reason}")]
    Proxy {
        /// Its host and port.
        proxy: String,
        /// What it did.
        reason: String,
        /// The HTTP status of its answer.
        status: Option<u16>,
    },
    /// No TLS with the destination.
    #[error("no TLS connection: {0}")]
    Tls(String),
}

/// TLS, where the way has any.
pub(super) type Tls = Option<Arc<ClientConfig>>;

/// Opens a connection.
pub(super) async fn open(
    endpoint: &Endpoint,
    proxy: Option<&Intercept>,
    tls: Tls,
) -> Result<Stream, ConnectError> {
    let stream: Stream = match proxy {
        Some(proxy) => through(proxy, endpoint, tls.clone()).await?,
        None => Box::new(dial(&endpoint.host, endpoint.port).await?),
    };
    if endpoint.tls { encrypt(stream, &endpoint.host, tls).await } else { Ok(stream) }
}

async fn dial(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn encrypt(stream: Stream, host: &str, tls: Tls) -> Result<Stream, ConnectError> {
    let failed = |error: &dyn std::fmt::Display| ConnectError::Tls(error.to_string());
    let config = tls.ok_or_else(|| failed(&"it was not set up"))?;
    let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(&error))?;
    let stream = TlsConnector::from(config).connect(name, stream).await.map_err(|error| failed(&error))?;
    Ok(Box::new(stream))
}

async fn through(proxy: &Intercept, endpoint: &Endpoint, tls: Tls) -> Result<Stream, ConnectError> {
    let Some((host, port)) = proxy::address(proxy) else {
        return Err(ConnectError::Io(io::Error::other("the proxy has no host")));
    };
    let name = format!("{host}:{port}");
    let failed = |reason: String, status| ConnectError::Proxy { proxy: name.clone(), reason, status };
    match proxy.uri().scheme_str() {
        Some("http" | "https") => {
            let stream = dial(&host, port).await;
            let stream = stream.map_err(|error| failed(format!("cannot be reached: {error}"), None))?;
            let mut stream: Stream = Box::new(stream);
            if proxy::is_encrypted(proxy) {
                stream = encrypt(stream, &host, tls).await?;
            }
            tunnel(stream, endpoint, proxy.basic_auth()).await.map_err(|(why, status)| failed(why, status))
        }
        Some(scheme) if scheme.starts_with("socks5") => {
            let stream = socks((&host, port), endpoint, proxy.raw_auth()).await;
            stream.map_err(|why| failed(why, None))
        }
        scheme => {
            Err(failed(format!("is of a kind that is not supported: {}", scheme.unwrap_or("none")), None))
        }
    }
}

/// Asks an HTTP proxy for a tunnel.
async fn tunnel(
    stream: Stream,
    endpoint: &Endpoint,
    authorization: Option<&HeaderValue>,
) -> Result<Stream, (String, Option<u16>)> {
    let broken = |error: hyper::Error| (format!("broke off: {error}"), None);
    let request = connect_request(endpoint, authorization).map_err(|error| (error.to_string(), None))?;
    let mut http = http1::Builder::new();
    let (mut sender, connection) =
        http.title_case_headers(true).handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let exchange = Box::pin(async {
        let response = sender.send_request(request).await.map_err(broken)?;
        match response.status() {
            StatusCode::OK => hyper::upgrade::on(response).await.map_err(broken),
            status => Err((format!("answered {status}"), Some(status.as_u16()))),
        }
    });
    // The connection is driven until the tunnel is there; dropping this future ends both.
    let upgraded = match futures_util::future::select(exchange, connection.with_upgrades()).await {
        Either::Left((outcome, _)) => outcome,
        Either::Right((_, exchange)) => exchange.await,
    }?;
    Ok(Box::new(TokioIo::new(upgraded)))
}

fn connect_request(
    endpoint: &Endpoint,
    authorization: Option<&HeaderValue>,
) -> hyper::http::Result<Request<http_body_util::Empty<Bytes>>> {
    let authority = endpoint.authority();
    let mut request = Request::connect(&authority)
        .header(HOST, &authority)
        .header(HeaderName::from_static("proxy-connection"), "Keep-Alive");
    if let Some(value) = authorization {
        request = request.header(PROXY_AUTHORIZATION, value);
    }
    request.body(http_body_util::Empty::new())
}

/// Asks a SOCKS proxy; it resolves the name.
async fn socks(
    (host, port): (&str, u16),
    endpoint: &Endpoint,
    credentials: Option<(&str, &str)>,
) -> Result<Stream, String> {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let proxy: Uri = format!("socks5://{host}:{port}").parse().map_err(invalid)?;
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    let mut service = SocksV5::new(proxy, connector);
    if let Some((user, password)) = credentials {
        service = service.with_auth(user.to_owned(), password.to_owned());
    }
    let destination: Uri = endpoint.looked_up_as().parse().map_err(invalid)?;
    let stream = service.call(destination).await.map_err(|error| format!("does not connect: {error}"))?;
    Ok(Box::new(stream.into_inner()))
}

fn invalid(error: impl std::fmt::Display) -> String {
    format!("cannot be asked: {error}")
}
