//! `process/read`: a page of retained output, from memory and spool, or the wait for news.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::process::Process;
use crate::process::log::{Chunk, Exit, OutputLog, Page};
use crate::protocol::process::{AccountedRead, LostOutput, ProcessOutputChunk, ReadResponse};

/// Output that one answer without `maxBytes` carries at most: with base64 and JSON it stays below 64 MiB.
pub const MAX_ANSWER_OUTPUT: u64 = 44 << 20;

/// What a read found.
#[derive(Debug)]
pub struct ReadOutcome {
    /// Ascending.
    pub chunks: Vec<Chunk>,
    /// Where to continue.
    pub next_seq: u64,
    /// How the process ended, if it has.
    pub exit: Option<Exit>,
    /// Nothing more will come.
    pub closed: bool,
    /// What is gone.
    pub lost: Option<LostOutput>,
}

impl From<ReadOutcome> for AccountedRead {
    fn from(outcome: ReadOutcome) -> Self {
        let chunk = |chunk: Chunk| ProcessOutputChunk {
            seq: chunk.seq,
            stream: chunk.stream,
            chunk: chunk.bytes.to_vec().into(),
        };
        Self {
            response: ReadResponse {
                chunks: outcome.chunks.into_iter().map(chunk).collect(),
                next_seq: outcome.next_seq,
                exited: outcome.exit.is_some(),
                sandbox_denied: outcome.exit.as_ref().is_some_and(|exit| exit.sandbox_denied),
                exit_code: outcome.exit.map(|exit| exit.code),
                closed: outcome.closed,
                failure: None,
            },
            lost: outcome.lost,
        }
    }
}

/// What a read asks for.
#[derive(Debug, Clone, Copy)]
pub struct ReadRequest {
    /// Only what comes after this number.
    pub after: u64,
    /// At most this much output, but at least one chunk.
    pub max_bytes: Option<u64>,
}

/// Reads at once. Cancel-safe: nothing is consumed.
pub async fn read_now(process: &Process, request: ReadRequest) -> ReadOutcome {
    let limit = request.max_bytes.unwrap_or(MAX_ANSWER_OUTPUT);
    let log = process.log();
    let (mut chunks, mut lost, mut after, mut sum) = (Vec::<Chunk>::new(), None, request.after, 0);
    loop {
        let page = log.page(after, limit.saturating_sub(sum));
        let stop = |page: Page| Page { chunks: Vec::new(), limited: true, ..page };
        if page.lost.is_some() && !chunks.is_empty() {
            // Lost between two looks: the next read tells it, in its place.
            return finish(request, chunks, lost, sum, limit, stop(page));
        }
        lost = match (lost, page.lost) {
            // Nothing lies between them: no chunk has been taken yet.
            (Some(before), Some(more)) => {
                Some(LostOutput { bytes: before.bytes + more.bytes, last_seq: more.last_seq, ..before })
            }
            (before, more) => before.or(more),
        };
        if !page.spooled {
            return finish(request, chunks, lost, sum, limit, page);
        }
        let from = page.lost.map_or(after, |lost| lost.last_seq);
        let spooled = from_spool(log, from, limit.saturating_sub(sum)).await;
        if log.has_lost_after(from) {
            // Something fell out between the two looks: look again, so that it is told and not passed over.
            after = from;
            continue;
        }
        for chunk in spooled {
            let size = chunk.bytes.len() as u64;
            if !chunks.is_empty() && sum + size > limit {
                return finish(request, chunks, lost, sum, limit, stop(page));
            }
            sum += size;
            after = chunk.seq;
            chunks.push(chunk);
        }
    }
}

async fn from_spool(log: &Arc<OutputLog>, after: u64, max_bytes: u64) -> Vec<Chunk> {
    let log = Arc::clone(log);
    tokio::task::spawn_blocking(move || log.read_spool(after, max_bytes)).await.unwrap_or_default()
}

fn finish(
    request: ReadRequest,
    mut chunks: Vec<Chunk>,
    lost: Option<LostOutput>,
    sum: u64,
    limit: u64,
    page: Page,
) -> ReadOutcome {
    // A page gives at least one chunk whatever its limit; behind chunks from the spool that one would be too much.
    let fits = |chunk: &Chunk| chunks.is_empty() || sum + chunk.bytes.len() as u64 <= limit;
    let takes_page = page.chunks.first().is_none_or(fits);
    let limited = page.limited || !takes_page;
    if takes_page {
        chunks.extend(page.chunks);
    }
    let next_seq = match chunks.last() {
        Some(last) if request.max_bytes.is_some() || limited => last.seq + 1,
        _ => page.status.next_seq,
    };
    ReadOutcome { chunks, next_seq, exit: page.status.exit, closed: page.status.closed, lost }
}

impl ReadOutcome {
    /// From a page that needs nothing of the spool.
    #[must_use]
    pub fn from_memory(request: ReadRequest, page: Page) -> Self {
        let limit = request.max_bytes.unwrap_or(MAX_ANSWER_OUTPUT);
        let lost = page.lost;
        finish(request, Vec::new(), lost, 0, limit, page)
    }
}

/// Waits for the first event, at most for `wait`; not at all if there is something newer than `after` already, or
/// nothing more will come. Cancel-safe.
pub async fn wait_for_news(process: &Process, after: u64, wait: Duration) {
    // Subscribed before the look, so that no event falls between the two.
    let mut news = process.log().subscribe();
    let status = process.log().status();
    if status.closed || status.next_seq - 1 > after {
        return;
    }
    match Instant::now().checked_add(wait) {
        Some(deadline) => drop(timeout_at(deadline, news.changed()).await),
        None => drop(news.changed().await),
    }
}
