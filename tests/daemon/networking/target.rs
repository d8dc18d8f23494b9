//! Something to be reached, or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nHIT";

/// Listens at a free port of an address, answers every connection as a web server would, and counts them.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) port: u16,
    hits: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Target {
    pub(crate) async fn at(address: &str) -> Self {
        Self::on(TcpListener::bind((address, 0)).await.unwrap())
    }

    pub(crate) fn on(listener: TcpListener) -> Self {
        let (port, hits) = (listener.local_addr().unwrap().port(), Arc::<AtomicUsize>::default());
        let count = Arc::clone(&hits);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream));
            }
        });
        Self { port, hits, task }
    }

    pub(crate) fn hits(&self) -> usize {
        self.hits.load(Ordering::SeqCst)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream) {
    let mut buffer = [0; 4096];
    while stream.read(&mut buffer).await.is_ok_and(|count| count > 0) {
        if stream.write_all(ANSWER).await.is_err() {
            return;
        }
    }
}
