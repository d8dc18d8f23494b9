//! What the commands that talk to a server share.

use std::process::ExitCode;

use anyhow::{Context, bail};

use super::args::ClientArgs;
use crate::client::{ClientOptions, ObservedSession, Observer};
use crate::protocol::process::{ProcessId, ProcessSummary};
use crate::protocol::session::SessionSummary;

/// How these commands call themselves.
const NAME: &str = concat!("exec-server ", env!("CARGO_PKG_VERSION"));

/// Options for a connection, with the token of the arguments.
pub(super) fn options(token_file: Option<&std::path::Path>) -> anyhow::Result<ClientOptions> {
    let mut options = ClientOptions { client_name: NAME.to_owned(), ..ClientOptions::default() };
    if let Some(file) = token_file {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read the token file {}", file.display()))?;
        // A file with several tokens is one of a server in the middle of a rotation; any of them will do.
        let token = text.split_whitespace().next();
        let token = token.with_context(|| format!("the token file {} is empty", file.display()))?;
        options.bearer_token = Some(token.to_owned());
    }
    Ok(options)
}

/// Runs a command's future to its end.
pub(super) fn block_on(work: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    let outcome = runtime.block_on(work);
    // A thread may still be waiting for input that never comes.
    runtime.shutdown_background();
    outcome
}

async fn observer(args: &ClientArgs) -> anyhow::Result<Observer> {
    let options = options(args.token_file.as_deref())?;
    Ok(Observer::connect(&args.url, options).await?)
}

/// The sessions of a server, or the one that is wanted.
pub(super) async fn sessions(args: &ClientArgs, wanted: Option<&str>) -> anyhow::Result<Vec<SessionSummary>> {
    let mut sessions = observer(args).await?.sessions().await?.sessions;
    if let Some(wanted) = wanted {
        sessions.retain(|session| session.session_id == wanted);
        if sessions.is_empty() {
            bail!("there is no session {wanted}; `exec-server ps` lists them");
        }
    }
    Ok(sessions)
}

/// Looks on at a session.
pub(super) async fn observe(args: &ClientArgs, session: &str) -> anyhow::Result<ObservedSession> {
    Ok(observer(args).await?.observe(session).await?)
}

/// Finds the one process of this id among the sessions.
pub(super) async fn find(
    args: &ClientArgs,
    session: Option<&str>,
    process: &str,
) -> anyhow::Result<(ObservedSession, ProcessSummary)> {
    let id = ProcessId::from(process);
    let mut found = Vec::new();
    for session in sessions(args, session).await? {
        let observed = observe(args, &session.session_id).await?;
        let processes = observed.list().await?.processes;
        if let Some(summary) = processes.into_iter().find(|summary| summary.process_id == id) {
            found.push((session.session_id, observed, summary));
        }
    }
    match found.len() {
        0 => bail!("there is no process {process:?}; `exec-server ps` lists them"),
        1 => {}
        _ => {
            let sessions: Vec<&str> = found.iter().map(|(session, ..)| session.as_str()).collect();
            bail!(
                "several sessions have a process {process:?}; name one with --session: {}",
                sessions.join(", ")
            )
        }
    }
    let found = found.pop().map(|(_, observed, summary)| (observed, summary));
    found.context("the process has just gone")
}
