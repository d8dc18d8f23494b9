//! `process/*`: start, read, write, control, list, and what the server tells of a process.

mod construct;

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ByteChunk;
use super::failure::{StartErrorData, WriteErrorData};
use super::limits::{ProcessLimit, ProcessLimits};
use super::method::{Failures, methods, notifications};
use super::network::{ManagedNetwork, NetworkProxyLaunch};
use super::sandbox::{SandboxBackend, SandboxContext, SandboxGap};
use crate::path_uri::PathUri;

/// The client's name for a process, unique within its session. Any text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ProcessId(String);

impl ProcessId {
    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ProcessId {
    /// The id for messages and logs: cut, in quotes, with everything escaped that a terminal would act on.
    #[must_use]
    pub fn shown(&self) -> String {
        const CHARS: usize = 200;
        match self.0.char_indices().nth(CHARS) {
            Some((end, _)) => format!("{:?}…", &self.0[..end]),
            None => format!("{:?}", self.0),
        }
    }
}

impl From<String> for ProcessId {
    fn from(id: String) -> Self {
        Self(id)
    }
}

impl From<&str> for ProcessId {
    fn from(id: &str) -> Self {
        Self(id.to_owned())
    }
}

impl Borrow<str> for ProcessId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

methods! {
    from Client;
    /// Starts a process.
    Start = "process/start": StartParams => StartResult, Failures::with::<StartErrorData>(&[]);
    /// Reads retained output, or waits for news.
    Read = "process/read": ReadParams => AccountedRead;
    /// Writes to stdin or to the terminal.
    Write = "process/write": WriteParams => WriteResponse, Failures::with::<WriteErrorData>(&[]);
    /// Ends the input after everything written before.
    CloseStdin = "process/closeStdin": ProcessParams => CloseStdinResponse;
    /// Sets the window size of a terminal.
    Resize = "process/resize": ResizeParams => Empty;
    /// Sends a signal.
    Signal = "process/signal": SignalParams => SignalResponse;
    /// Ends the whole tree of a process.
    Terminate = "process/terminate": TerminateParams => TerminateResponse;
    /// Lists the processes of the session.
    List = "process/list": Empty => ListResponse;
}

notifications! {
    from Server;
    /// A chunk of output.
    Output = "process/output": OutputParams;
    /// The process itself has ended.
    Exited = "process/exited": ExitedParams;
    /// It has ended and its output is complete.
    Closed = "process/closed": ClosedParams;
}

/// Params or a result without members. Unknown members are ignored; null is accepted as well, a list is not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(extend("type" = ["object", "null"]))]
pub struct Empty {}

impl<'de> Deserialize<'de> for Empty {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<HashMap<String, serde::de::IgnoredAny>>::deserialize(deserializer).map(|_| Self {})
    }
}

/// What runs, where, and with which surroundings.
///
/// The public fields are those of the reference client; what this server adds is in [`StartOptions`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecParams {
    /// Telemetry only; changes nothing.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "ExecMetadata::is_empty")]
    #[schemars(with = "Option<ExecMetadata>")]
    pub metadata: ExecMetadata,
    /// The client's name for the process.
    pub process_id: ProcessId,
    /// Program and arguments; `argv[0]` is looked up on the child's PATH.
    pub argv: Vec<String>,
    /// Working directory.
    pub cwd: PathUri,
    /// Which of the server's variables the child inherits; without it none.
    #[serde(default)]
    pub env_policy: Option<ExecEnvPolicy>,
    /// Run a shell command from the remembered state of its start-up files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell_snapshot: Option<ShellSnapshotRequest>,
    /// Variables laid over the policy's result.
    pub env: HashMap<String, String>,
    /// Run in a new pseudo-terminal.
    pub tty: bool,
    /// Keep stdin open for `process/write`. A terminal is always writable.
    #[serde(default)]
    pub pipe_stdin: bool,
    /// What the child sees as `argv[0]`.
    #[serde(default)]
    pub arg0: Option<String>,
    /// What the process may touch; none is no limit.
    #[serde(default)]
    pub sandbox: Option<SandboxContext>,
    /// Refuse to start unless the network is reachable through the managed proxy only.
    #[serde(default)]
    pub enforce_managed_network: bool,
    /// Facts about a proxy that somebody else runs on this machine.
    #[serde(default)]
    pub managed_network: Option<ManagedNetwork>,
    /// A proxy to start beside the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_proxy: Option<NetworkProxyLaunch>,
}

fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// What `process/start` takes beyond [`ExecParams`].
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartOptions {
    /// Window size of the terminal at the start; 24 x 80 without it. Needs `tty`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<TerminalSize>,
    /// Limits of the tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<ProcessLimits>,
}

/// Params of `process/start`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StartParams {
    /// What runs.
    #[serde(flatten)]
    pub exec: ExecParams,
    /// What this server adds.
    #[serde(flatten)]
    pub options: StartOptions,
}

/// Who asked for a process, for telemetry.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecMetadata {
    /// The conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<uuid::Uuid>,
    /// The call within it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

impl ExecMetadata {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Which of the server's variables a child inherits, and how they are changed. Patterns match whole names without
/// case; `*` is any run, `?` one character.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecEnvPolicy {
    /// The starting set.
    pub inherit: EnvInherit,
    /// Keep names that look secret (`*KEY*`, `*SECRET*`, `*TOKEN*`).
    pub ignore_default_excludes: bool,
    /// Names to drop.
    pub exclude: Vec<String>,
    /// Variables to set, after the drops.
    pub r#set: HashMap<String, String>,
    /// If not empty, the only names to keep.
    pub include_only: Vec<String>,
}

/// The starting set of [`ExecEnvPolicy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EnvInherit {
    /// Nothing.
    None,
    /// PATH, HOME, locale and the like.
    Core,
    /// Everything.
    All,
}

/// Asks for the remembered state of a shell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShellSnapshotRequest {
    /// The client's name for the owner of the state; 1 to 256 bytes.
    pub scope_id: String,
    /// The shell, equal to `argv[0]`.
    pub shell: ShellInfo,
}

/// A shell: its kind and its path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShellInfo {
    /// `bash`, `zsh` or `sh`.
    pub name: String,
    /// The program.
    pub path: String,
}

/// Window size of a terminal, each side 1 to 65535.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

impl Default for TerminalSize {
    fn default() -> Self {
        Self { rows: 24, cols: 80 }
    }
}

/// What the server says confines a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SandboxType {
    /// No sandbox was asked for.
    None,
    /// Any sandbox on Linux.
    LinuxSeccomp,
    /// macOS.
    MacosSeatbelt,
    /// Windows, restricted token.
    WindowsRestrictedToken,
    /// Windows, MXC.
    WindowsMxc,
}

/// Result of `process/start`: the program has been executed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartResult {
    /// The id of the request.
    pub process_id: ProcessId,
    /// What confines it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_type: Option<SandboxType>,
    /// What enforces its policy; none where nothing is enforced.
    #[serde(default)]
    pub sandbox_backend: Option<SandboxBackend>,
    /// What that leaves open.
    #[serde(default)]
    pub sandbox_gaps: Vec<SandboxGap>,
    /// True when a later connection repeated a start that had already happened.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub already_started: bool,
    /// How the shell snapshot was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell_snapshot: Option<ShellSnapshotReport>,
}

/// How a requested shell snapshot was used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShellSnapshotReport {
    /// What happened.
    pub state: ShellSnapshotState,
    /// Why the command ran without it; with `fallback` only.
    pub reason: Option<String>,
}

/// See [`ShellSnapshotReport`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ShellSnapshotState {
    /// From an earlier capture.
    Restored,
    /// Captured for this start.
    Captured,
    /// Not used.
    Fallback,
}

/// Params that only name a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProcessParams {
    /// The process.
    pub process_id: ProcessId,
}

/// Params of `process/read`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReadParams {
    /// The process.
    pub process_id: ProcessId,
    /// Only chunks with a larger number; 0 without it.
    #[serde(default)]
    pub after_seq: Option<u64>,
    /// Stop before the chunk that would exceed it, but give at least one; bytes.
    #[serde(default)]
    pub max_bytes: Option<u64>,
    /// Wait this long for news; milliseconds.
    #[serde(default)]
    pub wait_ms: Option<u64>,
}

/// Which stream a chunk came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExecOutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The terminal.
    Pty,
}

impl ExecOutputStream {
    /// The wire name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Pty => "pty",
        }
    }
}

/// One chunk of output. Its borders have no meaning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessOutputChunk {
    /// Its place among all events of the process.
    pub seq: u64,
    /// Where it came from.
    pub stream: ExecOutputStream,
    /// The bytes.
    pub chunk: ByteChunk,
}

/// Output that is gone: newer than what the reader asked after, older than what is retained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LostOutput {
    /// How much.
    pub bytes: u64,
    /// The first lost number.
    pub first_seq: u64,
    /// The last lost number.
    pub last_seq: u64,
}

/// Result of `process/read`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReadResponse {
    /// Ascending.
    pub chunks: Vec<ProcessOutputChunk>,
    /// Where to continue: `afterSeq` of the next read is this minus one.
    pub next_seq: u64,
    /// The process has ended.
    pub exited: bool,
    /// Its exit code, or 128 + N for signal N.
    pub exit_code: Option<i32>,
    /// Nothing more will come.
    pub closed: bool,
    /// Trouble of the transport, put here by client libraries.
    #[serde(default)]
    pub failure: Option<String>,
    /// The exit looks like a denial of the sandbox.
    #[serde(default)]
    pub sandbox_denied: bool,
}

/// Result of `process/read` as this server sends it: with what is lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccountedRead {
    /// What every server sends.
    #[serde(flatten)]
    pub response: ReadResponse,
    /// What is gone.
    #[serde(default)]
    pub lost: Option<LostOutput>,
}

/// Params of `process/write`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WriteParams {
    /// The process.
    pub process_id: ProcessId,
    /// What to write.
    pub chunk: ByteChunk,
    /// Makes a repeated write harmless. Not empty.
    pub write_id: String,
}

/// Result of `process/write`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WriteResponse {
    /// What became of it.
    pub status: WriteStatus,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum WriteStatus {
    /// It will be written, or was.
    Accepted,
    /// No such process.
    UnknownProcess,
    /// Nobody can read it any more.
    StdinClosed,
    /// The start is not finished.
    Starting,
}

/// Result of `process/closeStdin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CloseStdinResponse {
    /// What became of it.
    pub status: WriteStatus,
}

/// Params of `process/resize`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResizeParams {
    /// The process.
    pub process_id: ProcessId,
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

/// Params of `process/signal`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SignalParams {
    /// The process.
    pub process_id: ProcessId,
    /// Which signal.
    pub signal: ProcessSignal,
    /// To whom; by default the foreground group of a terminal, else the leader's group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<SignalTarget>,
}

/// A signal by its portable name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ProcessSignal {
    /// SIGINT.
    Interrupt,
    /// SIGHUP.
    Hangup,
    /// SIGQUIT.
    Quit,
    /// SIGKILL.
    Kill,
    /// SIGUSR1.
    User1,
    /// SIGUSR2.
    User2,
    /// SIGTERM.
    Terminate,
    /// SIGSTOP.
    Stop,
    /// SIGCONT.
    Continue,
}

/// Whom a signal reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SignalTarget {
    /// The leader's process group.
    Group,
    /// The started process alone.
    Leader,
    /// The foreground group of its terminal.
    Foreground,
}

/// Result of `process/signal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SignalResponse {
    /// Whether anything got it.
    #[serde(default)]
    pub delivered: bool,
}

/// Params of `process/terminate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TerminateParams {
    /// The process.
    pub process_id: ProcessId,
    /// Time between SIGTERM and SIGKILL, milliseconds; 0 kills at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
}

/// Result of `process/terminate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TerminateResponse {
    /// Something was left to end.
    pub running: bool,
}

/// Result of `process/list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListResponse {
    /// In order of start.
    pub processes: Vec<ProcessSummary>,
}

/// How far a process has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ProcessState {
    /// It runs.
    Running,
    /// It has ended, its output may go on.
    Exited,
    /// Nothing more will come.
    Closed,
}

/// Whether input can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum StdinState {
    /// Yes.
    Open,
    /// No.
    Closed,
}

/// One row of `process/list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProcessSummary {
    /// The client's name for it.
    pub process_id: ProcessId,
    /// As started.
    pub argv: Vec<String>,
    /// As started.
    pub cwd: PathUri,
    /// On a terminal.
    pub tty: bool,
    /// What confines it.
    pub sandbox_type: SandboxType,
    /// The server's process id of it.
    pub pid: i32,
    /// How far it has come.
    pub state: ProcessState,
    /// Unix milliseconds.
    pub started_at_ms: u64,
    /// Unix milliseconds.
    pub exited_at_ms: Option<u64>,
    /// As in `process/exited`.
    pub exit_code: Option<i32>,
    /// As in `process/exited`.
    pub signal: Option<String>,
    /// The number that its next event will get.
    pub next_seq: u64,
    /// All output so far.
    pub output_bytes: u64,
    /// The oldest chunk that can still be read.
    pub retained_from_seq: u64,
    /// Whether input can be written.
    pub stdin: StdinState,
}

/// Params of `process/output`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutputParams {
    /// The process.
    pub process_id: ProcessId,
    /// The chunk.
    #[serde(flatten)]
    pub chunk: ProcessOutputChunk,
}

/// Why a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ExitReason {
    /// By itself.
    Exited,
    /// By a signal that this server did not send to end it.
    Signaled,
    /// By `process/terminate`.
    Terminated,
    /// By a limit.
    Limit,
}

/// Params of `process/exited`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExitedParams {
    /// The process.
    pub process_id: ProcessId,
    /// Its place among all events of the process.
    pub seq: u64,
    /// 0 to 255, or 128 + N for signal N.
    pub exit_code: i32,
    /// The exit looks like a denial of the sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_denied: Option<bool>,
    /// The signal that killed it, such as `SIGKILL`.
    #[serde(default)]
    pub signal: Option<String>,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ExitReason>,
    /// The limit that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<ProcessLimit>,
}

/// Totals of the output as the process wrote it, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct OutputTotals {
    /// Standard output.
    pub stdout: u64,
    /// Standard error.
    pub stderr: u64,
    /// The terminal.
    pub pty: u64,
}

/// Params of `process/closed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClosedParams {
    /// The process.
    pub process_id: ProcessId,
    /// The last number of the process.
    pub seq: u64,
    /// Totals, so that a client can check that it has everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<OutputTotals>,
}
