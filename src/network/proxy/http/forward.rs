//! Plain requests, and what is made of a connection by `Upgrade`.

use std::io;

use http_body_util::Either;
use hyper::body::Incoming;
use hyper::header::{HOST, HeaderValue, PROXY_AUTHORIZATION, TRANSFER_ENCODING};
use hyper::http::uri::Scheme;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode, Uri, Version};

use super::exchange::{Exchange, Far};
use super::headers::{is_chunked, set_upgrade, strip, upgrade};
use super::line::Line;
use super::refusal::{Body, Refusal};
use super::target::Target;
use crate::network::proxy::gate::Route;
use crate::network::proxy::upstream::Via;
use crate::network::proxy::visit::Way;
use crate::protocol::network::NetworkProtocol;

const PROTOCOL: NetworkProtocol = NetworkProtocol::Http;
/// Names a socket in the file system.
const UNIX_SOCKET: &str = "x-unix-socket";

/// How a request leaves.
struct Exit {
    line: Line,
    via: Option<Via>,
    /// The line has served another request, and may have ended since. This is where it leads.
    used_for: Option<Route>,
}

impl Exchange {
    pub(super) async fn forward(&self, mut request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
        let target = Target::of(request.uri(), request.headers()).map_err(Refusal::Invalid)?;
        let way = self.way(&request, &target).await?;
        let is_chunked = is_chunked(request.headers()).map_err(Refusal::Invalid)?;
        let protocol = self.upgrade_of(&request);
        let near = hyper::upgrade::on(&mut request);
        rewrite(&mut request, &target, is_chunked)?;
        if let Some(protocol) = &protocol {
            set_upgrade(request.headers_mut(), protocol.clone());
        }
        let exit = self.exit(way, protocol.is_some()).await?;
        let (response, line) = self.send(request, exit, &target).await?;
        self.pass_on(response, line, protocol.map(|_| near))
    }

    async fn way(&self, request: &Request<Incoming>, target: &Target) -> Result<Way, Refusal> {
        let port = target.port();
        let attempt =
            self.visit.attempt(PROTOCOL, (&target.authority.host, port), Some(request.method().as_str()));
        if request.headers().contains_key(UNIX_SOCKET) {
            self.visit.gate.refuse(&attempt, "unix_socket_unsupported");
            return Err(Refusal::UnixSocket);
        }
        let way = self.visit.way(&attempt).await;
        way.map_err(|block| Refusal::Blocked { block, protocol: PROTOCOL, port })
    }

    /// What a request wants to make of the connection. Where only reading is allowed it cannot be seen what is done there.
    fn upgrade_of(&self, request: &Request<Incoming>) -> Option<HeaderValue> {
        let may_be = request.version() == Version::HTTP_11 && !self.visit.gate.rules().is_limited();
        upgrade(request.headers()).filter(|_| may_be)
    }

    async fn exit(&self, way: Way, is_upgrade: bool) -> io::Result<Exit> {
        let fresh = |line, via| Exit { line, via, used_for: None };
        let route = match way {
            Way::Inside(stream) => return Ok(fresh(Line::own(stream).await?, None)),
            Way::Onward(route) => route,
        };
        let via = self.visit.onward.via(&route)?;
        if is_upgrade && via.is_some() {
            // Whether that proxy would understand the request is not known.
            let end = self.visit.onward.open(&route, via).await?;
            return Ok(fresh(Line::own(end.into_fresh()?).await?, None));
        }
        if let Some(mut line) = self.take_line()
            && line.is_for(&route, via.as_ref()).await
        {
            return Ok(Exit { line, via, used_for: Some(route) });
        }
        Ok(fresh(self.dial(&route, via.clone()).await?, via))
    }

    async fn dial(&self, route: &Route, via: Option<Via>) -> io::Result<Line> {
        let stream = self.visit.onward.connect(route, via.as_ref()).await?;
        Line::new(stream, via).await
    }

    async fn send(
        &self,
        mut request: Request<Incoming>,
        exit: Exit,
        target: &Target,
    ) -> io::Result<(Response<Incoming>, Line)> {
        let Exit { mut line, via, used_for } = exit;
        if let Some(via) = &via {
            for_upstream(&mut request, target, via)?;
        }
        let is_upstream = via.is_some();
        let response = match (line.send(request).await, used_for) {
            (Ok(response), _) => response,
            // That the line has ended since the last request says nothing about the destination.
            (Err((_, Some(unsent))), Some(route)) => {
                line = self.dial(&route, via).await?;
                line.send(unsent).await.map_err(|(error, _)| error)?
            }
            (Err((error, _)), _) => return Err(error),
        };
        if is_upstream && response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
            // What an upstream proxy wants of this server is no business of the process.
            return Err(io::Error::other("the upstream proxy of this server wants other credentials"));
        }
        Ok((response, line))
    }

    fn pass_on(
        &self,
        mut response: Response<Incoming>,
        line: Line,
        near: Option<OnUpgrade>,
    ) -> Result<Response<Body>, Refusal> {
        let protocol = upgrade(response.headers());
        strip(response.headers_mut());
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            self.keep_line(line);
            return Ok(response.map(Either::Right));
        }
        let (Some(near), Some(protocol)) = (near, protocol) else {
            return Err(io::Error::other("it switches to another protocol though nobody asked for it").into());
        };
        set_upgrade(response.headers_mut(), protocol);
        self.set_tunnel(near, Far::Upgrade(hyper::upgrade::on(&mut response), line));
        Ok(response.map(Either::Right))
    }
}

/// Makes the request one to its destination.
fn rewrite(request: &mut Request<Incoming>, target: &Target, is_chunked: bool) -> io::Result<()> {
    let host = HeaderValue::from_str(&target.authority.to_string()).map_err(io::Error::other)?;
    strip(request.headers_mut());
    request.headers_mut().insert(HOST, host);
    if is_chunked {
        request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    *request.uri_mut() = Uri::from(target.path.clone());
    *request.version_mut() = Version::HTTP_11;
    Ok(())
}

/// Makes it one to a proxy.
fn for_upstream(request: &mut Request<Incoming>, target: &Target, via: &Via) -> io::Result<()> {
    let uri = Uri::builder()
        .scheme(Scheme::HTTP)
        .authority(target.authority.to_string())
        .path_and_query(target.path.clone());
    *request.uri_mut() = uri.build().map_err(io::Error::other)?;
    if let Some(credentials) = via.credentials() {
        request.headers_mut().insert(PROXY_AUTHORIZATION, credentials.clone());
    }
    Ok(())
}
