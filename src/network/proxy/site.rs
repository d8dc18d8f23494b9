//! What all proxies of a server share.

use std::sync::Arc;

use super::own::OwnListeners;
use super::resolve::{Resolve, SystemResolver};
use super::upstream::{Upstream, UpstreamSettings};

/// See the module's description.
#[derive(Debug)]
pub struct Site {
    pub(super) resolver: Arc<dyn Resolve>,
    pub(super) max_connections: usize,
    pub(super) upstream: Upstream,
    pub(super) own: Arc<OwnListeners>,
}

impl Site {
    /// A site with the resolver of the system. `max_connections` is for each proxy, and 1 at least.
    #[must_use]
    pub fn new(max_connections: usize, upstream: UpstreamSettings<'_>, own: Arc<OwnListeners>) -> Self {
        let resolver = Arc::new(SystemResolver::default());
        Self { resolver, max_connections: max_connections.max(1), upstream: Upstream::new(upstream), own }
    }

    /// Whether TCP connections by SOCKS have to go through a proxy of the operator's.
    #[must_use]
    pub fn has_tcp_upstream(&self) -> bool {
        self.upstream.has_tcp()
    }

    /// The same with another resolver.
    #[must_use]
    pub fn with_resolver(mut self, resolver: Arc<dyn Resolve>) -> Self {
        self.resolver = resolver;
        self
    }
}
