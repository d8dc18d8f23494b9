//! Follows processes.

use std::sync::Arc;
use std::time::Duration;

use exec_server::backend::{ExecProcess, ExecProcessEvent, ExecProcessEventReceiver};
use exec_server::protocol::process::ExecOutputStream;
use tokio::sync::watch;
use tokio::time::timeout;

use super::soon;

/// An event that compares easily.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    Output(u64, ExecOutputStream, String),
    Exited(u64, i32),
    Closed(u64),
    Failed(String),
}

impl From<ExecProcessEvent> for Told {
    fn from(event: ExecProcessEvent) -> Self {
        match event {
            ExecProcessEvent::Output(chunk) => {
                let text = String::from_utf8_lossy(chunk.chunk.as_slice()).into_owned();
                Self::Output(chunk.seq, chunk.stream, text)
            }
            ExecProcessEvent::Exited { seq, exit_code, .. } => Self::Exited(seq, exit_code),
            ExecProcessEvent::Closed { seq } => Self::Closed(seq),
            ExecProcessEvent::Failed(why) => Self::Failed(why),
        }
    }
}

/// Output on stdout.
pub(crate) fn stdout(seq: u64, text: &str) -> Told {
    Told::Output(seq, ExecOutputStream::Stdout, text.to_owned())
}

/// The next event.
pub(crate) async fn next(events: &mut ExecProcessEventReceiver) -> Told {
    soon(events.recv()).await.unwrap().into()
}

/// All events to the last.
pub(crate) async fn rest(events: &mut ExecProcessEventReceiver) -> Vec<Told> {
    let mut all = Vec::new();
    loop {
        all.push(next(events).await);
        if let Some(Told::Closed(_) | Told::Failed(_)) = all.last() {
            return all;
        }
    }
}

/// The numbers are 1, 2, 3 …; the output together, the exit code.
pub(crate) fn complete(events: &[Told]) -> (String, i32) {
    let mut output = String::new();
    let mut code = None;
    for (index, event) in events.iter().enumerate() {
        let seq = match event {
            Told::Output(seq, _, text) => {
                output.push_str(text);
                *seq
            }
            Told::Exited(seq, exit_code) => {
                code = Some(*exit_code);
                *seq
            }
            Told::Closed(seq) => *seq,
            Told::Failed(why) => panic!("failed: {why}"),
        };
        assert_eq!(seq, index as u64 + 1, "{events:?}");
    }
    assert!(matches!(events.last(), Some(Told::Closed(_))));
    (output, code.expect("no exit"))
}

/// Reads to the close, waiting for wakes; the output and the exit code.
pub(crate) async fn read_to_close(
    process: &Arc<dyn ExecProcess>,
    wake: &mut watch::Receiver<u64>,
) -> (String, Option<i32>) {
    let mut output = String::new();
    let mut after = None;
    loop {
        let read = soon(process.read(after, None, Some(0))).await.unwrap();
        assert_eq!(read.failure, None);
        for chunk in &read.chunks {
            output.push_str(&String::from_utf8_lossy(chunk.chunk.as_slice()));
        }
        if read.closed {
            return (output, read.exit_code);
        }
        let is_news = !read.chunks.is_empty();
        after = read.next_seq.checked_sub(1);
        if !is_news {
            timeout(Duration::from_secs(2), wake.changed()).await.expect("no wake").unwrap();
        }
    }
}
