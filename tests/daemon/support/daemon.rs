//! The real program, with a home of its own, killed with the value.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use super::machine::{self, kill};
use super::{Client, LIMIT, work_dir};

/// How to start it.
#[derive(Debug)]
pub(crate) struct Setup {
    listen: Vec<String>,
    wrapper: Vec<OsString>,
    arguments: Vec<String>,
    variables: Vec<(OsString, OsString)>,
    /// A copy of the program where any user may read it.
    copy: Option<tempfile::TempDir>,
}

impl Setup {
    /// Another address than a free port of 127.0.0.1; repeatable.
    pub(crate) fn listen(mut self, address: &str) -> Self {
        self.listen.push(address.to_owned());
        self
    }

    pub(crate) fn set(mut self, key: &str, value: &str) -> Self {
        self.arguments.extend(["--set".to_owned(), format!("{key}={value}")]);
        self
    }

    pub(crate) fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    pub(crate) fn variable(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Words before the program and its arguments, such as `unshare -pf`.
    pub(crate) fn wrapper(mut self, words: &[&str]) -> Self {
        self.wrapper.extend(words.iter().map(OsString::from));
        self
    }

    /// Runs a copy of the program that any user can reach.
    pub(crate) fn readable_program(mut self) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let directory = work_dir();
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(directory.path(), open).expect("permissions");
        std::fs::copy(env!("CARGO_BIN_EXE_exec-server"), directory.path().join("exec-server"))
            .expect("a copy");
        self.copy = Some(directory);
        self
    }

    pub(crate) fn command(&self, home: &std::path::Path) -> Command {
        let mut words = self.wrapper.clone();
        words.push(match &self.copy {
            Some(directory) => directory.path().join("exec-server").into(),
            None => env!("CARGO_BIN_EXE_exec-server").into(),
        });
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        let default = ["ws://127.0.0.1:0".to_owned()];
        for address in if self.listen.is_empty() { &default[..] } else { &self.listen } {
            command.args(["--listen", address]);
        }
        let log = std::fs::File::create(home.join("stderr")).expect("a log file");
        command
            .args(&self.arguments)
            .env_clear()
            .envs([("PATH", "/usr/local/bin:/usr/bin:/bin")])
            .env("HOME", home)
            .env("XDG_STATE_HOME", home.join("state"))
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true);
        command
    }

    pub(crate) async fn start(self) -> Daemon {
        let home = work_dir();
        let mut child = self.command(home.path()).spawn().expect("the daemon starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut urls = Vec::new();
        for _ in 0..self.listen.len().max(1) {
            let mut line = String::new();
            timeout(LIMIT, stdout.read_line(&mut line))
                .await
                .expect("it says where it listens")
                .expect("text");
            let log = || std::fs::read_to_string(home.path().join("stderr")).unwrap_or_default();
            assert!(line.ends_with('\n'), "the daemon ended: {}", log());
            urls.push(line.trim_end().to_owned());
        }
        let pid = child.id().expect("it runs").cast_signed();
        Daemon { child, _stdout: stdout, pid, urls, home, _copy: self.copy }
    }

    /// Starts it where that must fail; the exit status and what it said.
    pub(crate) async fn refused(self) -> (Option<i32>, String) {
        let home = work_dir();
        let mut child = self.command(home.path()).spawn().expect("the daemon starts");
        let status = timeout(LIMIT, child.wait()).await.expect("it ends").expect("a status");
        (status.code(), std::fs::read_to_string(home.path().join("stderr")).expect("a log"))
    }
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    _stdout: BufReader<ChildStdout>,
    pid: i32,
    urls: Vec<String>,
    home: tempfile::TempDir,
    _copy: Option<tempfile::TempDir>,
}

/// What the server said helps when a test fails.
impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the server's log: {}", self.log());
        }
    }
}

impl Daemon {
    /// What it wrote to its standard error.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("stderr")).unwrap_or_default()
    }

    pub(crate) fn setup() -> Setup {
        Setup {
            listen: Vec::new(),
            wrapper: Vec::new(),
            arguments: Vec::new(),
            variables: Vec::new(),
            copy: None,
        }
    }

    pub(crate) async fn start() -> Self {
        Self::setup().start().await
    }

    pub(crate) fn url(&self) -> &str {
        &self.urls[0]
    }

    pub(crate) fn urls(&self) -> &[String] {
        &self.urls
    }

    pub(crate) fn address(&self) -> &str {
        self.url().trim_start_matches("ws://")
    }

    /// Its process; with a wrapper that does not exec, the wrapper's.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.home.path().to_owned()
    }

    /// A new connection with a session of its own.
    pub(crate) async fn client(&self) -> Client {
        Client::ready(self.url()).await
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        kill(self.pid, signal);
    }

    pub(crate) async fn ended(&mut self, limit: Duration) -> ExitStatus {
        timeout(limit, self.child.wait()).await.expect("the daemon ends in time").expect("a status")
    }

    pub(crate) fn resident(&self) -> u64 {
        machine::resident(self.pid)
    }

    pub(crate) fn descriptors(&self) -> usize {
        machine::open_files(self.pid).len()
    }

    /// Waits until it has no more than so many descriptors open, but for two that it may have opened late for good.
    pub(crate) async fn descriptors_back(&self, before: usize) {
        let deadline = Instant::now() + LIMIT;
        loop {
            let open = machine::open_files(self.pid);
            if open.len() <= before + 2 {
                return;
            }
            assert!(Instant::now() < deadline, "{} descriptors, before {before}: {open:?}", open.len());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
