//! A server that is a program of ours: started here, spoken to by lines on its standard input and output.
//!
//! Its session ends with it. When the connection is given up, the program is asked to end, and made to after two
//! seconds, with everything in its group; also when this process ends its runtime first. Its last line on standard error
//! is in the reason of its end.

mod stderr;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, MaybeDone, maybe_done};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use tokio::io::Interest;
use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio::time::timeout;

use self::stderr::Stderr;
use crate::backend::{ExecServerError, Result};
use crate::rpc::lines::Lines;
use crate::rpc::transport::{CloseCode, EndReason};
use crate::rpc::{Received, Transport};
use crate::spawn::isolation::Isolation;
use crate::spawn::watched::watched;
use crate::spawn::{Child, Launch, Stdio, Tree, lookup, spawn};

/// Time between asking a program to end and making it.
const GRACE: Duration = Duration::from_secs(2);

/// A program that serves on its standard input and output, such as `exec-server --listen stdio` in a container.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProgramCommand {
    /// A path, or a name that is looked for in PATH.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables on top of this process's own.
    pub env: BTreeMap<String, String>,
    /// Its working directory; this process's own if none.
    pub cwd: Option<PathBuf>,
}

/// The program alone: arguments and variables may be secrets.
impl fmt::Debug for ProgramCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgramCommand").field("program", &self.program).finish_non_exhaustive()
    }
}

impl fmt::Display for ProgramCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the program `{}`", self.program)
    }
}

impl ProgramCommand {
    /// Starts it. Needs a tokio runtime. Cancel-safe: a program that nobody waits for is ended.
    ///
    /// # Errors
    /// [`ExecServerError::Connect`] when it cannot be executed.
    pub(super) async fn start(&self) -> Result<Box<dyn Transport>> {
        let (command, runtime) = (self.clone(), Handle::current());
        let started = match tokio::task::spawn_blocking(move || Started::new(&command, runtime)).await {
            Ok(started) => started,
            Err(error) => Err(io::Error::other(error)),
        };
        let transport = started.and_then(|started| ProgramTransport::new(started, self.program.clone()));
        transport.map(|transport| Box::new(transport) as Box<dyn Transport>).map_err(|error| {
            ExecServerError::Connect { url: self.to_string(), reason: error.to_string(), status: None }
        })
    }

    fn launch(&self, stdio: Stdio) -> io::Result<Launch> {
        let env = self.environment();
        let path = env.iter().find_map(|variable| variable.strip_prefix(b"PATH="));
        let cwd = match &self.cwd {
            Some(directory) => directory.clone(),
            None => std::env::current_dir()?,
        };
        let arguments = std::iter::once(&self.program).chain(&self.args);
        Ok(Launch {
            candidates: strings(lookup::candidates(self.program.as_bytes(), path))?,
            argv: strings(arguments.map(|argument| argument.as_bytes().to_vec()))?,
            cwd: CString::new(cwd.as_os_str().as_bytes())?,
            env: strings(env)?,
            stdio,
            inherited: Vec::new(),
            isolation: Isolation::None,
            tree: Tree::none(),
        })
    }

    /// `NAME=value`, this process's own without those that are replaced.
    fn environment(&self) -> Vec<Vec<u8>> {
        let own = std::env::vars_os().map(|(name, value)| (name.into_vec(), value.into_vec()));
        let added =
            self.env.iter().map(|(name, value)| (name.clone().into_bytes(), value.clone().into_bytes()));
        let all: BTreeMap<_, _> = own.chain(added).collect();
        all.into_iter().map(|(name, value)| [name, b"=".to_vec(), value].concat()).collect()
    }
}

fn strings(texts: impl IntoIterator<Item = Vec<u8>>) -> io::Result<Vec<CString>> {
    Ok(texts.into_iter().map(CString::new).collect::<Result<_, _>>()?)
}

/// The program and this side's ends of its streams. Dropping it ends the program.
struct Started {
    running: Running,
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

impl Started {
    /// Blocks for the moment that an exec takes.
    fn new(command: &ProgramCommand, runtime: Handle) -> io::Result<Self> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC);
        let ((their_stdin, stdin), (stdout, their_stdout), (stderr, their_stderr)) =
            (pipe()?, pipe()?, pipe()?);
        let stdio = Stdio::Separate { stdin: their_stdin, stdout: their_stdout, stderr: their_stderr };
        let child = spawn(command.launch(stdio)?).map_err(|error| error.source)?;
        Ok(Self { running: Running { child: Arc::new(child), runtime, stderr: None }, stdin, stdout, stderr })
    }
}

/// The program as long as its connection is held.
struct Running {
    child: Arc<Child>,
    runtime: Handle,
    /// While it is read.
    stderr: Option<Stderr>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.signal_group(Signal::TERM);
        let (last, stderr) = (Last(Arc::clone(&self.child)), self.stderr.take());
        self.runtime.spawn(async move {
            if let Ok(ended) = watched(Arc::clone(&last.0), Interest::READABLE) {
                let _ = timeout(GRACE, ended.readable()).await;
            }
            let _ = tokio::task::spawn_blocking(move || drop(last)).await;
            if let Some(stderr) = stderr {
                stderr.last_words().await;
            }
        });
    }
}

/// Kills what is left of the group and reaps the leader when it is dropped, be it with a runtime that ends.
struct Last(Arc<Child>);

impl Drop for Last {
    fn drop(&mut self) {
        self.0.kill_and_reap();
    }
}

/// Lines to and from the program, until it ends.
struct ProgramTransport {
    lines: Lines<pipe::Receiver, pipe::Sender>,
    ended: Pin<Box<MaybeDone<BoxFuture<'static, ()>>>>,
    /// For the reason, once it has ended.
    last_words: Pin<Box<MaybeDone<BoxFuture<'static, String>>>>,
    /// Behind the streams: what the program is asked to end by first is the end of its input.
    _running: Running,
}

impl ProgramTransport {
    fn new(started: Started, program: String) -> io::Result<Self> {
        let Started { mut running, stdin, stdout, stderr } = started;
        let lines = Lines::new(pipe::Receiver::from_owned_fd(stdout)?, pipe::Sender::from_owned_fd(stdin)?);
        let child = watched(Arc::clone(&running.child), Interest::READABLE)?;
        let ended = async move {
            // It fails only while the runtime ends.
            let _ = child.readable().await;
        };
        let stderr = Stderr::new(stderr, program)?;
        let last_words = Box::pin(maybe_done(stderr.last_words().boxed()));
        running.stderr = Some(stderr);
        Ok(Self { lines, ended: Box::pin(maybe_done(ended.boxed())), last_words, _running: running })
    }

    /// Whether nothing of what the program wrote is left in the pipe, which a descendant may hold open. A read that is
    /// pending does not say so: the runtime may have put it off, or not have heard of the bytes yet.
    fn has_read_everything(&self) -> bool {
        rustix::io::ioctl_fionread(self.lines.reader()).is_ok_and(|bytes| bytes == 0)
    }

    /// The end, for which there are a few last words on standard error. May be polled again.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        ready!(self.last_words.as_mut().poll(cx));
        let words = match self.last_words.as_mut().output_mut() {
            Some(line) if !line.is_empty() => format!("the program has ended: {line}"),
            _ => "the program has ended".to_owned(),
        };
        Poll::Ready(io::Error::new(io::ErrorKind::BrokenPipe, words))
    }

    /// Who does not read its input any more has ended, or is about to.
    fn poll_written(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        match written {
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.poll_end(cx).map(Err)
            }
            other => other,
        }
    }
}

impl Transport for ProgramTransport {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Received> {
        // Looked at before the lines: what it wrote before its end is read first.
        let ended = self.ended.as_mut().poll(cx).is_ready();
        match self.lines.poll_receive(cx) {
            Poll::Ready(Received::End(EndReason::Closed)) => {}
            Poll::Pending if ended && self.has_read_everything() => {}
            received => return received,
        }
        self.poll_end(cx).map(|error| Received::End(EndReason::Io(error)))
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = self.lines.poll_ready(cx);
        self.poll_written(cx, written)
    }

    fn send(&mut self, text: String) -> io::Result<()> {
        self.lines.send(text)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = self.lines.poll_flush(cx);
        self.poll_written(cx, written)
    }

    fn ping(&mut self) -> io::Result<()> {
        self.lines.ping()
    }

    fn has_heartbeat(&self) -> bool {
        self.lines.has_heartbeat()
    }

    fn close(&mut self, code: CloseCode, reason: &str) -> io::Result<()> {
        self.lines.close(code, reason)
    }
}
