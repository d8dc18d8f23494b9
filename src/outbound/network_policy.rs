//! What the host program lets its environments connect to.
//!
//! The host keeps the [`NetworkPolicyController`] and publishes; everything that connects has a [`NetworkPolicy`] and
//! asks first. Nothing published means nothing allowed. A permit is held as long as its connection and says when it
//! is withdrawn.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

use super::connect::{Duplex, Stream};

/// Destinations that may be connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DestinationPolicy {
    /// All of them.
    Unrestricted,
    /// These hosts, and they by `https` and `wss` only.
    Restricted {
        /// Names or addresses without port, in any case; one dot at the end does not count.
        allowed_hosts: Vec<String>,
    },
}

impl DestinationPolicy {
    fn allows(&self, destination: &Destination) -> bool {
        match self {
            Self::Unrestricted => true,
            Self::Restricted { allowed_hosts } => {
                matches!(destination.scheme.as_str(), "https" | "wss")
                    && allowed_hosts.iter().any(|allowed| normal(allowed) == destination.host)
            }
        }
    }
}

/// The form in which hosts are compared.
fn normal(host: &str) -> String {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// The host program's side: publishes what is allowed. Its policies keep what was published last when it is dropped.
#[derive(Debug, Default)]
pub struct NetworkPolicyController {
    state: Arc<watch::Sender<State>>,
}

/// The side of those who connect. Clones share the state.
#[derive(Debug, Clone)]
pub struct NetworkPolicy {
    state: Arc<watch::Sender<State>>,
}

#[derive(Debug, Default)]
struct State {
    revision: u64,
    published: Option<DestinationPolicy>,
}

#[derive(Debug, Clone)]
struct Destination {
    scheme: String,
    host: String,
}

/// A destination that may not be connected to now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyRefusal {
    /// Nothing is published.
    #[error("the application network policy is not yet available")]
    NotPublished,
    /// What is published does not allow it.
    #[error("the application network policy does not allow {scheme} to {host}")]
    NotAllowed {
        /// How it was to be reached.
        scheme: String,
        /// Who.
        host: String,
    },
}

impl NetworkPolicyController {
    /// The other side.
    #[must_use]
    pub fn policy(&self) -> NetworkPolicy {
        NetworkPolicy { state: Arc::clone(&self.state) }
    }

    /// Makes this what is allowed, if `revision` is still current; whether it was. Connections that are not allowed any
    /// more end.
    #[must_use = "a policy of an older revision is not published"]
    pub fn publish(&self, revision: u64, policy: DestinationPolicy) -> bool {
        self.state.send_if_modified(|state| {
            let current = state.revision == revision;
            if current {
                state.published = Some(policy);
            }
            current
        })
    }
}

impl NetworkPolicy {
    /// What [`NetworkPolicyController::publish`] has to name.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.state.borrow().revision
    }

    /// Takes back what was published, until something is published for the new revision. All connections end.
    pub fn invalidate(&self) {
        self.state.send_modify(|state| {
            state.revision += 1;
            state.published = None;
        });
    }

    /// Asks for a connection to a host.
    ///
    /// # Errors
    /// [`PolicyRefusal`].
    pub fn permit(&self, scheme: &str, host: &str) -> Result<Permit, PolicyRefusal> {
        let destination = Destination { scheme: scheme.to_ascii_lowercase(), host: normal(host) };
        let state = self.state.subscribe();
        let revision = {
            let current = state.borrow();
            let Some(published) = &current.published else { return Err(PolicyRefusal::NotPublished) };
            if !published.allows(&destination) {
                let Destination { scheme, host } = destination;
                return Err(PolicyRefusal::NotAllowed { scheme, host });
            }
            current.revision
        };
        Ok(Permit(Some(Granted { state, revision, destination })))
    }
}

/// Held as long as a connection.
#[derive(Debug, Clone)]
pub struct Permit(Option<Granted>);

#[derive(Debug, Clone)]
struct Granted {
    state: watch::Receiver<State>,
    revision: u64,
    destination: Destination,
}

impl Permit {
    /// One that nobody withdraws: there is no policy.
    pub(super) fn unconditional() -> Self {
        Self(None)
    }

    /// Resolves when it is withdrawn. Cancel-safe.
    pub async fn withdrawn(&self) {
        let Some(Granted { state, revision, destination }) = &self.0 else { return pending().await };
        let ended = |state: &State| {
            let allows = state.published.as_ref().is_some_and(|policy| policy.allows(destination));
            state.revision != *revision || !allows
        };
        if state.clone().wait_for(ended).await.is_err() {
            // Nobody is left who could withdraw it.
            pending().await
        }
    }

    /// The outcome of work, or nothing if the permit is withdrawn before. Cancel-safe where the work is.
    pub async fn during<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.withdrawn() => None,
            outcome = work => Some(outcome),
        }
    }

    /// The stream, which breaks when the permit is withdrawn.
    #[must_use]
    pub fn guard(self, stream: impl Duplex + 'static) -> Stream {
        match &self.0 {
            None => Box::new(stream),
            Some(_) => {
                let withdrawn: Withdrawn = Box::pin(async move { self.withdrawn().await });
                Box::new(Guarded { stream, withdrawn })
            }
        }
    }
}

type Withdrawn = Pin<Box<dyn Future<Output = ()> + Send>>;

/// See [`Permit::guard`].
struct Guarded<S> {
    stream: S,
    withdrawn: Withdrawn,
}

impl<S> Guarded<S> {
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.withdrawn.as_mut().poll(cx).is_pending() {
            return Ok(());
        }
        // A future that has ended cannot be polled again.
        self.withdrawn = Box::pin(std::future::ready(()));
        let why = "the application network policy no longer allows this connection";
        Err(io::Error::new(io::ErrorKind::ConnectionAborted, why))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
