use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use super::args::LogsArgs;
use super::client;
use crate::client::ObservedSession;
use crate::protocol::process::{ExecOutputStream, ProcessId, ReadParams};

/// What one read asks for.
const PAGE_BYTES: u64 = 1 << 20;
/// How long one read waits for news.
const WAIT_MS: u64 = 10_000;

/// Prints what a process has written, each stream to its own; with `-f` until it ends.
pub(super) fn run(args: LogsArgs) -> anyhow::Result<ExitCode> {
    client::block_on(async move {
        let (session, process) = client::find(&args.client, args.session.as_deref(), &args.process).await?;
        match print(&session, process.process_id, args.follow).await {
            // Whoever reads has seen enough.
            Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
            outcome => outcome.map(|()| ExitCode::SUCCESS),
        }
    })
}

async fn print(session: &ObservedSession, process_id: ProcessId, follow: bool) -> anyhow::Result<()> {
    let mut after = 0;
    loop {
        let params = ReadParams {
            process_id: process_id.clone(),
            after_seq: Some(after),
            max_bytes: Some(PAGE_BYTES),
            wait_ms: follow.then_some(WAIT_MS),
        };
        let read = session.read(params).await?;
        if let Some(lost) = read.lost {
            eprintln!("exec-server: {} bytes of output are no longer kept", lost.bytes);
            after = after.max(lost.last_seq);
        }
        let is_last = read.response.chunks.is_empty() && (read.response.closed || !follow);
        for chunk in &read.response.chunks {
            after = chunk.seq;
            write(chunk.stream, chunk.chunk.as_slice())?;
        }
        if is_last {
            return Ok(());
        }
    }
}

pub(super) fn write(stream: ExecOutputStream, bytes: &[u8]) -> std::io::Result<()> {
    match stream {
        ExecOutputStream::Stderr => std::io::stderr().lock().write_all(bytes),
        ExecOutputStream::Stdout | ExecOutputStream::Pty => {
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(bytes)?;
            stdout.flush()
        }
    }
}

pub(super) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}
