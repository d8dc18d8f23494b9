//! From a route to a connection: direct, or through a proxy of this server's operator.

use std::io;
use std::sync::Arc;

use hyper::http::uri::Scheme;
use tokio::net::TcpStream;

use super::dial;
use super::gate::Route;
use super::relay::End;
use super::site::Site;
use super::upstream::Via;

/// How one proxy gets further.
#[derive(Debug)]
pub(super) struct Onward {
    pub(super) site: Arc<Site>,
    /// Whether it may use the upstream proxies of the server's environment.
    pub(super) allows_upstream: bool,
}

impl Onward {
    /// Through what a plain request goes.
    pub(super) fn via(&self, route: &Route) -> io::Result<Option<Via>> {
        self.upstream(route, Scheme::HTTP)
    }

    /// A connection for plain requests.
    pub(super) async fn connect(&self, route: &Route, via: Option<&Via>) -> io::Result<TcpStream> {
        match via {
            None => dial::connect(&route.addresses).await,
            Some(via) => via.connect(&*self.site.resolver).await,
        }
    }

    /// A tunnel for CONNECT.
    pub(super) async fn tunnel(&self, route: &Route) -> io::Result<End> {
        self.open(route, self.upstream(route, Scheme::HTTPS)?).await
    }

    /// A tunnel for SOCKS.
    pub(super) async fn tcp(&self, route: &Route) -> io::Result<End> {
        self.open(route, self.site.upstream.of_tcp(route)).await
    }

    /// A tunnel, perhaps through an upstream proxy.
    pub(super) async fn open(&self, route: &Route, via: Option<Via>) -> io::Result<End> {
        match via {
            None => dial::connect(&route.addresses).await.map(End::from),
            Some(via) => via.tunnel(&*self.site.resolver, route).await,
        }
    }

    fn upstream(&self, route: &Route, scheme: Scheme) -> io::Result<Option<Via>> {
        if self.allows_upstream { self.site.upstream.of(route, scheme) } else { Ok(None) }
    }
}
