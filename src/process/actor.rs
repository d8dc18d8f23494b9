//! The task that owns one process: sole reader of its streams, sole writer of its log, the one that reaps it.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::ending::Cause;
use super::handle::{Process, now_ms};
use super::limits::Watch;
use super::log::Exit;
use super::source::Source;
use crate::protocol::limits::ProcessLimit;
use crate::protocol::process::ExitReason;
use crate::sandbox::Held;
use crate::spawn::{Child, ExitStatus};

/// How much may wait to be taken before a stream is read again. What a program writes meanwhile stays in its pipe and
/// comes as one chunk instead of many, while the connection is busy with the last one.
const PIPE_AHEAD: u64 = 0;
/// A terminal holds a page at most, so that its program would wait instead.
const TERMINAL_AHEAD: u64 = 32 << 10;
/// Between two looks whether a terminal that is hung up takes input again.
const HUNG_UP: Duration = Duration::from_millis(50);

/// See the module's description.
#[derive(Debug)]
pub struct Actor {
    process: Arc<Process>,
    exit: Option<AsyncFd<Arc<Child>>>,
    sources: [Source; 2],
    abandoned: bool,
    /// What the sandbox stands on; given back when nothing lives in it any more.
    held: Option<Held>,
    /// In a sandbox nothing outlives its program. Namespaces see to that themselves.
    ends_with_leader: bool,
    limits: Option<Watch>,
}

impl Actor {
    pub(super) fn new(
        process: Arc<Process>,
        exit: AsyncFd<Arc<Child>>,
        sources: Vec<Source>,
        limits: Watch,
    ) -> Self {
        let mut sources = sources.into_iter();
        let mut next = || sources.next().unwrap_or_else(Source::none);
        Self {
            process,
            exit: Some(exit),
            sources: [next(), next()],
            abandoned: false,
            held: None,
            ends_with_leader: false,
            limits: Some(limits).filter(|watch| !watch.is_idle()),
        }
    }

    pub(super) fn confined(self, held: Option<Held>, ends_with_leader: bool) -> Self {
        Self { held, ends_with_leader, ..self }
    }

    /// Serves the process until it is closed.
    pub async fn run(mut self) {
        let process = Arc::clone(&self.process);
        let log = process.log();
        let ahead = if process.tty() { TERMINAL_AHEAD } else { PIPE_AHEAD };
        let _limits = self
            .limits
            .take()
            .map(|limits| AbortOnDropHandle::new(tokio::spawn(obey(limits, Arc::clone(&process)))));
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
            self.check_output();
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
        process.retire().await;
        if log.wants_spill() {
            let log = Arc::clone(log);
            let _ = tokio::task::spawn_blocking(move || log.spill()).await;
        }
    }

    /// Ends the process when it has written too much.
    fn check_output(&self) {
        if self.process.log().is_over_limit() && self.process.cause_of_end().is_none() {
            self.process.breach(ProcessLimit::OutputBytes);
        }
    }

    /// Why the leader has ended. What the kernel did for want of memory is told from what this server did.
    fn why(&self, status: ExitStatus) -> (ExitReason, Option<ProcessLimit>) {
        match (self.process.cause_of_end(), status) {
            (Some(Cause::Limit(limit)), _) => (ExitReason::Limit, Some(limit)),
            (Some(Cause::Requested), _) => (ExitReason::Terminated, None),
            (None, ExitStatus::Signal(libc::SIGKILL)) if self.process.is_out_of_memory() => {
                (ExitReason::Limit, Some(ProcessLimit::MemoryBytes))
            }
            (None, ExitStatus::Signal(_)) => (ExitReason::Signaled, None),
            (None, ExitStatus::Code(_)) => (ExitReason::Exited, None),
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
        self.check_output();
        let (code, signal) = match status {
            ExitStatus::Code(code) => (code, None),
            ExitStatus::Signal(number) => (128 + number, Some(signal_name(number))),
        };
        let (reason, limit) = self.why(status);
        self.process.stdin().abandon();
        let at_ms = now_ms();
        log.exited(Exit { seq: 0, code, signal, reason, limit, sandbox_denied: false, at_ms });
        if self.ends_with_leader {
            self.process.end_the_rest();
        }
    }
}

/// Ends the process when it has used up a limit.
async fn obey(limits: Watch, process: Arc<Process>) {
    process.breach(limits.breached().await);
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
    // It fails only while the runtime ends.
    let Ok(mut ready) = endpoint.writable().await else { return std::future::pending().await };
    if process.stdin().flush().is_err() {
        let is_hung_up = ready.ready().is_write_closed();
        ready.clear_ready();
        // A terminal that no program has open takes nothing, and stays marked as ready: waiting for that would never end,
        // nor let anybody else run. A program may open it again.
        if is_hung_up {
            sleep(HUNG_UP).await;
        }
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
