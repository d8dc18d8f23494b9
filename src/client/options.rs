//! What a caller may choose about a connection.

use std::fmt;
use std::time::Duration;

use crate::outbound::HttpClientFactory;

/// How to connect, and how long to try.
#[derive(Clone)]
pub struct ClientOptions {
    /// What the client calls itself, for people.
    pub client_name: String,
    /// Sent as `Authorization: Bearer`, verbatim; only to this machine or over TLS. Not empty.
    pub bearer_token: Option<String>,
    /// Sent as `x-request-id`, under the same rule.
    pub request_id: Option<String>,
    /// Time for connecting, the upgrade included.
    pub connect_timeout: Duration,
    /// Time for the answer to `initialize`.
    pub initialize_timeout: Duration,
    /// Time for resuming a session, from the loss of its connection. Keep it below the time that servers keep a
    /// session without a connection (80 s by default).
    pub recovery_timeout: Duration,
    /// Time between pings; `None` sends none. Where a transport knows no pings it has no effect.
    pub ping_interval: Option<Duration>,
    /// A connection from which nothing came for this long after a ping is broken.
    pub ping_timeout: Duration,
    /// By which proxies, under which network policy, trusting whom.
    pub outbound: HttpClientFactory,
}

impl ClientOptions {
    /// The defaults, with connections that leave this process so.
    #[must_use]
    pub fn with_outbound(outbound: HttpClientFactory) -> Self {
        Self {
            client_name: "exec-server-client".to_owned(),
            bearer_token: None,
            request_id: None,
            connect_timeout: Duration::from_secs(10),
            initialize_timeout: Duration::from_secs(10),
            recovery_timeout: Duration::from_secs(45),
            ping_interval: Some(Duration::from_secs(30)),
            ping_timeout: Duration::from_secs(60),
            outbound,
        }
    }
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self::with_outbound(HttpClientFactory::default())
    }
}

/// Without the token.
impl fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientOptions")
            .field("client_name", &self.client_name)
            .field("has_bearer_token", &self.bearer_token.is_some())
            .field("request_id", &self.request_id)
            .field("connect_timeout", &self.connect_timeout)
            .field("initialize_timeout", &self.initialize_timeout)
            .field("recovery_timeout", &self.recovery_timeout)
            .field("ping_interval", &self.ping_interval)
            .field("ping_timeout", &self.ping_timeout)
            .field("outbound", &self.outbound)
            .finish()
    }
}
