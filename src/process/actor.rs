//! The task that owns one process: sole reader of its streams, sole writer of its log, the one that reaps it.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::handle::{Process, now_ms};
use super::log::OutputLog;
use super::stdin::Endpoint;
use crate::protocol::process::{ExecOutputStream, ExitReason};
use crate::sandbox::Held;
use crate::spawn::watched::watched;
use crate::spawn::{Child, ExitStatus};

/// One read takes at most this much.
const READ_BYTES: usize = 64 << 10;
/// What is read of one stream before the others get their turn.
const TURN_BYTES: usize = 128 << 10;
/// How much may wait to be taken before a stream is read again. What a program writes meanwhile stays in its pipe and
/// comes as one chunk instead of many, while the connection is busy with the last one.
const PIPE_AHEAD: u64 = 0;
/// A terminal holds a page at most, so that its program would wait instead.
const TERMINAL_AHEAD: u64 = 32 << 10;
/// A stream that gives this much at once is a busy one.
const BUSY_BYTES: usize = 512;
/// A terminal that has more gives at least this much to one read.
const TERMINAL_READ: usize = 4095;

thread_local! {
    /// Chunks are copied out of it at their size, so a process costs no buffer while it is quiet.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// A stream of output.
#[derive(Debug)]
pub(super) struct Source {
    stream: ExecOutputStream,
    end: Option<End>,
}

#[derive(Debug)]
enum End {
    Pipe(AsyncFd<OwnedFd>),
    Terminal(Arc<AsyncFd<Endpoint>>),
}

/// What came of reading a stream.
enum Progress {
    /// There may be more at once.
    More,
    /// Nothing more for now, after this much.
    Drained { taken: usize },
    /// Nothing more ever.
    Ended,
}

impl Source {
    pub(super) fn pipe(stream: ExecOutputStream, fd: OwnedFd) -> io::Result<Self> {
        Ok(Self { stream, end: Some(End::Pipe(watched(fd, Interest::READABLE)?)) })
    }

    pub(super) fn terminal(endpoint: Arc<AsyncFd<Endpoint>>) -> Self {
        Self { stream: ExecOutputStream::Pty, end: Some(End::Terminal(endpoint)) }
    }

    fn is_open(&self) -> bool {
        self.end.is_some()
    }

    /// Waits until a read makes sense, then reads a turn's worth into the log. Cancel-safe: it waits for readiness
    /// only, and between a read and the log there is no await.
    async fn read_turn(&mut self, log: &Arc<OutputLog>) {
        let turn = match &self.end {
            None => std::future::pending().await,
            Some(End::Pipe(fd)) => turn(fd, self.stream, log).await,
            Some(End::Terminal(fd)) => turn(fd, self.stream, log).await,
        };
        match turn {
            Ok(Progress::Ended) | Err(_) => self.end = None,
            Ok(Progress::Drained { .. } | Progress::More) => {}
        }
    }

    /// Reads what is there, without waiting, as far as the log has room. With `abandon` an empty stream counts as
    /// ended.
    fn drain(&mut self, log: &Arc<OutputLog>, abandon: bool) {
        let progress = match &self.end {
            None => return,
            Some(End::Pipe(fd)) => read_into(log, self.stream, fd.get_ref()),
            Some(End::Terminal(fd)) => read_into(log, self.stream, fd.get_ref()),
        };
        if matches!(progress, Progress::Ended) || (abandon && matches!(progress, Progress::Drained { .. })) {
            self.end = None;
        }
    }
}

/// Waits for readiness, then reads a turn's worth. A stream that gave much stays marked as ready: when its output has
/// been taken there is probably more, and looking costs less than being woken.
async fn turn<T: AsRawFd + AsFd>(
    fd: &AsyncFd<T>,
    stream: ExecOutputStream,
    log: &Arc<OutputLog>,
) -> io::Result<Progress> {
    let mut ready = fd.readable().await?;
    let progress = read_into(log, stream, fd.get_ref());
    if matches!(progress, Progress::Drained { taken } if taken < BUSY_BYTES) {
        ready.clear_ready();
    }
    Ok(progress)
}

/// Reads until the descriptor has nothing, the log has no room, or the turn is over.
fn read_into(log: &Arc<OutputLog>, stream: ExecOutputStream, fd: impl AsFd) -> Progress {
    let mut taken = 0;
    let progress = SCRATCH.with_borrow_mut(|buffer| {
        let mut room = log.window();
        while taken < TURN_BYTES {
            let wanted = usize::try_from(room).unwrap_or(usize::MAX).min(buffer.len());
            if wanted == 0 {
                return Progress::More;
            }
            match rustix::io::read(fd.as_fd(), &mut buffer[..wanted]) {
                Ok(0) => return Progress::Ended,
                Ok(count) => {
                    room = log.append(stream, &buffer[..count]);
                    taken += count;
                    // A short read has emptied a pipe; new data makes it ready anew. A terminal gives a page at most.
                    if count < wanted && count < TERMINAL_READ {
                        return Progress::Drained { taken };
                    }
                }
                Err(Errno::AGAIN) => return Progress::Drained { taken },
                Err(Errno::INTR) => {}
                // A terminal reports the end of its last program as an I/O error.
                Err(_) => return Progress::Ended,
            }
        }
        Progress::More
    });
    if taken > 0 {
        log.announce();
    }
    progress
}

/// See the module's description.
#[derive(Debug)]
pub struct Actor {
    process: Arc<Process>,
    exit: Option<AsyncFd<Arc<Child>>>,
    sources: [Source; 2],
    abandoned: bool,
    /// What the sandbox stands on; given back when nothing lives in it any more.
    held: Option<Held>,
}

impl Actor {
    pub(super) fn new(process: Arc<Process>, exit: AsyncFd<Arc<Child>>, sources: Vec<Source>) -> Self {
        let mut sources = sources.into_iter();
        let mut next = || sources.next().unwrap_or(Source { stream: ExecOutputStream::Stderr, end: None });
        Self { process, exit: Some(exit), sources: [next(), next()], abandoned: false, held: None }
    }

    pub(super) fn holding(self, held: Option<Held>) -> Self {
        Self { held, ..self }
    }

    /// Serves the process until it is closed.
    pub async fn run(mut self) {
        let process = Arc::clone(&self.process);
        let log = process.log();
        let ahead = if process.tty() { TERMINAL_AHEAD } else { PIPE_AHEAD };
        while self.exit.is_some() || self.sources.iter().any(Source::is_open) {
            if log.wants_spill() {
                let log = Arc::clone(log);
                let _ = tokio::task::spawn_blocking(move || log.spill()).await;
            }
            if self.abandoned && self.exit.is_none() {
                for source in &mut self.sources {
                    source.drain(log, true);
                }
                if !self.sources.iter().any(Source::is_open) {
                    break;
                }
            }
            let room = log.is_taken(ahead);
            let [first, second] = &mut self.sources;
            tokio::select! {
                () = ended(self.exit.as_ref()) => self.reap(),
                () = first.read_turn(log), if room && first.is_open() => {}
                () = second.read_turn(log), if room && second.is_open() => {}
                () = log.room.notified(), if !room => {}
                () = feed_stdin(&process) => {}
                () = process.abandon.notified() => self.abandoned = true,
            }
        }
        if let Some(held) = self.held.take() {
            let _ = tokio::task::spawn_blocking(move || held.release()).await;
        }
        log.close();
        process.release();
        if log.wants_spill() {
            let log = Arc::clone(log);
            let _ = tokio::task::spawn_blocking(move || log.spill()).await;
        }
    }

    /// The leader has ended: what it wrote comes first, then its exit.
    fn reap(&mut self) {
        let Some(status) = self.exit.as_ref().and_then(|exit| self.process.try_reap(exit.get_ref())) else {
            return;
        };
        self.exit = None;
        let log = self.process.log();
        for source in &mut self.sources {
            source.drain(log, false);
        }
        let (code, signal) = match status {
            ExitStatus::Code(code) => (code, None),
            ExitStatus::Signal(number) => (128 + number, Some(signal_name(number))),
        };
        let reason = match signal {
            _ if self.process.end_requested() => ExitReason::Terminated,
            Some(_) => ExitReason::Signaled,
            None => ExitReason::Exited,
        };
        self.process.stdin().abandon();
        log.exited(code, signal, reason, now_ms());
    }
}

async fn ended(exit: Option<&AsyncFd<Arc<Child>>>) {
    match exit {
        // The descriptor stays ready for good once the child has ended, so readiness need not be cleared.
        Some(exit) => drop(exit.readable().await),
        None => std::future::pending().await,
    }
}

/// Writes queued input when the descriptor takes it; waits while nothing is queued. Cancel-safe.
async fn feed_stdin(process: &Process) {
    let Some(endpoint) = process.stdin().pending() else {
        return process.stdin().queued.notified().await;
    };
    if let Ok(mut ready) = endpoint.writable().await
        && process.stdin().flush().is_err()
    {
        ready.clear_ready();
    }
}

fn signal_name(number: i32) -> &'static str {
    const NAMES: [&str; 31] = [
        "SIGHUP",
        "SIGINT",
        "SIGQUIT",
        "SIGILL",
        "SIGTRAP",
        "SIGABRT",
        "SIGBUS",
        "SIGFPE",
        "SIGKILL",
        "SIGUSR1",
        "SIGSEGV",
        "SIGUSR2",
        "SIGPIPE",
        "SIGALRM",
        "SIGTERM",
        "SIGSTKFLT",
        "SIGCHLD",
        "SIGCONT",
        "SIGSTOP",
        "SIGTSTP",
        "SIGTTIN",
        "SIGTTOU",
        "SIGURG",
        "SIGXCPU",
        "SIGXFSZ",
        "SIGVTALRM",
        "SIGPROF",
        "SIGWINCH",
        "SIGIO",
        "SIGPWR",
        "SIGSYS",
    ];
    let index = usize::try_from(number - 1).ok();
    index.and_then(|index| NAMES.get(index)).copied().unwrap_or("SIGRT")
}
