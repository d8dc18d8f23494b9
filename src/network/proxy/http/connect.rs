//! Tunnels by CONNECT: connected first, announced then.

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};

use super::exchange::{Exchange, Far};
use super::refusal::{Body, Refusal};
use super::target::{DEFAULT_PORT, of_tunnel};
use crate::network::proxy::visit::Way;
use crate::protocol::network::NetworkProtocol;

const PROTOCOL: NetworkProtocol = NetworkProtocol::HttpsConnect;

impl Exchange {
    pub(super) async fn connect(&self, mut request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
        let authority = of_tunnel(request.uri()).map_err(Refusal::Invalid)?;
        let port = authority.port.unwrap_or(DEFAULT_PORT);
        let attempt = self.visit.attempt(PROTOCOL, (&authority.host, port), Some(request.method().as_str()));
        let way = self.visit.way(&attempt).await;
        let far = match way.map_err(|block| Refusal::Blocked { block, protocol: PROTOCOL, port })? {
            Way::Inside(stream) => stream.into(),
            Way::Onward(route) => self.visit.onward.tunnel(&route).await?,
        };
        self.set_tunnel(hyper::upgrade::on(&mut request), Far::End(far));
        Ok(Response::new(Either::Left(Full::<Bytes>::default())))
    }
}
