//! The guard: a small helper process that outlives the server by a moment and ends what it started.
//!
//! A server that is killed with SIGKILL cannot clean up. The guard holds the reading end of a pipe whose other end
//! only the server has; at its end of file the server is gone, and the guard kills whatever is in the server's cgroups
//! or has its mark, and what belongs to the children on the server's roster. What else the server leaves to be tidied up is written
//! in a file that the guard holds for [`inheritance`]; only [`crate::helper`] knows what that means. It is in a session
//! of its own, so that a signal to the server's group does not reach it.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::cgroup::{self, Group};
use super::exec::{Child, Launch, Stdio, Tree, spawn};
use super::isolation::Isolation;
use super::mark::{MarkRange, ServerMark};
use super::roster;
use super::tree::{Scope, kill_all};
use super::watched::watched;

/// The hidden first argument by which the program becomes the guard.
pub const WORD: &str = "__exec-server-guard";

/// Pause before a guard that has ended at once is replaced.
const START_AGAIN: Duration = Duration::from_secs(1);
/// How long the guard goes on killing.
const LIMIT: Duration = Duration::from_secs(10);

static PID: AtomicI32 = AtomicI32::new(0);

/// Process id of the latest guard of this process, 0 before the first.
pub(super) fn pid() -> i32 {
    PID.load(Ordering::Relaxed)
}

/// A running guard. Dropping it makes the guard sweep and leave.
#[derive(Debug)]
pub struct Guard {
    /// Its end of file is the signal.
    _alive: OwnedFd,
    /// None if it cannot be watched. It guards all the same.
    child: Option<AsyncFd<Arc<Child>>>,
}

impl Guard {
    /// Starts the guard for a server's mark and the cgroup of its runs, with a file that it inherits. The executable must pass [`WORD`] on to
    /// [`main`].
    ///
    /// # Errors
    /// When marks cannot be used here, or the helper cannot be started.
    pub fn start(mark: ServerMark, runs: Option<&Group>, inheritance: File) -> io::Result<Self> {
        let range = match (mark.range(), runs) {
            (None, None) => return Err(io::Error::other("RLIMIT_RSS has a hard limit here")),
            (range, _) => range.unwrap_or(MarkRange::NONE),
        };
        let (theirs, alive) = pipe_with(PipeFlags::CLOEXEC)?;
        let roster = match roster::file() {
            Some(file) => file?,
            None => File::options().write(true).open("/dev/null")?,
        };
        let (first, last) = range.bounds();
        let words = ["exec-server: guard", WORD, &first.to_string(), &last.to_string()].map(Vec::from);
        let runs = runs.map(|runs| runs.dir().as_os_str().as_bytes().to_vec());
        let launch = Launch {
            candidates: vec![c"/proc/self/exe".to_owned()],
            argv: words.into_iter().chain(runs).filter_map(|word| CString::new(word).ok()).collect(),
            env: Vec::new(),
            cwd: c"/".to_owned(),
            stdio: Stdio::Separate { stdin: theirs, stdout: roster.into(), stderr: inheritance.into() },
            inherited: Vec::new(),
            isolation: Isolation::None,
            tree: Tree::none(),
        };
        let child = Arc::new(spawn(launch).map_err(|error| error.source)?);
        PID.store(child.pid(), Ordering::Relaxed);
        let child = watched(child, Interest::READABLE)
            .inspect_err(|error| tracing::warn!(%error, "the guard cannot be watched"));
        Ok(Self { _alive: alive, child: child.ok() })
    }

    /// Waits for the guard's own end, which should not come while the server lives. Cancel-safe.
    async fn ended(&self) {
        let Some(child) = &self.child else { return std::future::pending().await };
        while child.get_ref().try_reap().is_none() {
            if child.readable().await.is_err() {
                return;
            }
        }
    }
}

/// Keeps a guard running for as long as it is polled. Each gets the file that it inherits anew.
pub async fn keep(mark: ServerMark, runs: Option<Group>, inheritance: impl Fn() -> io::Result<File>) {
    loop {
        match inheritance().and_then(|file| Guard::start(mark, runs.as_ref(), file)) {
            Ok(guard) => {
                let started = Instant::now();
                guard.ended().await;
                tracing::warn!("the guard has ended; starting another");
                if started.elapsed() > START_AGAIN {
                    continue;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "no guard: processes may stay behind if this server is killed");
                if mark.range().is_none() && runs.is_none() {
                    return;
                }
            }
        }
        tokio::time::sleep(START_AGAIN).await;
    }
}

/// What the guard does: waits for the end of its input, then kills. For a process that is nothing else.
///
/// `arguments` are those after [`WORD`].
pub fn main(mut arguments: impl Iterator<Item = OsString>) {
    let mut number = || arguments.next()?.to_str()?.parse().ok();
    let (Some(first), Some(last)) = (number(), number()) else { return };
    let runs = arguments.next().map(PathBuf::from);
    ignore_signals();
    let mut sink = [0; 64];
    while !matches!(io::stdin().read(&mut sink), Ok(0)) {}
    let leaders = rustix::stdio::stdout()
        .try_clone_to_owned()
        .map_or_else(|_| Vec::new(), |roster| roster::read(&roster.into()));
    if let Some(runs) = &runs {
        cgroup::end_runs(runs);
    }
    let marks = Some(MarkRange::from_bounds(first, last));
    kill_all(&Scope { marks, leaders, leaders_are_fresh: true, ..Scope::default() }, LIMIT);
}

/// What the server left to the guard, once [`main`] has returned.
///
/// # Errors
/// When it left nothing.
pub fn inheritance() -> io::Result<File> {
    Ok(rustix::stdio::stderr().try_clone_to_owned()?.into())
}

/// A terminal's or a supervisor's signals are meant for the server; the guard leaves when the server has left.
#[expect(unsafe_code, reason = "no safe call ignores a signal")]
fn ignore_signals() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGPIPE] {
        // SAFETY: ignoring installs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}
