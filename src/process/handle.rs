//! The shared handle of a process: what anybody may ask of it.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use tokio::io::Interest;
use tokio::sync::Notify;

use super::actor::Actor;
use super::budget::OutputBudget;
use super::ending::{Ending, undo};
use super::env::Variables;
use super::limits::{Terms, Watch, is_out_of_memory};
use super::log::OutputLog;
use super::source::Source;
use super::stdin::{Endpoint, Stdin, WaitingBudget, WriteOutcome};
use crate::protocol::process::{
    ExecOutputStream, ProcessId, ProcessSignal, SignalTarget, TerminalSize, WriteStatus,
};
use crate::sandbox::launch::LaunchError;
use crate::sandbox::peer_check::Introduction;
use crate::sandbox::plan::{Failure, Stage};
use crate::sandbox::{self, Prepared};
use crate::spawn::isolation::Isolation;
use crate::spawn::terminal::{Terminal, WindowSize};
use crate::spawn::tree::{Stream, signal_group, stream_of, terminal_stream};
use crate::spawn::watched::watched;
use crate::spawn::{self, Child, Inherited, Launch, SpawnError, SpawnStage, Stdio, Tree};

/// What to run, decided in every detail.
#[derive(Debug, Clone)]
pub struct ProcessSpec {
    /// The client's name for it.
    pub id: ProcessId,
    /// Program and arguments; not empty.
    pub argv: Vec<String>,
    /// What the program sees as its own name.
    pub arg0: Option<String>,
    /// Working directory.
    pub cwd: PathBuf,
    /// The whole environment.
    pub env: Variables,
    /// On a terminal of this size, or on pipes.
    pub terminal: Option<TerminalSize>,
    /// Keep standard input open, without a terminal.
    pub pipe_stdin: bool,
    /// Descriptors besides the standard streams.
    pub inherited: Vec<Inherited>,
    /// To be told the first process.
    pub introduction: Option<Introduction>,
}

/// Why a process did not start. Nothing runs.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct StartFailure {
    /// The class of the failure.
    pub kind: StartFailureKind,
    message: String,
}

/// The class of a [`StartFailure`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartFailureKind {
    /// The program, its interpreter or the working directory does not exist.
    NotFound,
    /// Not executable, or not to be entered.
    PermissionDenied,
    /// What the sandbox is made of failed.
    SandboxUnavailable,
    /// The sandbox could not be built from what is on this machine now.
    SandboxPreparation,
    /// Anything else.
    Other,
}

/// Why a call on a process was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProcessError {
    /// The call needs a terminal.
    #[error("it has no terminal")]
    NoTerminal,
    /// The call does not work on a terminal.
    #[error("its input is a terminal: write \\u0004 to end it")]
    IsTerminal,
}

/// A process, running or ended. See [`crate::process`].
#[derive(Debug)]
pub struct Process {
    pid: i32,
    tty: bool,
    started_at_ms: u64,
    log: Arc<OutputLog>,
    stdin: Stdin,
    terminal: Mutex<Option<Arc<Terminal>>>,
    /// Until it is reaped: while it is here its process and group ids are its own.
    leader: Mutex<Option<Arc<Child>>>,
    terms: Terms,
    pub(super) tree: Tree,
    pub(super) streams: Vec<Stream>,
    pub(super) ending: Mutex<Ending>,
    /// Close as soon as the streams have nothing to read, even if somebody holds them.
    pub(super) abandon: Notify,
}

impl Process {
    /// Starts a process, in a sandbox or without one, and the task that owns it. Returns when the program has been
    /// executed.
    ///
    /// Not cancel-safe: if the future is dropped, the process may run with nobody to end it; run it in a task.
    ///
    /// # Errors
    /// [`StartFailure`]; nothing was started then.
    pub async fn start(
        spec: ProcessSpec,
        terms: Terms,
        budget: Arc<OutputBudget>,
        mut sandbox: Option<Prepared>,
    ) -> Result<(Arc<Self>, Actor), StartFailure> {
        let log = OutputLog::new(spec.id.clone(), budget, terms.limits.output_bytes);
        if sandbox.is_some() {
            log.watch_for_denial();
        }
        let held = sandbox.as_mut().and_then(Prepared::take_held);
        let ends_with_leader = sandbox.as_ref().is_some_and(Prepared::leaves_children);
        let asked = terms.clone();
        let launched = tokio::task::spawn_blocking(move || launch(&spec, &asked, sandbox))
            .await
            .map_err(|_| StartFailure::other("the start was interrupted"))??;
        let Launched { child, ends, tree } = launched;
        let child = Arc::new(child);
        let (of_run, tree_of_run) = (terms.clone(), tree.clone());
        match Self::assemble(log, Arc::clone(&child), ends, (terms, tree)) {
            Ok((process, actor)) => Ok((process, actor.confined(held, ends_with_leader))),
            Err(error) => {
                // Nobody would see its end.
                let _ = tokio::task::spawn_blocking(move || undo(&child, &of_run, &tree_of_run)).await;
                Err(StartFailure::other(&format!("cannot watch the process: {error}")))
            }
        }
    }

    fn assemble(
        log: Arc<OutputLog>,
        child: Arc<Child>,
        ends: Ends,
        (terms, tree): (Terms, Tree),
    ) -> io::Result<(Arc<Self>, Actor)> {
        let tty = matches!(ends, Ends::Terminal { .. });
        let exit = watched(Arc::clone(&child), Interest::READABLE)?;
        let limits = Watch::new(&terms.limits, tree.group.as_ref())?;
        let mut streams = Vec::new();
        let (stdin, terminal, sources) = match ends {
            Ends::Pipes { stdin, stdout, stderr } => {
                streams.extend(stream_of(&stdout));
                streams.extend(stream_of(&stderr));
                let watch = |fd| watched(Endpoint::Pipe(fd), Interest::WRITABLE).map(Arc::new);
                let stdin = stdin.map(watch).transpose()?;
                let sources = vec![
                    Source::pipe(ExecOutputStream::Stdout, stdout)?,
                    Source::pipe(ExecOutputStream::Stderr, stderr)?,
                ];
                (Stdin::new(stdin, log.memory()), None, sources)
            }
            Ends::Terminal { terminal, stream } => {
                streams.push(stream);
                let terminal = Arc::new(terminal);
                let endpoint = watched(
                    Endpoint::Terminal(Arc::clone(&terminal)),
                    Interest::READABLE | Interest::WRITABLE,
                )?;
                let endpoint = Arc::new(endpoint);
                (
                    Stdin::new(Some(Arc::clone(&endpoint)), log.memory()),
                    Some(terminal),
                    vec![Source::terminal(endpoint)],
                )
            }
        };
        let process = Arc::new(Self {
            pid: child.pid(),
            tty,
            started_at_ms: now_ms(),
            log,
            stdin,
            terminal: Mutex::new(terminal),
            leader: Mutex::new(Some(child)),
            terms,
            tree,
            streams,
            ending: Mutex::default(),
            abandon: Notify::new(),
        });
        let actor = Actor::new(Arc::clone(&process), exit, sources, limits);
        Ok((process, actor))
    }

    /// The client's name for it.
    pub fn id(&self) -> &ProcessId {
        self.log.id()
    }

    /// Process id of the leader.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// On a terminal.
    #[must_use]
    pub fn tty(&self) -> bool {
        self.tty
    }

    /// Unix milliseconds.
    #[must_use]
    pub fn started_at_ms(&self) -> u64 {
        self.started_at_ms
    }

    /// Its output and end.
    pub fn log(&self) -> &Arc<OutputLog> {
        &self.log
    }

    /// Whether input can be written.
    #[must_use]
    pub fn stdin_open(&self) -> bool {
        self.stdin.is_open()
    }

    /// Writes input; see [`WriteOutcome`].
    #[must_use]
    pub fn write(&self, id: &str, bytes: Vec<u8>, budget: &Arc<WaitingBudget>) -> WriteOutcome {
        self.stdin.write(id, bytes, budget)
    }

    /// Ends the input after everything accepted before.
    ///
    /// # Errors
    /// On a terminal, whose input ends with a control character.
    pub fn close_stdin(&self) -> Result<WriteStatus, ProcessError> {
        if self.tty {
            return Err(ProcessError::IsTerminal);
        }
        let closed_now = self.stdin.close_after_queue();
        Ok(if closed_now { WriteStatus::Accepted } else { WriteStatus::StdinClosed })
    }

    /// Sets the window size; without effect after the end.
    ///
    /// # Errors
    /// Without a terminal.
    pub fn resize(&self, size: TerminalSize) -> Result<(), ProcessError> {
        if !self.tty {
            return Err(ProcessError::NoTerminal);
        }
        if let Some(terminal) = self.terminal().as_ref() {
            // It fails only when the terminal is gone, which is an end like any other.
            let _ = terminal.resize(window(size));
        }
        Ok(())
    }

    /// Sends a signal. True if somebody got it.
    ///
    /// # Errors
    /// For the foreground group without a terminal.
    pub fn signal(&self, signal: ProcessSignal, target: Option<SignalTarget>) -> Result<bool, ProcessError> {
        let signal = native(signal);
        let target = target.unwrap_or(if self.tty { SignalTarget::Foreground } else { SignalTarget::Group });
        let foreground = match (target, self.terminal().as_ref()) {
            (SignalTarget::Foreground, _) if !self.tty => return Err(ProcessError::NoTerminal),
            (SignalTarget::Foreground, Some(terminal)) => terminal.foreground_group(),
            _ => None,
        };
        let leader = self.leader();
        let Some(child) = leader.as_ref() else { return Ok(false) };
        Ok(match target {
            SignalTarget::Leader => child.signal(signal),
            // A foreground job that has just ended leaves its group empty; the shell is meant then.
            _ => foreground.is_some_and(|group| signal_group(group, signal)) || child.signal_group(signal),
        })
    }

    /// Sends signals to the leader's group, while there is a leader.
    pub(super) fn signal_leader_group(&self, signals: &[Signal]) {
        if let Some(child) = self.leader().as_ref() {
            for signal in signals {
                let _ = child.signal_group(*signal);
            }
        }
    }

    /// Reaps the leader if it has ended. The actor alone.
    pub(super) fn try_reap(&self, child: &Child) -> Option<spawn::ExitStatus> {
        let mut leader = self.leader();
        let status = child.try_reap()?;
        *leader = None;
        Some(status)
    }

    /// Releases what only a living process needs.
    pub(super) fn release(&self) {
        self.stdin.abandon();
        *self.terminal() = None;
    }

    /// Whether the kernel has killed its processes because they used up their memory.
    pub(super) fn is_out_of_memory(&self) -> bool {
        self.terms.limits.memory_bytes.is_some() && self.tree.group.as_ref().is_some_and(is_out_of_memory)
    }

    /// Gives back its cgroup, once nothing is owed to anybody any more.
    pub(super) async fn retire(&self) {
        self.terms.retire_later(&self.tree).await;
    }

    pub(super) fn stdin(&self) -> &Stdin {
        &self.stdin
    }

    fn leader(&self) -> MutexGuard<'_, Option<Arc<Child>>> {
        self.leader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn terminal(&self) -> MutexGuard<'_, Option<Arc<Terminal>>> {
        self.terminal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Unix milliseconds.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn window(size: TerminalSize) -> WindowSize {
    WindowSize { rows: size.rows, cols: size.cols }
}

fn native(signal: ProcessSignal) -> Signal {
    match signal {
        ProcessSignal::Interrupt => Signal::INT,
        ProcessSignal::Hangup => Signal::HUP,
        ProcessSignal::Quit => Signal::QUIT,
        ProcessSignal::Kill => Signal::KILL,
        ProcessSignal::User1 => Signal::USR1,
        ProcessSignal::User2 => Signal::USR2,
        ProcessSignal::Terminate => Signal::TERM,
        ProcessSignal::Stop => Signal::STOP,
        ProcessSignal::Continue => Signal::CONT,
    }
}

struct Launched {
    child: Child,
    ends: Ends,
    tree: Tree,
}

/// The server's ends of the streams.
enum Ends {
    Pipes { stdin: Option<OwnedFd>, stdout: OwnedFd, stderr: OwnedFd },
    Terminal { terminal: Terminal, stream: Stream },
}

fn launch(spec: &ProcessSpec, terms: &Terms, sandbox: Option<Prepared>) -> Result<Launched, StartFailure> {
    let (stdio, ends) =
        open_streams(spec).map_err(|error| StartFailure::other(&format!("no streams: {error}")))?;
    let (child, tree) = execute(spec, stdio, terms, sandbox)?;
    Ok(Launched { child, ends, tree })
}

/// Executes the program on these streams, in a cgroup of its own where there are such. Blocks for the moment that it
/// takes.
pub(super) fn execute(
    spec: &ProcessSpec,
    stdio: Stdio,
    terms: &Terms,
    sandbox: Option<Prepared>,
) -> Result<(Child, Tree), StartFailure> {
    let has_init = sandbox.as_ref().is_some_and(Prepared::has_init);
    let no_group = |error| StartFailure::other(&format!("the process gets no cgroup: {error}"));
    let tree = terms.tree(has_init).map_err(no_group)?;
    let child = execute_in(spec, stdio, tree.clone(), sandbox).inspect_err(|_| terms.retire(&tree))?;
    Ok((child, tree))
}

fn execute_in(
    spec: &ProcessSpec,
    stdio: Stdio,
    tree: Tree,
    sandbox: Option<Prepared>,
) -> Result<Child, StartFailure> {
    let path = spec.env.get(b"PATH".as_slice()).map(Vec::as_slice);
    let program = &spec.argv[0];
    let candidates = spawn::lookup::candidates(program.as_bytes(), path);
    if candidates.is_empty() {
        return Err(StartFailure::other("`argv[0]` is empty: it must name a program"));
    }
    let shown = spec.arg0.as_deref().unwrap_or(program);
    let arguments = std::iter::once(shown).chain(spec.argv[1..].iter().map(String::as_str));
    let mark = tree.mark;
    let launch = Launch {
        candidates: strings(candidates, "argv[0]")?,
        argv: strings(arguments.map(str::as_bytes), "argv")?,
        env: strings(spec.env.iter().map(|(name, value)| [name.as_slice(), b"=", value].concat()), "env")?,
        cwd: strings([spec.cwd.as_os_str().as_bytes()], "cwd")?.remove(0),
        stdio,
        inherited: spec.inherited.clone(),
        isolation: Isolation::None,
        tree,
    };
    let child = match sandbox {
        None => spawn::spawn(launch).map_err(|error| StartFailure::from_spawn(&error, spec)),
        Some(prepared) => {
            sandbox::launch::start(launch, prepared).map_err(|error| StartFailure::from_launch(error, spec))
        }
    }?;
    if let Some(introduction) = &spec.introduction {
        introduction.led_by(&child, mark);
    }
    Ok(child)
}

fn strings<B: Into<Vec<u8>>>(
    texts: impl IntoIterator<Item = B>,
    member: &str,
) -> Result<Vec<CString>, StartFailure> {
    let texts = texts.into_iter().map(|text| CString::new(text));
    texts.collect::<Result<_, _>>().map_err(|_| StartFailure::other(&format!("`{member}` holds a NUL byte")))
}

fn open_streams(spec: &ProcessSpec) -> io::Result<(Stdio, Ends)> {
    if let Some(size) = spec.terminal {
        let (terminal, program_end) = Terminal::open(window(size))?;
        let stream = terminal_stream(&program_end)?;
        return Ok((Stdio::Terminal(program_end), Ends::Terminal { terminal, stream }));
    }
    let (stdin, ours) = if spec.pipe_stdin {
        let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        (theirs, Some(ours))
    } else {
        (std::fs::File::open("/dev/null")?.into(), None)
    };
    let (stdout, their_stdout) = output_pipe()?;
    let (stderr, their_stderr) = output_pipe()?;
    let stdio = Stdio::Separate { stdin, stdout: their_stdout, stderr: their_stderr };
    Ok((stdio, Ends::Pipes { stdin: ours, stdout, stderr }))
}

/// A pipe whose reading end alone does not block: the program's end must behave as any pipe does.
pub(super) fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((ours, theirs))
}

impl StartFailure {
    /// One that is neither the program's nor the sandbox's.
    #[must_use]
    pub fn other(message: &str) -> Self {
        Self { kind: StartFailureKind::Other, message: message.to_owned() }
    }

    fn from_launch(error: LaunchError, spec: &ProcessSpec) -> Self {
        let Failure { stage, errno, what } = match error {
            LaunchError::Spawn(error) => return Self::from_spawn(&error, spec),
            LaunchError::Failed(failure) => failure,
        };
        let source = io::Error::from_raw_os_error(errno);
        let sandbox = |kind, message| Self { kind, message };
        match stage {
            Stage::WorkingDirectory => {
                Self::from_spawn(&SpawnError { stage: SpawnStage::WorkingDirectory, source }, spec)
            }
            Stage::Terminal => Self::from_spawn(&SpawnError { stage: SpawnStage::Terminal, source }, spec),
            Stage::Exec => Self::from_spawn(&SpawnError { stage: SpawnStage::Exec, source }, spec),
            Stage::Layer => sandbox(
                StartFailureKind::SandboxPreparation,
                format!("the sandbox cannot cover {what}: {source}; the process was not started without it"),
            ),
            Stage::Plan | Stage::Facility => sandbox(
                StartFailureKind::SandboxUnavailable,
                format!(
                    "the sandbox cannot be made here ({what}: {source}); the process was not started without it"
                ),
            ),
        }
    }

    fn from_spawn(error: &SpawnError, spec: &ProcessSpec) -> Self {
        let source = &error.source;
        let message = match error.stage {
            SpawnStage::WorkingDirectory => format!("working directory `{}`: {source}", spec.cwd.display()),
            SpawnStage::Exec if source.raw_os_error() == Some(libc::E2BIG) => {
                format!(
                    "the arguments or the environment of `{}` are too long: {source}",
                    short(&spec.argv[0])
                )
            }
            SpawnStage::Exec => format!("cannot execute `{}`: {source}", short(&spec.argv[0])),
            SpawnStage::Clone => format!("no process can be made: {source}"),
            SpawnStage::Group => format!("the process cannot be put into its cgroup: {source}"),
            SpawnStage::Isolation => {
                format!("the sandbox cannot be made here ({source}); the process was not started without it")
            }
            SpawnStage::Terminal => format!("the terminal cannot be used: {source}"),
            SpawnStage::Descriptors => format!("descriptors cannot be arranged: {source}"),
        };
        let kind = match (error.stage, source.kind()) {
            (SpawnStage::Isolation, _) => StartFailureKind::SandboxUnavailable,
            (SpawnStage::WorkingDirectory | SpawnStage::Exec, io::ErrorKind::NotFound) => {
                StartFailureKind::NotFound
            }
            (SpawnStage::WorkingDirectory | SpawnStage::Exec, io::ErrorKind::PermissionDenied) => {
                StartFailureKind::PermissionDenied
            }
            _ => StartFailureKind::Other,
        };
        Self { kind, message }
    }
}

/// Enough of a name to know it by: messages must not grow with the input.
fn short(text: &str) -> String {
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
