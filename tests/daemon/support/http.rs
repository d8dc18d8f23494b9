//! Plain HTTP requests, byte for byte.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::LIMIT;

/// The head of a correct upgrade, with these lines added.
pub(crate) fn upgrade_head(host: &str, more: &[&str]) -> String {
    let mut head = format!(
        "GET / HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    );
    for line in more {
        head.push_str(line);
        head.push_str("\r\n");
    }
    head + "\r\n"
}

/// Sends a head and reads the head of the answer.
pub(crate) async fn exchange(address: &str, head: &str) -> String {
    let mut socket = TcpStream::connect(address).await.expect("the port can be connected");
    // A server that has seen enough need not take the rest.
    socket.write_all(head.as_bytes()).await.ok();
    read_head(&mut socket).await
}

/// Sends a head and reads all that comes.
pub(crate) async fn whole(address: &str, head: &str) -> String {
    let mut socket = TcpStream::connect(address).await.expect("the port can be connected");
    socket.write_all(head.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    timeout(LIMIT, socket.read_to_end(&mut answer)).await.expect("the answer ends").expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Reads up to the empty line, or the end.
pub(crate) async fn read_head(socket: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    let read = async {
        while !head.ends_with(b"\r\n\r\n") {
            match socket.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => break,
            }
        }
    };
    timeout(LIMIT, read).await.expect("an answer");
    String::from_utf8_lossy(&head).into_owned()
}

/// The status of an answer's head.
pub(crate) fn status(head: &str) -> u16 {
    head.split(' ')
        .nth(1)
        .and_then(|word| word.parse().ok())
        .unwrap_or_else(|| panic!("no status in {head:?}"))
}
