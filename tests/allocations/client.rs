//! A client that allocates nothing while it is measured: requests are made before, answers are only looked at.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::time::Duration;

use serde_json::Value;

/// Longer than anything here takes.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Room for the largest message and a read behind it.
const BUFFER_BYTES: usize = 1 << 20;
const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// One connection after its upgrade.
pub(crate) struct RawClient {
    stream: TcpStream,
    buffer: Box<[u8]>,
    /// What has been received and not yet looked at.
    pending: Range<usize>,
}

impl RawClient {
    pub(crate) fn connect(address: &str) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(UPGRADE.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
        Self { stream, buffer: vec![0; BUFFER_BYTES].into(), pending: 0..0 }
    }

    /// Sends frames that [`frame`] has made.
    pub(crate) fn send(&mut self, frame: &[u8]) {
        self.stream.write_all(frame).unwrap();
    }

    /// The next message. Heartbeats do not come so soon.
    pub(crate) fn receive(&mut self) -> &[u8] {
        loop {
            let pending = &self.buffer[self.pending.clone()];
            if let Some(payload) = payload(pending) {
                let start = self.pending.start;
                self.pending.start += payload.end;
                return &self.buffer[start + payload.start..start + payload.end];
            }
            self.buffer.copy_within(self.pending.clone(), 0);
            self.pending = 0..self.pending.len();
            self.pending.end += self.read();
        }
    }

    fn read(&mut self) -> usize {
        loop {
            match self.stream.read(&mut self.buffer[self.pending.end..]) {
                // A child has ended.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => {
                    let read = read.unwrap();
                    assert_ne!(read, 0, "the connection has ended");
                    return read;
                }
            }
        }
    }

    /// The result of a request, for what is not measured.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.send(&frame(&serde_json::json!({"id": 0, "method": method, "params": params})));
        loop {
            let message: Value = serde_json::from_slice(self.receive()).unwrap();
            if message["id"] == 0 {
                assert!(message.get("error").is_none(), "{message}");
                return message["result"].clone();
            }
        }
    }
}

/// Where the payload of the first frame is, once all of that has come.
fn payload(bytes: &[u8]) -> Option<Range<usize>> {
    let (start, length) = match *bytes.get(1)? {
        126 => (4, u16::from_be_bytes(bytes.get(2..4)?.try_into().unwrap()).into()),
        127 => (10, usize::try_from(u64::from_be_bytes(bytes.get(2..10)?.try_into().unwrap())).unwrap()),
        length => (2, length.into()),
    };
    assert_eq!(bytes[0], 0x81, "a text message in one frame");
    (bytes.len() >= start + length).then_some(start..start + length)
}

/// A message as a frame, with a mask that changes nothing.
pub(crate) fn frame(message: &Value) -> Vec<u8> {
    let text = message.to_string();
    let length = u16::try_from(text.len()).unwrap();
    let mut frame = vec![0x81, 0x80 | 126];
    frame.extend(length.to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(text.as_bytes());
    frame
}

/// Whether a message is the result of a request.
pub(crate) fn is_result(message: &[u8]) -> bool {
    message.starts_with(br#"{"id":"#) && message.windows(11).take(32).any(|part| part == br#","result":{"#)
}

/// Whether a message tells of output.
pub(crate) fn is_output(message: &[u8]) -> bool {
    message.starts_with(br#"{"method":"process/output""#)
}
