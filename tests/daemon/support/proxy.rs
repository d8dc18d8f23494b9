//! A proxy that cuts its connections at byte positions of the test's choice.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// After how many bytes a connection is cut: whichever direction gets there first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    pub(crate) to_server: u64,
    pub(crate) to_client: u64,
}

impl Cut {
    pub(crate) const NEVER: Self = Self { to_server: u64::MAX, to_client: u64::MAX };
}

/// Listens on a free port and forwards to one server.
#[derive(Debug)]
pub(crate) struct CuttingProxy {
    url: String,
    next: Arc<Mutex<Cut>>,
    task: JoinHandle<()>,
}

impl CuttingProxy {
    pub(crate) async fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("ws://{}", listener.local_addr().expect("an address"));
        let next = Arc::new(Mutex::new(Cut::NEVER));
        let (server, cuts) = (server.to_owned(), Arc::clone(&next));
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let cut = *cuts.lock().expect("not poisoned");
                let server = TcpStream::connect(&server).await.expect("the server can be connected");
                tokio::spawn(forward(client, server, cut));
            }
        });
        Self { url, next, task }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// For the connections made from now on.
    pub(crate) fn cut(&self, cut: Cut) {
        *self.next.lock().expect("not poisoned") = cut;
    }
}

impl Drop for CuttingProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Ends, and with it both sockets, as soon as one direction does.
async fn forward(client: TcpStream, server: TcpStream, cut: Cut) {
    for socket in [&client, &server] {
        socket.set_nodelay(true).ok();
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = copy(from_client, to_server, cut.to_server) => {}
        () = copy(from_server, to_client, cut.to_client) => {}
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut left: u64) {
    let mut buffer = vec![0; 16 * 1024];
    while left > 0 {
        let room = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        match from.read(&mut buffer[..room]).await {
            Ok(count) if count > 0 => {
                if to.write_all(&buffer[..count]).await.is_err() {
                    return;
                }
                left -= count as u64;
            }
            _ => return,
        }
    }
}
