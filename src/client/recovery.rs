//! Resumes a session whose connection broke.
//!
//! Attempts go on until one succeeds, the deadline passes, or the server says that the session is gone. An attempt is
//! complete when every gap is filled, so a second outage during the first recovery loses nothing: the next attempt
//! reads from what has been published.

use std::pin::Pin;
use std::sync::{Arc, Weak};

use futures_util::{TryStreamExt, stream};
use tokio::time::{Instant, sleep, timeout_at};

use super::backoff::{Backoff, random};
use super::connection::{CallError, Connection};
use super::events::{Gap, OrderedEvents};
use super::handshake::Purpose;
use super::pending::Priority;
use super::session::{Live, Session};
use crate::backend::{ExecServerError, Result};
use crate::protocol::code;
use crate::protocol::process::{ProcessId, Read, ReadParams, Terminate, TerminateParams};

/// Answers about gaps that may be on their way at a time; each may be large.
const READS_AT_A_TIME: usize = 4;
/// A token that was refused this often is wrong.
const REFUSALS: usize = 3;

/// Resolves to the reason when a connection has ended.
pub(super) type Ended = Pin<Box<dyn Future<Output = Arc<str>> + Send>>;

/// Keeps a session alive until it is dropped or lost for good.
pub(super) async fn supervise(session: Weak<Session>, mut ended: Ended) {
    loop {
        let reason = ended.await;
        match recover(&session, &reason).await {
            Some(next) => ended = next,
            None => return,
        }
    }
}

/// Resumes or fails the session; none when there is nothing left to supervise.
async fn recover(weak: &Weak<Session>, reason: &str) -> Option<Ended> {
    let limit = {
        let session = weak.upgrade()?;
        tracing::info!(session = session.id(), reason, "connection lost, resuming the session");
        session.begin_recovery();
        if !session.destination.can_resume() {
            session.fail(&format!("{reason}; the session of a program ends with it").into());
            return None;
        }
        session.destination.options.recovery_timeout
    };
    let mut last = None;
    let outcome = timeout_at(Instant::now() + limit, attempts(weak, &mut last)).await;
    let session = weak.upgrade()?;
    let why = match outcome {
        Ok(Ok(live)) => {
            let ended = live.connection.ended();
            session.install(live);
            return Some(Box::pin(ended));
        }
        Ok(Err(error)) => describe(&error),
        Err(_) => match last {
            Some(last) => format!("recovery timed out after {limit:?}, at last because: {last}"),
            None => format!("recovery timed out after {limit:?}"),
        },
    };
    let why = format!("{reason}; failed to resume exec-server session: {why}");
    tracing::warn!(session = session.id(), why, "session lost");
    session.fail(&why.into());
    None
}

fn describe(error: &ExecServerError) -> String {
    match error {
        ExecServerError::Server { code, message, .. } => {
            format!("exec-server rejected request ({code}): {message}")
        }
        other => other.to_string(),
    }
}

/// Tries until it succeeds or cannot; `last` is why it has not succeeded so far.
async fn attempts(session: &Weak<Session>, last: &mut Option<String>) -> Result<Arc<Live>> {
    let mut backoff = Backoff::new(Instant::now());
    let mut refusals = 0;
    loop {
        let outcome = match session.upgrade() {
            Some(session) => attempt(&session).await,
            None => return Err(ExecServerError::TransportDisconnected),
        };
        let error = match outcome {
            Ok(live) => return Ok(live),
            Err(error) => error,
        };
        tracing::debug!(%error, "an attempt to resume a session failed");
        refusals = if is_refusal(&error) { refusals + 1 } else { 0 };
        if refusals >= REFUSALS || is_final(&error) {
            return Err(error);
        }
        *last = Some(describe(&error));
        sleep(backoff.next(Instant::now(), random())).await;
    }
}

fn is_refusal(error: &ExecServerError) -> bool {
    matches!(error, ExecServerError::Connect { status: Some(401 | 403), .. })
}

fn is_final(error: &ExecServerError) -> bool {
    match error {
        ExecServerError::Server { code, .. } => *code != code::SESSION_ATTACHED,
        ExecServerError::Protocol(_) => true,
        _ => false,
    }
}

async fn attempt(session: &Session) -> Result<Arc<Live>> {
    session.starts_settled().await;
    let purpose = Purpose::Resume(session.id());
    let (connection, initialized) = session.destination.open(purpose, session.routes()).await?;
    if initialized.session_id != session.id() {
        let why = format!("the server answered with another session, `{}`", initialized.session_id);
        return Err(ExecServerError::Protocol(why));
    }
    end_abandoned_starts(session, &connection).await?;
    let gaps = session.processes.all();
    stream::iter(gaps.iter().map(Ok))
        .try_for_each_concurrent(READS_AT_A_TIME, |(id, events)| fill_gap(session, &connection, id, events))
        .await?;
    Ok(Live::new(connection, initialized))
}

async fn end_abandoned_starts(session: &Session, connection: &Connection) -> Result<()> {
    for process_id in session.abandoned_starts() {
        let params = TerminateParams { process_id, grace_ms: None };
        match connection.call::<Terminate>(&params, Priority::CleanUp).await {
            Ok(_) | Err(CallError::Failed(_)) => session.abandoned_start_ended(&params.process_id),
            Err(lost) => return Err(lost.into()),
        }
    }
    Ok(())
}

/// Reads what one process told while there was no connection.
async fn fill_gap(
    session: &Session,
    connection: &Connection,
    id: &ProcessId,
    events: &Arc<OrderedEvents>,
) -> Result<()> {
    let mut after = events.begin_recovery();
    loop {
        let params =
            ReadParams { process_id: id.clone(), after_seq: Some(after), max_bytes: None, wait_ms: Some(0) };
        let gap = match connection.call::<Read>(&params, Priority::Regular).await {
            Ok(read) => events.fill(read),
            Err(CallError::Failed(error)) => {
                let why = format!("the server no longer knows the process: {}", describe(&error));
                events.fail(&why.into());
                Gap::Ended
            }
            Err(lost) => return Err(lost.into()),
        };
        match gap {
            Gap::Closed => return Ok(()),
            Gap::Open => after = events.taken(),
            Gap::Ended => {
                session.processes.remove(id, events);
                return Ok(());
            }
        }
    }
}
