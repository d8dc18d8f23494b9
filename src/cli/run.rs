use std::collections::HashMap;
use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::args::RunArgs;
use super::logs::{is_broken_pipe, write};
use super::terminal::{self, RawMode};
use super::{client, local};
use crate::backend::{
    ExecBackend, ExecProcess, ExecProcessEvent, ExecProcessEventReceiver, ExecServerError, RecvError,
};
use crate::environment::{Environment, EnvironmentConnectionState};
use crate::path_uri::PathUri;
use crate::protocol::process::{
    EnvInherit, ExecEnvPolicy, ExecParams, ProcessId, ProcessSignal, StartOptions, WriteStatus,
};

/// The server could not run the program, as `docker run` says it.
const CANNOT_RUN: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// The connection was lost for good, as `ssh` says it.
const LOST: u8 = 255;
/// Whoever read the output has gone, as a shell says it.
const BROKEN_PIPE: u8 = 141;

/// One read of standard input.
const INPUT_BYTES: usize = 64 << 10;
/// How long output of what the program left behind is waited for after its own end.
const AFTER_EXIT: Duration = Duration::from_millis(300);
/// So many interrupts end the whole tree, should the program ignore them.
const INTERRUPTS_TO_END: u32 = 3;

/// Runs a program on a server, or in this process, with its input, output and exit code as if it ran here.
pub(super) fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    client::block_on(async move {
        let place = Place::of(&args).await?;
        let params = params(&args, place.cwd.clone(), place.is_remote);
        let size = if args.tty { terminal::size() } else { None };
        let started = place.backend.start_with(params, StartOptions { size, limits: None }).await;
        let process = match started {
            Ok(started) => started.process,
            Err(error) => {
                eprintln!("exec-server: {error}");
                return Ok(ExitCode::from(code_of_refusal(&error)));
            }
        };
        let raw = if args.tty { RawMode::enter() } else { None };
        let outcome = Run::new(process, args.tty, place.connection.clone()).finish().await;
        drop(raw);
        place.leave().await;
        outcome.map(ExitCode::from)
    })
}

/// Where the program runs.
struct Place {
    backend: Arc<dyn ExecBackend>,
    cwd: PathUri,
    is_remote: bool,
    connection: Option<watch::Receiver<EnvironmentConnectionState>>,
    local: Option<local::Local>,
}

impl Place {
    async fn of(args: &RunArgs) -> anyhow::Result<Self> {
        let Some(url) = args.url.clone() else {
            let local = local::Local::start();
            let cwd =
                directory(args.cwd.as_deref(), &std::env::current_dir().context("no current directory")?)?;
            return Ok(Self {
                backend: local.backend(),
                cwd,
                is_remote: false,
                connection: None,
                local: Some(local),
            });
        };
        let environment = Environment::remote(&url, client::options(args.token_file.as_deref())?)?;
        let info = environment.info().await?;
        let base = info.cwd.as_ref().and_then(|cwd| cwd.to_native_path().ok()).unwrap_or_else(|| "/".into());
        Ok(Self {
            backend: environment.get_exec_backend(),
            cwd: directory(args.cwd.as_deref(), &base)?,
            is_remote: true,
            connection: environment.subscribe_connection_state(),
            local: None,
        })
    }

    async fn leave(self) {
        if let Some(local) = self.local {
            local.end().await;
        }
    }
}

fn directory(wanted: Option<&str>, base: &std::path::Path) -> anyhow::Result<PathUri> {
    let path = wanted.map_or_else(|| base.to_owned(), |wanted| base.join(wanted));
    PathUri::from_native_path(&path)
        .with_context(|| format!("{} cannot be a working directory", path.display()))
}

fn params(args: &RunArgs, cwd: PathUri, is_remote: bool) -> ExecParams {
    let mut env: HashMap<String, String> = HashMap::new();
    if let (true, Ok(term)) = (args.tty, std::env::var("TERM")) {
        env.insert("TERM".to_owned(), term);
    }
    env.extend(args.env.iter().cloned());
    ExecParams {
        metadata: Default::default(),
        process_id: ProcessId::from(format!("run-{}", &uuid::Uuid::new_v4().simple().to_string()[..8])),
        argv: args.command.clone(),
        cwd,
        env_policy: Some(ExecEnvPolicy {
            inherit: EnvInherit::All,
            // What a server was given for itself is not for the programs of others; what this user has, is.
            ignore_default_excludes: !is_remote,
            exclude: Vec::new(),
            set: HashMap::new(),
            include_only: Vec::new(),
        }),
        shell_snapshot: None,
        env,
        tty: args.tty,
        pipe_stdin: !args.tty,
        arg0: None,
        sandbox: None,
        enforce_managed_network: false,
        managed_network: None,
        network_proxy: None,
    }
}

fn code_of_refusal(error: &ExecServerError) -> u8 {
    let kind = match error {
        ExecServerError::Server { data: Some(data), .. } => data["kind"].as_str().unwrap_or_default(),
        _ => "",
    };
    match kind {
        "spawnNotFound" => NOT_FOUND,
        "spawnPermissionDenied" => NOT_EXECUTABLE,
        _ => CANNOT_RUN,
    }
}

/// A program that has been started.
struct Run {
    process: Arc<dyn ExecProcess>,
    events: ExecProcessEventReceiver,
    connection: Option<watch::Receiver<EnvironmentConnectionState>>,
    tty: bool,
    /// The newest number that was printed.
    printed: u64,
    exit_code: Option<i32>,
    interrupts: u32,
}

/// Signals that are passed on.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    quit: Signal,
    resized: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
            resized: signal(SignalKind::window_change())?,
        })
    }

    async fn next(&mut self) -> Passed {
        tokio::select! {
            _ = self.interrupt.recv() => Passed::Signal(ProcessSignal::Interrupt),
            _ = self.terminate.recv() => Passed::Signal(ProcessSignal::Terminate),
            _ = self.hangup.recv() => Passed::Signal(ProcessSignal::Hangup),
            _ = self.quit.recv() => Passed::Signal(ProcessSignal::Quit),
            _ = self.resized.recv() => Passed::Resized,
        }
    }
}

enum Passed {
    Signal(ProcessSignal),
    Resized,
}

impl Run {
    fn new(
        process: Arc<dyn ExecProcess>,
        tty: bool,
        connection: Option<watch::Receiver<EnvironmentConnectionState>>,
    ) -> Self {
        let events = process.subscribe_events_paced();
        Self { process, events, connection, tty, printed: 0, exit_code: None, interrupts: 0 }
    }

    /// Passes everything in both directions until the program has ended; returns its exit code.
    async fn finish(mut self) -> anyhow::Result<u8> {
        let mut signals = Signals::new()?;
        tokio::spawn(pass_input(Arc::clone(&self.process), self.tty));
        loop {
            let ended = self.exit_code.is_some();
            tokio::select! {
                event = self.events.recv() => match self.event(event).await {
                    Ok(None) => {}
                    Ok(Some(code)) => return Ok(code),
                    Err(error) if is_broken_pipe(&error) => {
                        let _ = self.process.terminate().await;
                        return Ok(BROKEN_PIPE);
                    }
                    Err(error) => return Err(error),
                },
                () = tokio::time::sleep(AFTER_EXIT), if ended => return Ok(exit_byte(self.exit_code)),
                passed = signals.next() => self.pass(passed).await,
                () = lost(self.connection.as_mut()) => {
                    eprint!("exec-server: the connection is lost; resuming\r\n");
                }
            }
        }
    }

    async fn event(&mut self, event: Result<ExecProcessEvent, RecvError>) -> anyhow::Result<Option<u8>> {
        match event {
            Ok(ExecProcessEvent::Output(chunk)) => {
                if chunk.seq > self.printed {
                    self.printed = chunk.seq;
                    write(chunk.stream, chunk.chunk.as_slice())?;
                }
            }
            Ok(ExecProcessEvent::Exited { exit_code, .. }) => self.exit_code = Some(exit_code),
            Ok(ExecProcessEvent::Closed { .. }) | Err(RecvError::Closed) => {
                return Ok(Some(exit_byte(self.exit_code)));
            }
            Ok(ExecProcessEvent::Failed(why)) => {
                eprint!("exec-server: {why}\r\n");
                return Ok(Some(LOST));
            }
            Err(RecvError::Lagged(_)) => self.catch_up().await?,
        }
        Ok(None)
    }

    /// Reads what came faster than it could be printed.
    async fn catch_up(&mut self) -> anyhow::Result<()> {
        loop {
            let read = self.process.read_accounted(Some(self.printed), Some(1 << 20), None).await?;
            if let Some(lost) = read.lost {
                eprint!("exec-server: {} bytes of output came too fast and are lost\r\n", lost.bytes);
                self.printed = self.printed.max(lost.last_seq);
            }
            for chunk in &read.response.chunks {
                self.printed = chunk.seq;
                write(chunk.stream, chunk.chunk.as_slice())?;
            }
            if read.response.exited {
                self.exit_code = read.response.exit_code;
            }
            if read.response.chunks.is_empty() {
                return Ok(());
            }
        }
    }

    async fn pass(&mut self, passed: Passed) {
        match passed {
            Passed::Resized => {
                if let (true, Some(size)) = (self.tty, terminal::size()) {
                    let _ = self.process.resize(size).await;
                }
            }
            Passed::Signal(signal) => {
                self.interrupts += u32::from(signal == ProcessSignal::Interrupt);
                let outcome = if self.interrupts >= INTERRUPTS_TO_END {
                    self.process.terminate().await
                } else {
                    self.process.signal(signal).await
                };
                if let Err(error) = outcome {
                    eprint!("exec-server: the signal did not arrive: {error}\r\n");
                }
            }
        }
    }
}

/// The next loss of the connection.
async fn lost(connection: Option<&mut watch::Receiver<EnvironmentConnectionState>>) {
    let Some(connection) = connection else { return std::future::pending().await };
    loop {
        if connection.changed().await.is_err() {
            return std::future::pending().await;
        }
        if *connection.borrow_and_update() == EnvironmentConnectionState::Disconnected {
            return;
        }
    }
}

fn exit_byte(code: Option<i32>) -> u8 {
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(LOST)
}

/// Copies standard input to the program, then ends its input.
async fn pass_input(process: Arc<dyn ExecProcess>, tty: bool) {
    let (sender, mut input) = mpsc::channel(1);
    // A thread of its own: a read of a terminal cannot be taken back.
    std::thread::spawn(move || {
        let mut buffer = vec![0; INPUT_BYTES];
        while let Ok(count @ 1..) = std::io::stdin().lock().read(&mut buffer) {
            if sender.blocking_send(buffer[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    while let Some(bytes) = input.recv().await {
        match process.write(bytes).await {
            Ok(response) if response.status == WriteStatus::Accepted => {}
            // Nobody reads it any more.
            _ => return,
        }
    }
    let ended = if tty { process.write(vec![0x04]).await } else { process.close_stdin().await };
    if let Err(error @ ExecServerError::Unsupported(_)) = ended {
        eprintln!("exec-server: {error}: the program does not see the end of its input");
    }
}
