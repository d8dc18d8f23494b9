//! The real server, as a program.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::soon;

/// A server that ends with this value.
pub(crate) struct ServerProcess {
    url: String,
    child: Child,
}

impl ServerProcess {
    /// A server. `EXEC_SERVER_TEST_SERVER` names another one for tests to be run against by hand: a command with its
    /// arguments, without `--listen`.
    pub(crate) async fn start() -> Self {
        let Ok(other) = std::env::var("EXEC_SERVER_TEST_SERVER") else { return Self::start_with(&[]).await };
        let mut words = other.split_whitespace();
        let mut command = Command::new(words.next().expect("EXEC_SERVER_TEST_SERVER names a program"));
        command.args(words).args(["--listen", "ws://127.0.0.1:0"]);
        Self::spawn(command).await
    }

    /// A server with more arguments.
    pub(crate) async fn start_with(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_exec-server"));
        command.args(["--listen", "ws://127.0.0.1:0"]).args(arguments);
        Self::spawn(command).await
    }

    /// A server with more arguments and one more variable, `NAME=value`.
    pub(crate) async fn start_with_environment(arguments: &[&str], variable: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_exec-server"));
        let (name, value) = variable.split_once('=').unwrap();
        command.args(["--listen", "ws://127.0.0.1:0"]).args(arguments).env(name, value);
        Self::spawn(command).await
    }

    /// A server that another program runs.
    pub(crate) async fn start_under(program: &[&str]) -> Self {
        let mut command = Command::new(program[0]);
        command.args(&program[1..]);
        command.args([env!("CARGO_BIN_EXE_exec-server"), "--listen", "ws://127.0.0.1:0"]);
        Self::spawn(command).await
    }

    async fn spawn(mut command: Command) -> Self {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        let line = soon(BufReader::new(stdout).lines().next_line()).await.unwrap();
        Self { url: line.expect("the server says where it listens"), child }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Kills it and waits until it is gone.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}
