//! The server on its standard input and output.

use std::process::{ExitStatus, Stdio};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::timeout;

use super::{Daemon, LIMIT, work_dir};

/// A server that speaks lines.
#[derive(Debug)]
pub(crate) struct StdioServer {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    _home: tempfile::TempDir,
}

impl StdioServer {
    pub(crate) fn start() -> Self {
        let home = work_dir();
        let mut command = Daemon::setup().listen("stdio").command(home.path());
        let mut child = command.stdin(Stdio::piped()).spawn().expect("the daemon starts");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, stdin, stdout, _home: home }
    }

    /// Writes these bytes as they are.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().expect("still open").write_all(bytes).await.expect("written");
    }

    pub(crate) fn end_input(&mut self) {
        self.stdin.take();
    }

    /// The next message; `None` at the end of its output.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        timeout(LIMIT, self.stdout.read_line(&mut line)).await.expect("a line in time").expect("text");
        (!line.is_empty()).then(|| serde_json::from_str(&line).expect("one JSON message a line"))
    }

    /// All messages up to the end of its output.
    pub(crate) async fn rest(&mut self) -> Vec<Value> {
        let mut all = Vec::new();
        while let Some(message) = self.next().await {
            all.push(message);
        }
        all
    }

    pub(crate) async fn ended(&mut self) -> ExitStatus {
        timeout(LIMIT, self.child.wait()).await.expect("it ends").expect("a status")
    }
}
