//! What a program says on its standard error: it goes into the log, and its last line into the reason of its end.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

/// A longer line is logged in parts.
const LINE_BYTES: usize = 4 << 10;
/// Time for reading what a program that has ended has left; others may hold the stream open.
const REST: Duration = Duration::from_millis(250);

/// Standard error of a program, as long as it is read.
pub(super) struct Stderr {
    last_line: watch::Receiver<String>,
    _reader: AbortOnDropHandle<()>,
}

impl Stderr {
    /// Must be called in a runtime.
    ///
    /// # Errors
    /// When the system's watch list is full.
    pub(super) fn new(stream: OwnedFd, program: String) -> io::Result<Self> {
        let stream = pipe::Receiver::from_owned_fd(stream)?;
        let (lines, last_line) = watch::channel(String::new());
        let reader = tokio::spawn(log(stream, program, lines));
        Ok(Self { last_line, _reader: AbortOnDropHandle::new(reader) })
    }

    /// The last line, when everything has been read or time is up. Empty if there is none.
    pub(super) fn last_words(&self) -> impl Future<Output = String> + Send + use<> {
        let mut last_line = self.last_line.clone();
        async move {
            // The reader holds the other end.
            let _ = timeout(REST, async { while last_line.changed().await.is_ok() {} }).await;
            last_line.borrow().chars().filter(|char| !char.is_control()).collect()
        }
    }
}

/// Copies lines into the log.
async fn log(mut stream: pipe::Receiver, program: String, lines: watch::Sender<String>) {
    let tell = |line: &mut Vec<u8>| {
        let text = String::from_utf8_lossy(line);
        tracing::debug!(program, line = %text, "on standard error");
        if !text.trim().is_empty() {
            lines.send_modify(|last| text.as_ref().clone_into(last));
        }
        line.clear();
    };
    let mut line = Vec::with_capacity(LINE_BYTES);
    let mut buffer = [0; LINE_BYTES];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        for byte in &buffer[..count] {
            if *byte != b'\n' {
                line.push(*byte);
            }
            if *byte == b'\n' || line.len() == LINE_BYTES {
                tell(&mut line);
            }
        }
    }
    if !line.is_empty() {
        tell(&mut line);
    }
}
