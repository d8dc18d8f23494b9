use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// A server that notes everything it reads, and answers each head with the same bytes.
pub(crate) struct Target {
    pub(crate) port: u16,
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// A server that sends without end.
pub(crate) struct Endless {
    pub(crate) port: u16,
    sent: Arc<AtomicUsize>,
}

impl Endless {
    /// Bytes so far.
    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

impl Target {
    /// Answers 200, and keeps connections.
    pub(crate) async fn ok() -> Self {
        Self::saying(OK).await
    }

    /// Gives this answer to each head. An empty one closes the connection.
    pub(crate) async fn saying(answer: &'static [u8]) -> Self {
        let seen = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let all = Arc::clone(&seen);
        let port = listen(move |stream| converse(stream, answer, Arc::clone(&all))).await;
        Self { port, seen }
    }

    /// Gives this answer to the first head of each connection, and closes it.
    pub(crate) async fn saying_and_closing(answer: &'static [u8]) -> Self {
        let port = listen(async |mut stream: TcpStream| {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => return,
                }
            }
            let _ = stream.write_all(answer).await;
        })
        .await;
        Self { port, seen: Arc::default() }
    }

    /// Says this to everybody who connects, unasked, and ends. Its port.
    pub(crate) async fn saying_first(greeting: &'static [u8]) -> u16 {
        listen(async |mut stream: TcpStream| {
            let _ = stream.write_all(greeting).await;
        })
        .await
    }

    /// Sends without end, as long as somebody reads.
    pub(crate) async fn endless() -> Endless {
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&sent);
        let port = listen(move |mut stream| {
            let sent = Arc::clone(&counted);
            async move {
                while let Ok(length) = stream.write(&[0; 65536]).await {
                    sent.fetch_add(length, Ordering::Relaxed);
                }
            }
        })
        .await;
        Endless { port, sent }
    }

    /// What each connection has brought.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
    }

    /// Waits until the latest connection has brought this.
    pub(crate) async fn has_seen(&self, end: &str) {
        let seen = async {
            while !self.seen().last().is_some_and(|seen| seen.ends_with(end)) {
                tokio::task::yield_now().await;
            }
        };
        let limit = std::time::Duration::from_secs(10);
        assert!(
            tokio::time::timeout(limit, seen).await.is_ok(),
            "{end:?} is not at the end of {:?}",
            self.seen()
        );
    }
}

async fn converse(mut stream: TcpStream, answer: &'static [u8], all: Arc<Mutex<Vec<Vec<u8>>>>) {
    let number = {
        let mut all = all.lock().unwrap();
        all.push(Vec::new());
        all.len() - 1
    };
    let (mut buffer, mut pending) = ([0; 4096], Vec::new());
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        all.lock().unwrap()[number].extend_from_slice(&buffer[..length]);
        pending.extend_from_slice(&buffer[..length]);
        while let Some(at) = pending.windows(4).position(|window| window == b"\r\n\r\n") {
            let is_request = pending[..at].windows(5).any(|window| window == b"HTTP/");
            pending.drain(..at + 4);
            if !is_request {
                continue;
            }
            if answer.is_empty() || stream.write_all(answer).await.is_err() {
                return;
            }
        }
    }
}

async fn listen<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> u16
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    port
}

/// A server that gives back what it reads, and says `end` when its peer has nothing more to say.
pub(crate) async fn echo() -> u16 {
    listen(async |mut stream: TcpStream| {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut buffer).await {
            if stream.write_all(&buffer[..length]).await.is_err() {
                return;
            }
        }
        let _ = stream.write_all(b"end").await;
    })
    .await
}

/// A socket that gives datagrams back; how many it has got.
pub(crate) async fn echo_datagrams() -> (SocketAddr, Arc<Mutex<usize>>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (address, count) = (socket.local_addr().unwrap(), Arc::new(Mutex::new(0)));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        let mut buffer = vec![0; 65536];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            *counted.lock().unwrap() += 1;
            let _ = socket.send_to(&buffer[..length], from).await;
        }
    });
    (address, count)
}

/// A port on which nobody listens.
pub(crate) fn closed_port() -> u16 {
    StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
