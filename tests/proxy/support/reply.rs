use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const LIMIT: Duration = Duration::from_secs(10);

/// An answer, as its bytes are.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

/// A connection that is read with a limit of time.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (given, value) = line.split_once(':')?;
            given.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Why a plain request is blocked.
    pub(crate) fn reason(&self) -> String {
        assert_eq!(self.status, 403, "{self:?}");
        self.json()["reason"].as_str().unwrap().to_owned()
    }
}

impl Connection {
    pub(crate) async fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        Self { stream, read: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Reads more; false at the end, whatever kind of end that is.
    async fn more(&mut self) -> bool {
        let read = tokio::time::timeout(LIMIT, self.stream.read_buf(&mut self.read)).await;
        read.expect("the peer answers or ends").unwrap_or(0) > 0
    }

    /// The answer to a GET. Status 0: the connection has ended instead.
    pub(crate) async fn reply(&mut self) -> Reply {
        self.reply_to("GET").await
    }

    pub(crate) async fn reply_to(&mut self, method: &str) -> Reply {
        let end = loop {
            if let Some(at) = self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if !self.more().await {
                return Reply::default();
            }
        };
        let head = String::from_utf8(self.read.drain(..end).collect()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut reply = Reply { status, head, body: Vec::new() };
        let is_bare = method == "HEAD"
            || (method == "CONNECT" && status == 200)
            || matches!(status, 100..200 | 204 | 304);
        if !is_bare {
            reply.body = self.body(&reply).await;
        }
        reply
    }

    async fn body(&mut self, reply: &Reply) -> Vec<u8> {
        if reply.header("transfer-encoding").is_some() {
            return self.chunks().await;
        }
        let length = reply.header("content-length").map(|text| text.parse::<usize>().unwrap());
        while length.is_none_or(|length| self.read.len() < length) {
            if !self.more().await {
                break;
            }
        }
        let length = length.unwrap_or(self.read.len()).min(self.read.len());
        self.read.drain(..length).collect()
    }

    /// All chunks with their sizes and the trailers, as they came.
    async fn chunks(&mut self) -> Vec<u8> {
        loop {
            let is_end = |at: usize| at == 0 || self.read[..at].ends_with(b"\n");
            let end = self
                .read
                .windows(3)
                .enumerate()
                .find_map(|(at, window)| (window == b"0\r\n" && is_end(at)).then_some(at));
            if let Some(end) = end
                && let Some(at) = self.read[end..].windows(4).position(|window| window == b"\r\n\r\n")
            {
                return self.read.drain(..end + at + 4).collect();
            }
            if !self.more().await {
                return std::mem::take(&mut self.read);
            }
        }
    }

    /// So many bytes, or what comes before the end.
    pub(crate) async fn take(&mut self, count: usize) -> Vec<u8> {
        while self.read.len() < count && self.more().await {}
        let count = count.min(self.read.len());
        self.read.drain(..count).collect()
    }

    /// All until the end.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        while self.more().await {}
        std::mem::take(&mut self.read)
    }

    /// Says something and reads as much as is expected.
    pub(crate) async fn talk(&mut self, say: &[u8], expected: &[u8]) {
        self.send(say).await;
        assert_eq!(
            String::from_utf8_lossy(&self.take(expected.len()).await),
            String::from_utf8_lossy(expected)
        );
    }
}

/// One request on a connection of its own.
pub(crate) async fn exchange(address: SocketAddr, request: &[u8]) -> Reply {
    let mut connection = Connection::to(address).await;
    connection.send(request).await;
    connection.reply_to(if request.starts_with(b"HEAD") { "HEAD" } else { "GET" }).await
}
