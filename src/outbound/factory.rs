//! What all connections of an embedding program have in common.

use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;

use hyper::Uri;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use rustls::ClientConfig;
use tokio::sync::OnceCell;
use url::Url;

use super::connect::{self, ConnectError, Endpoint, Stream};
use super::network_policy::{NetworkPolicy, Permit, PolicyRefusal};
use super::proxy::{self, Variables};
use super::trust::{self, TrustError};

/// Who decides about proxies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutboundProxyPolicy {
    /// The environment variables `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, in either case.
    #[default]
    ReqwestDefault,
    /// The operating system, destination by destination, and after it the variables. Linux itself has no such setting,
    /// so here these are the routes of [`HttpClientFactory::with_system_route`].
    RespectSystemProxy,
}

/// How connections leave this process: by which proxies, under which network policy, trusting whom. Clones share it.
///
/// A WebSocket to this machine never goes through a proxy: what is meant to stay here does. An HTTP request goes where
/// the variables send it, so `NO_PROXY` decides there.
#[derive(Clone)]
pub struct HttpClientFactory {
    shared: Arc<Shared>,
}

#[derive(Clone)]
struct Shared {
    policy: OutboundProxyPolicy,
    network: Option<NetworkPolicy>,
    environment: Vec<(OsString, OsString)>,
    routes: Vec<(String, Arc<Matcher>)>,
    proxies: Variables,
    matcher: Arc<Matcher>,
    tls: OnceCell<Arc<ClientConfig>>,
}

impl HttpClientFactory {
    /// A factory with the environment that this process has now.
    #[must_use]
    pub fn new(policy: OutboundProxyPolicy) -> Self {
        Self::with_environment(policy, std::env::vars_os().collect())
    }

    /// A factory with an environment of its own: for proxies, for files of certificates, and for header values of
    /// local HTTP requests.
    #[must_use]
    pub fn with_environment(policy: OutboundProxyPolicy, environment: Vec<(OsString, OsString)>) -> Self {
        let proxies = Variables::read(&|name| find(&environment, name));
        let matcher = Arc::new(proxies.matcher());
        let (network, routes, tls) = (None, Vec::new(), OnceCell::new());
        Self { shared: Arc::new(Shared { policy, network, environment, routes, proxies, matcher, tls }) }
    }

    /// Asks this policy before every connection.
    #[must_use]
    pub fn with_network_policy(self, policy: NetworkPolicy) -> Self {
        self.changed(|shared| shared.network = Some(policy))
    }

    /// What the operating system answers for one destination, an `http://` or `https://` URL: this proxy. It counts
    /// under [`OutboundProxyPolicy::RespectSystemProxy`], for WebSockets.
    ///
    /// # Errors
    /// The URL that is none.
    pub fn with_system_route(self, destination: &str, proxy: &str) -> Result<Self, url::ParseError> {
        let (destination, proxy) = (Url::parse(destination)?, Url::parse(proxy)?);
        let route = (destination.origin().ascii_serialization(), Arc::new(proxy::only(&proxy)));
        Ok(self.changed(|shared| shared.routes.push(route)))
    }

    fn changed(self, change: impl FnOnce(&mut Shared)) -> Self {
        let mut shared = Arc::unwrap_or_clone(self.shared);
        change(&mut shared);
        Self { shared: Arc::new(shared) }
    }

    /// A variable of the environment.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<OsString> {
        find(&self.shared.environment, name)
    }

    /// The proxies that the environment names.
    pub(crate) fn proxies(&self) -> &Variables {
        &self.shared.proxies
    }

    /// Asks the network policy for a connection.
    ///
    /// # Errors
    /// The policy's refusal.
    pub fn permit(&self, scheme: &str, host: &str) -> Result<Permit, PolicyRefusal> {
        match &self.shared.network {
            Some(policy) => policy.permit(scheme, host),
            None => Ok(Permit::unconditional()),
        }
    }

    /// Opens a connection for a WebSocket. It breaks when the network policy withdraws its permit. Cancel-safe.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(&self, endpoint: &Endpoint) -> Result<Stream, ConnectError> {
        let permit = self.permit(endpoint.scheme(), &endpoint.host)?;
        let proxy = self.proxy_of(endpoint);
        let encrypts = endpoint.tls || proxy.as_ref().is_some_and(proxy::is_encrypted);
        let tls = match encrypts {
            true => Some(self.tls().await.map_err(|error| ConnectError::Tls(error.to_string()))?),
            false => None,
        };
        let stream = connect::open(endpoint, proxy.as_ref(), tls).await?;
        Ok(permit.guard(stream))
    }

    fn proxy_of(&self, endpoint: &Endpoint) -> Option<Intercept> {
        if endpoint.is_loopback() {
            return None;
        }
        let url = endpoint.looked_up_as();
        let origin = Url::parse(&url).ok()?.origin().ascii_serialization();
        let asks_system = self.shared.policy == OutboundProxyPolicy::RespectSystemProxy;
        let route = self.shared.routes.iter().find(|(destination, _)| asks_system && *destination == origin);
        route.map_or(&self.shared.matcher, |(_, matcher)| matcher).intercept(&url.parse::<Uri>().ok()?)
    }

    /// Whom it trusts. Read once, off the runtime's threads. Cancel-safe.
    ///
    /// # Errors
    /// As [`trust::tls`].
    pub(crate) async fn tls(&self) -> Result<Arc<ClientConfig>, TrustError> {
        let read = || async {
            let this = self.clone();
            let read = move || trust::tls(&|name| this.variable(name)).map(Arc::new);
            let read = tokio::task::spawn_blocking(read).await;
            read.unwrap_or_else(|error| Err(TrustError(error.to_string())))
        };
        self.shared.tls.get_or_try_init(read).await.cloned()
    }
}

/// A variable of an environment.
pub(crate) fn find(environment: &[(OsString, OsString)], name: &str) -> Option<OsString> {
    environment.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
}

impl Default for HttpClientFactory {
    fn default() -> Self {
        Self::new(OutboundProxyPolicy::default())
    }
}

/// Without the environment, which has secrets.
impl fmt::Debug for HttpClientFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClientFactory")
            .field("policy", &self.shared.policy)
            .field("network_policy", &self.shared.network)
            .finish_non_exhaustive()
    }
}
