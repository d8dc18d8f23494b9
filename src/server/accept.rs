//! Lets connections in, and looks at where each comes from.

use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::http::{self, Peer, Place};
use super::listen::{self, BoundListener};
use super::metrics::Refusal;
use super::site::Site;
use super::stream::ServerStream;
use super::tls::is_refused_certificate;
use crate::sandbox::networked::NetworkedRuns;
use crate::sandbox::origin::{self, Connection, Inside};

/// How long to wait before accepting again when the system refuses.
const PAUSE: Duration = Duration::from_millis(100);

/// Looks at `/proc` for the sake of connections, at a time: a sandboxed program may open many.
static LOOKS: Semaphore = Semaphore::const_new(2);

/// A connection, and who is at its other end.
struct Accepted {
    stream: ServerStream,
    peer: Peer,
    /// Where there is a sandboxed program that may have made it: what is to be looked at.
    suspect: Option<io::Result<Connection>>,
}

/// Accepts connections and serves each, until the end of the server.
pub(super) async fn run(listener: BoundListener, site: Arc<Site>) {
    let mut backlog = Backlog { listener: &listener, empty: None };
    loop {
        let Ok(place) = Arc::clone(&site.common.sockets).acquire_owned().await else { return };
        let accepted = tokio::select! {
            accepted = backlog.next(&site) => accepted,
            () = site.common.closed.cancelled() => return,
        };
        match accepted {
            Ok(Some(accepted)) => {
                let site = Arc::clone(&site);
                tokio::spawn(async move {
                    let refusal = inside(accepted.suspect, &site.common.shared.sandboxes.networked).await;
                    if let Some(stream) = private(accepted.stream, accepted.peer, &site).await {
                        http::serve(stream, accepted.peer, site, refusal, Place::new(place)).await;
                    }
                });
            }
            Ok(None) => {}
            Err(error) => {
                // Out of descriptors, most likely: others have to end first.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// The connection inside TLS where the listener has it; a stranger who does not manage is let go.
async fn private(stream: ServerStream, peer: Peer, site: &Site) -> Option<ServerStream> {
    let Some(tls) = &site.access().tls else { return Some(stream) };
    let outcome = tokio::select! {
        outcome = tls.handshake(stream, site.common.head_timeout) => outcome,
        () = site.common.closed.cancelled() => return None,
    };
    match outcome {
        Ok(stream) => Some(stream),
        Err(error) if is_refused_certificate(&error) => {
            tracing::warn!(%peer, reason = %error, "authentication failed");
            site.common.refused(peer, Refusal::Authentication, &error);
            None
        }
        Err(error) => {
            tracing::debug!(%peer, %error, "a TLS handshake has failed");
            site.common.refused(peer, Refusal::Tls, &error);
            None
        }
    }
}

async fn inside(suspect: Option<io::Result<Connection>>, runs: &Arc<NetworkedRuns>) -> Option<Inside> {
    let connection = match suspect? {
        Ok(connection) => connection,
        Err(error) => return Some(error.into()),
    };
    let _place: Option<SemaphorePermit<'_>> = LOOKS.acquire().await.ok();
    let runs = Arc::clone(runs);
    let looked = tokio::task::spawn_blocking(move || origin::check(&runs, &connection)).await;
    looked.unwrap_or(Err(Inside::Undecided("it was not looked at"))).err()
}

/// The connections that wait to be accepted.
struct Backlog<'a> {
    listener: &'a BoundListener,
    /// When there was none, as far as is known. What is accepted now was made later.
    empty: Option<Instant>,
}

impl Backlog<'_> {
    async fn next(&mut self, site: &Site) -> io::Result<Option<Accepted>> {
        match self.listener {
            BoundListener::Tcp(listener, _) => {
                let (stream, peer) =
                    poll_fn(|cx| self.poll(listener.as_fd(), cx, |cx| listener.poll_accept(cx))).await?;
                let own = || Ok(Connection::Tcp { peer, own: stream.local_addr()? });
                let suspect = self.is_suspect(site).then(own);
                let stream = ServerStream::tcp(stream, site.common.shared.ping_timeout);
                Ok(Some(Accepted { stream, peer: Peer::Tcp(peer), suspect }))
            }
            BoundListener::Unix(socket) => {
                let listener = socket.listener();
                let (stream, _) =
                    poll_fn(|cx| self.poll(listener.as_fd(), cx, |cx| listener.poll_accept(cx))).await?;
                if !listen::is_permitted_peer(&stream)? {
                    tracing::warn!("a connection of another user was refused");
                    let detail = "a unix socket takes connections of the server's user and of root only";
                    site.common.refused(Peer::Unix, Refusal::User, &detail);
                    return Ok(None);
                }
                let own = || stream.as_fd().try_clone_to_owned().map(Connection::Unix);
                let suspect = self.is_suspect(site).then(own);
                Ok(Some(Accepted { stream: ServerStream::unix(stream), peer: Peer::Unix, suspect }))
            }
        }
    }

    fn is_suspect(&self, site: &Site) -> bool {
        site.common.shared.sandboxes.networked.lived_since(self.empty)
    }

    /// Accepts, and notes when there was nothing to accept. That the runtime has heard of nothing is not enough.
    fn poll<T>(
        &mut self,
        listener: BorrowedFd<'_>,
        cx: &mut Context<'_>,
        accept: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let before = Instant::now();
        let polled = accept(cx);
        let mut waiting = [PollFd::from_borrowed_fd(listener, PollFlags::IN)];
        if polled.is_pending() && poll(&mut waiting, Some(&Timespec::default())) == Ok(0) {
            self.empty = Some(before);
        }
        polled
    }
}
