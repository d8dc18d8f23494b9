//! Accepts connections for one run, a limited number at a time, and ends all that it has begun when the run ends.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::guest::PeerCheck;

/// How long to wait before accepting again when the system refuses.
const PAUSE: Duration = Duration::from_millis(100);

/// See the module's description. Dropped, it ends everything.
#[derive(Debug)]
pub(super) struct Acceptor {
    closing: CancellationToken,
    tasks: TaskTracker,
    places: Arc<Semaphore>,
}

/// One listener.
struct Door<S> {
    closing: CancellationToken,
    tasks: TaskTracker,
    places: Arc<Semaphore>,
    own: SocketAddr,
    check: Option<Arc<dyn PeerCheck>>,
    serve: S,
}

impl Acceptor {
    pub(super) fn new(max_connections: usize) -> Self {
        Self {
            closing: CancellationToken::new(),
            tasks: TaskTracker::new(),
            places: Arc::new(Semaphore::new(max_connections)),
        }
    }

    pub(super) fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    pub(super) fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Serves the connections of a listener. `held` goes when the listener has gone.
    pub(super) fn accept<F, H>(
        &self,
        listener: std::net::TcpListener,
        check: Option<Arc<dyn PeerCheck>>,
        serve: impl Fn(TcpStream, SocketAddr) -> F + Send + Sync + 'static,
        held: H,
    ) -> io::Result<()>
    where
        F: Future<Output = ()> + Send + 'static,
        H: Send + 'static,
    {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let door = Door {
            closing: self.closing.clone(),
            tasks: self.tasks.clone(),
            places: Arc::clone(&self.places),
            own: listener.local_addr()?,
            check,
            serve,
        };
        self.tasks.spawn(async move {
            door.closing.run_until_cancelled(door.accept(&listener)).await;
            drop((listener, held));
        });
        Ok(())
    }

    /// Ends everything that was begun. Connections are cut and listeners closed as soon as their tasks notice.
    pub(super) fn close(&self) {
        self.closing.cancel();
        self.tasks.close();
    }

    /// Waits until nothing is left. Cancel-safe.
    pub(super) async fn closed(&self) {
        self.tasks.wait().await;
    }
}

impl<F, S> Door<S>
where
    F: Future<Output = ()> + Send + 'static,
    S: Fn(TcpStream, SocketAddr) -> F,
{
    async fn accept(&self, listener: &TcpListener) -> Infallible {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => self.admit(stream, peer).await,
                // Out of descriptors, most likely: others have to end first.
                Err(error) => {
                    tracing::warn!(%error, "a connection to a proxy could not be accepted");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Serves in a task. Until there is a place, others wait in the listener's queue.
    async fn admit(&self, stream: TcpStream, peer: SocketAddr) {
        let Ok(place) = Arc::clone(&self.places).acquire_owned().await else { return };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection to a proxy has no options");
        }
        let own = self.own;
        let (served, check, closing) = ((self.serve)(stream, peer), self.check.clone(), self.closing.clone());
        let visit = async move {
            let is_welcome = match check {
                None => true,
                Some(check) => check.is_own(peer, own).await,
            };
            if is_welcome {
                served.await;
            }
        };
        self.tasks.spawn(async move {
            closing.run_until_cancelled_owned(visit).await;
            drop(place);
        });
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.close();
    }
}
