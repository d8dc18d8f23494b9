//! HTTP requests that this machine makes for a client: with its network, its proxies, its trust store, and chosen
//! variables of its environment.
//!
//! The connections are kept by one client, which is made at the first request: most servers never need it. Redirects
//! are followed here and not by the client, because only this module knows which headers are secrets of this machine.

mod body;
mod deny;
mod error;
mod proxy;
mod redirect;
mod request;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use tokio::sync::OnceCell;

pub use self::body::{Room, StreamedBody, Taken};
use self::deny::Bounds;
pub use self::error::HttpError;
use self::error::Unresolved;
use self::redirect::Next;
use self::request::Prepared;
use crate::outbound::{HttpClientFactory, Permit};
use crate::policy::hosts::Denial;
use crate::protocol::failure::HttpErrorKind;
use crate::protocol::http::{RequestParams, ResponseHeader};

/// Connections to one host that stay open for later requests.
const IDLE_CONNECTIONS: usize = 4;

/// Settings of an [`HttpClient`].
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// Decoded bytes of a body that is taken whole.
    pub max_buffered: u64,
    /// Variables that headers may take, `*` for all; protected ones never.
    pub allowed_variables: Vec<String>,
    /// Hosts that no request reaches.
    pub deny: Vec<Denial>,
    /// The environment of this machine: variables for headers, proxies, trust. Its network policy is asked before every
    /// hop.
    pub outbound: HttpClientFactory,
}

/// Makes requests. It remembers connections, and nothing else.
#[derive(Debug)]
pub struct HttpClient {
    settings: Arc<HttpSettings>,
    bounds: Arc<Bounds>,
    client: OnceCell<reqwest::Client>,
}

/// A response whose body has not been read.
#[derive(Debug)]
pub struct HttpResponse {
    /// The status code.
    pub status: u16,
    /// Names in lower case; values that are no text are missing.
    pub headers: Vec<ResponseHeader>,
    /// What follows.
    pub body: StreamedBody,
}

impl HttpClient {
    /// A client that has no connections yet.
    #[must_use]
    pub fn new(settings: HttpSettings) -> Self {
        let proxies = proxy::hosts(settings.outbound.proxies());
        let bounds = Arc::new(Bounds::new(&settings, proxies));
        Self { settings: Arc::new(settings), bounds, client: OnceCell::new() }
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &HttpSettings {
        &self.settings
    }

    /// Sends a request and waits for the head of the final response. Dropping the future aborts it.
    ///
    /// # Errors
    /// The params can never be right, or there is no response.
    pub async fn send(&self, params: RequestParams) -> Result<HttpResponse, HttpError> {
        let mut request = Prepared::new(params, &self.settings)?;
        let deadline = request.deadline;
        let (response, permit) = deadline.limit(self.exchange(&mut request)).await.unwrap_or_else(|| {
            Err(HttpError::failed(HttpErrorKind::Timeout, "no response within the time limit of the request"))
        })?;
        Ok(HttpResponse {
            status: response.status().as_u16(),
            headers: headers_of(&response),
            body: StreamedBody::new(response, permit, deadline),
        })
    }

    /// Goes from redirect to redirect to the final response.
    async fn exchange(&self, request: &mut Prepared) -> Result<(reqwest::Response, Permit), HttpError> {
        let client = self.client().await?;
        let mut hops = 0;
        loop {
            let url = &request.url;
            let permit = self.settings.outbound.permit(url.scheme(), url.host_str().unwrap_or_default());
            let permit = permit.map_err(|refusal| HttpError::refused(&refusal))?;
            self.bounds.check(&request.url).await?;
            let response = permit
                .during(client.execute(request.to_client()))
                .await
                .ok_or_else(HttpError::withdrawn)?
                .map_err(|error| HttpError::from_client(&request.url, &error))?;
            match redirect::next(request, response.status(), response.headers(), hops)? {
                Next::Final => return Ok((response, permit)),
                Next::Again => hops += 1,
            }
        }
    }

    async fn client(&self) -> Result<&reqwest::Client, HttpError> {
        self.client.get_or_try_init(|| build(&self.settings.outbound, Arc::clone(&self.bounds))).await
    }
}

async fn build(outbound: &HttpClientFactory, bounds: Arc<Bounds>) -> Result<reqwest::Client, HttpError> {
    let tls = outbound.tls().await;
    let tls = tls.map_err(|error| HttpError::failed(HttpErrorKind::Tls, error.to_string()))?;
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(Arc::unwrap_or_clone(tls))
        .redirect(Policy::none())
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .dns_resolver(SystemResolver { bounds })
        .no_proxy();
    for proxy in proxy::for_client(outbound.proxies()) {
        builder = builder.proxy(proxy);
    }
    builder.build().map_err(|error| HttpError::failed(HttpErrorKind::Tls, error::chain(&error)))
}

fn headers_of(response: &reqwest::Response) -> Vec<ResponseHeader> {
    let text = |value: &[u8]| std::str::from_utf8(value).ok().map(str::to_owned);
    response
        .headers()
        .iter()
        .filter_map(|(name, value)| {
            Some(ResponseHeader { name: name.as_str().to_owned(), value: text(value.as_bytes())? })
        })
        .collect()
}

/// The resolver of the system, whose failures can be told from others. It gives no address that is out of bounds.
struct SystemResolver {
    bounds: Arc<Bounds>,
}

impl Resolve for SystemResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let bounds = Arc::clone(&self.bounds);
        Box::pin(async move {
            let addresses = tokio::net::lookup_host((name.as_str(), 0))
                .await
                .map_err(|error| Unresolved(format!("the host {} is unknown: {error}", name.as_str())))?;
            let addresses: Vec<SocketAddr> = addresses.collect();
            bounds.check_dialled(name.as_str(), &addresses)?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}
