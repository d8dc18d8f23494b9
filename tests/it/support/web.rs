//! A web server that answers each request with the bytes that a test chooses, and a client that speaks JSON-RPC.

use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

use super::soon;

/// What the web server does with a connection once the head of a request has come.
pub(crate) enum Act {
    /// Sends this and closes.
    Send(Vec<u8>),
    /// Sends this, and nothing more until the peer closes.
    Hold(Vec<u8>),
    /// Sends without end until the peer reads no further.
    Endless,
}

/// What the web server has seen.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Head(String),
    /// The peer closed a held connection.
    Closed,
    /// So many bytes went out, then no more for a while.
    Stalled(usize),
}

pub(crate) struct Web {
    pub(crate) url: String,
    pub(crate) seen: mpsc::UnboundedReceiver<Seen>,
}

impl Web {
    /// A server that asks `act` about every path.
    pub(crate) async fn start(act: impl Fn(&str) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, seen) = mpsc::unbounded_channel();
        let act = Arc::new(act);
        tokio::spawn(async move {
            while let Ok((peer, _)) = listener.accept().await {
                tokio::spawn(serve(peer, Arc::clone(&act), sender.clone()));
            }
        });
        Self { url, seen }
    }

    pub(crate) async fn next(&mut self) -> Seen {
        soon(self.seen.recv()).await.unwrap()
    }
}

async fn serve(
    mut peer: TcpStream,
    act: Arc<impl Fn(&str) -> Act>,
    seen: mpsc::UnboundedSender<Seen>,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(peer.read_u8().await?);
    }
    let head = String::from_utf8(head).unwrap();
    let act = act(head.split(' ').nth(1).unwrap());
    seen.send(Seen::Head(head)).unwrap();
    match act {
        Act::Send(bytes) => peer.write_all(&bytes).await,
        Act::Hold(bytes) => {
            peer.write_all(&bytes).await?;
            let _ = peer.read_u8().await;
            let _ = seen.send(Seen::Closed);
            Ok(())
        }
        Act::Endless => {
            peer.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
            let (mut sent, piece) = (0, vec![b'x'; 64 << 10]);
            while let Ok(written) = tokio::time::timeout(STALL, peer.write(&piece)).await {
                sent += written?;
            }
            let _ = seen.send(Seen::Stalled(sent));
            let _ = peer.read_u8().await;
            Ok(())
        }
    }
}

/// A peer that takes nothing for so long does not read.
const STALL: std::time::Duration = std::time::Duration::from_secs(2);

/// A whole response. It says that the connection closes, so that nobody sends another request into the end.
pub(crate) fn response(head: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {head}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// A connection after the handshake.
pub(crate) struct Rpc {
    socket: WebSocketStream<TcpStream>,
    next_id: i64,
}

impl Rpc {
    pub(crate) async fn connect(url: &str) -> Self {
        let stream = TcpStream::connect(url.trim_start_matches("ws://")).await.unwrap();
        let (socket, _) = client_async(url, stream).await.unwrap();
        let mut rpc = Self { socket, next_id: 0 };
        rpc.call("initialize", json!({"clientName": "test"})).await.unwrap();
        rpc.write(json!({"method": "initialized"})).await;
        rpc
    }

    async fn write(&mut self, message: Value) {
        self.socket.send(Message::Text(message.to_string().into())).await.unwrap();
    }

    /// Sends a request and does not wait for its answer.
    pub(crate) async fn send(&mut self, method: &str, params: Value) {
        self.next_id += 1;
        self.write(json!({"id": self.next_id, "method": method, "params": params})).await;
    }

    /// The next message, whatever it is.
    pub(crate) async fn next(&mut self) -> Value {
        loop {
            if let Message::Text(text) = soon(self.socket.next()).await.unwrap().unwrap() {
                return serde_json::from_str(&text).unwrap();
            }
        }
    }

    /// The result or the error of a request; the next message must be its answer.
    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.send(method, params).await;
        let mut answer = self.next().await;
        assert_eq!(answer["id"], self.next_id, "{answer}");
        match answer.get("error") {
            Some(error) => Err(error.clone()),
            None => Ok(answer["result"].take()),
        }
    }
}
