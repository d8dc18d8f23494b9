//! Programs in sandboxes of this process.

use std::ffi::CString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use exec_server::protocol::sandbox::{SandboxBackend, SandboxGap};
use exec_server::sandbox::entrance::Entrance;
use exec_server::sandbox::{
    PrivateNetwork, SandboxError, SandboxSettings, Sandboxes, Wanted, WantedNetwork, launch,
};
use exec_server::spawn::isolation::Isolation;
use exec_server::spawn::mark::RunMark;
use exec_server::spawn::{Child, ExitStatus, Launch, Stdio, spawn};
use libtest_mimic::Trial;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use serde_json::{Value, json};
use tokio::sync::oneshot::Receiver;

/// A test that runs in a runtime of its own.
pub(crate) fn test<F: Future<Output = ()>>(name: &str, test: impl FnOnce() -> F + Send + 'static) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(test());
        Ok(())
    })
}

/// Contexts that say different things about files and the network.
pub(crate) fn contexts() -> Vec<Value> {
    let entries = json!([{"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"}]);
    let restricted = json!({"type": "restricted", "entries": entries});
    let free = json!({"type": "unrestricted"});
    let permissions = [
        json!({"type": "managed", "file_system": restricted, "network": "enabled"}),
        json!({"type": "managed", "file_system": restricted, "network": "restricted"}),
        json!({"type": "managed", "file_system": free, "network": "enabled"}),
        json!({"type": "managed", "file_system": free, "network": "restricted"}),
        json!({"type": "external", "network": "restricted"}),
        json!({"type": "disabled"}),
    ];
    permissions
        .map(|permissions| json!({"permissions": permissions, "windowsSandboxLevel": "disabled"}))
        .to_vec()
}

/// Everything may be read, and there is no network.
pub(crate) fn read_only() -> Value {
    contexts().swap_remove(1)
}

/// Files are free, and the network is.
pub(crate) fn disabled() -> Value {
    contexts().pop().unwrap()
}

pub(crate) fn sandboxes() -> Arc<Sandboxes> {
    Sandboxes::new(SandboxSettings::default())
}

/// A server that has Landlock alone, and accepts these gaps.
pub(crate) fn landlocked(accepted: &[SandboxGap]) -> Arc<Sandboxes> {
    Sandboxes::new(SandboxSettings {
        backend: Some(SandboxBackend::Landlock),
        accepted_gaps: accepted.to_vec(),
        ..SandboxSettings::default()
    })
}

pub(crate) fn private(ports: &[u16]) -> WantedNetwork {
    WantedNetwork::Private(PrivateNetwork { ports: ports.to_vec(), transparent: false })
}

/// A program that runs; killed when dropped.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) entrance: Option<Receiver<Entrance>>,
    pub(crate) gaps: Vec<SandboxGap>,
    output: BufReader<File>,
}

impl Running {
    /// The next line that it prints; empty at the end.
    pub(crate) async fn line(&mut self) -> String {
        tokio::task::block_in_place(|| {
            let mut line = String::new();
            self.output.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        })
    }

    /// All that it prints until its end.
    pub(crate) async fn rest(&mut self) -> String {
        tokio::task::block_in_place(|| {
            let mut text = String::new();
            self.output.read_to_string(&mut text).unwrap();
            text
        })
    }

    /// How it has ended, once it has.
    pub(crate) async fn ended(&self) -> ExitStatus {
        loop {
            if let Some(status) = self.child.try_reap() {
                return status;
            }
            tokio::task::block_in_place(|| {
                let mut ended = [PollFd::from_borrowed_fd(self.child.pidfd(), PollFlags::IN)];
                poll(&mut ended, None).unwrap();
            });
        }
    }

    pub(crate) async fn entrance(&mut self) -> Entrance {
        self.entrance.take().expect("a promise").await.expect("an entrance")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill_and_reap();
    }
}

/// Prepares a sandbox.
pub(crate) async fn prepare(
    sandboxes: &Arc<Sandboxes>,
    context: &Value,
    network: WantedNetwork,
) -> Result<exec_server::sandbox::Prepared, SandboxError> {
    let wanted = Wanted {
        context: serde_json::from_value(context.clone()).unwrap(),
        cwd: PathBuf::from("/"),
        temporary_directory: None,
        network,
    };
    tokio::task::block_in_place(|| sandboxes.prepare(&wanted))
}

/// Runs a Python script in a sandbox.
pub(crate) async fn run(
    sandboxes: &Arc<Sandboxes>,
    context: &Value,
    network: WantedNetwork,
    script: &str,
) -> Running {
    start(sandboxes, context, network, script, RunMark::none()).await
}

/// The same, with a mark.
pub(crate) async fn start(
    sandboxes: &Arc<Sandboxes>,
    context: &Value,
    network: WantedNetwork,
    script: &str,
    mark: RunMark,
) -> Running {
    let mut prepared = prepare(sandboxes, context, network).await.unwrap();
    let (entrance, gaps) = (prepared.take_entrance(), prepared.gaps.clone());
    let (output, theirs) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let launch = Launch { mark, ..launching(&["/usr/bin/python3", "-uc", script], theirs) };
    let child = tokio::task::block_in_place(|| launch::start(launch, prepared)).unwrap();
    Running { child, entrance, gaps, output: BufReader::new(output.into()) }
}

/// Runs a Python script without a sandbox.
pub(crate) fn unconfined(script: &str, mark: RunMark) -> Running {
    let (output, theirs) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let launch = Launch { mark, ..launching(&["/usr/bin/python3", "-uc", script], theirs) };
    let child = spawn(launch).unwrap();
    Running { child, entrance: None, gaps: Vec::new(), output: BufReader::new(output.into()) }
}

/// A command line whose outputs are one.
pub(crate) fn launching(argv: &[&str], output: OwnedFd) -> Launch {
    let word = |text: &str| CString::new(text).unwrap();
    Launch {
        candidates: vec![word(argv[0])],
        argv: argv.iter().map(|argument| word(argument)).collect(),
        env: vec![word("PATH=/usr/bin:/bin")],
        cwd: word("/"),
        stdio: Stdio::Separate {
            stdin: File::open("/dev/null").unwrap().into(),
            stdout: output.try_clone().unwrap(),
            stderr: output,
        },
        inherited: Vec::new(),
        isolation: Isolation::None,
        mark: RunMark::none(),
    }
}

/// Functions for scripts: `call` makes a system call and says its error, `attempt` says that of an expression.
pub(crate) const PRELUDE: &str = r#"
import ctypes, errno, os, socket, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    done = libc.syscall(*arguments)
    return errno.errorcode[ctypes.get_errno()] if done < 0 else "OK"
def attempt(act):
    try: return act() or "OK"
    except OSError as error: return errno.errorcode.get(error.errno, str(error))
def reach(host, port, kind=socket.SOCK_STREAM):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    peer = socket.socket(family, kind); peer.settimeout(20)
    return attempt(lambda: peer.connect((host, port)))
"#;
