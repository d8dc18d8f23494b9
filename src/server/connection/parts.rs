//! Large files as answers: read, encoded and written part by part, so that the parts are all that is in memory.
//!
//! An answer has begun once its first part is there. If the file cannot be read on after that, the connection is closed: a
//! client could not tell what it has from the whole. A file that is cut short meanwhile is answered as far as it goes, and
//! one that grows up to the size that it had.

use std::time::Duration;

use base64_simd::STANDARD;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::answers;
use super::ticket::Ticket;
use crate::error_map::IntoErrorObject;
use crate::fs::{FsError, Opened};
use crate::protocol::code;
use crate::protocol::envelope::ErrorObject;

/// Bytes of a file in one part. Its base64 joins with the next one's without padding.
const PART_BYTES: usize = 192 << 10;
const _: () = assert!(PART_BYTES.is_multiple_of(3));
/// Parts of an answer in memory: one with the transport, one that waits, one in the making, and what it is made of.
pub(super) const HELD_BYTES: u64 = 4 * PART_BYTES as u64;
/// A file that takes longer to read on cannot be read.
const PART_TIME: Duration = Duration::from_secs(20);

/// A part of an answer.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) text: String,
    pub(super) last: bool,
}

/// The parts of one answer. It ends without a last one if the answer cannot be finished.
pub(super) type Parts = mpsc::Receiver<Part>;

/// Where answers in parts go. Each takes one of the few places of large answers, so few wait.
pub(super) type Announce = mpsc::UnboundedSender<Parts>;

/// What is left to send of a file.
struct Rest {
    file: Opened,
    bytes: u64,
    buffer: Vec<u8>,
}

impl Rest {
    /// The next part, behind a text, with the tail behind the last one. It blocks.
    fn next(&mut self, mut text: String, tail: &str) -> Result<Part, FsError> {
        let wanted = usize::try_from(self.bytes).map_or(PART_BYTES, |bytes| bytes.min(PART_BYTES));
        let read = self.file.read_on(&mut self.buffer[..wanted])?;
        self.bytes -= read as u64;
        text.reserve_exact(STANDARD.encoded_length(read) + tail.len());
        STANDARD.encode_append(&self.buffer[..read], &mut text);
        let last = read < wanted || self.bytes == 0;
        if last {
            text.push_str(tail);
        }
        Ok(Part { text, last })
    }
}

/// Makes the next part where blocking is allowed. Cancel-safe: what has begun is made and dropped.
async fn make(mut rest: Rest, text: String, tail: &'static str) -> Result<(Rest, Part), ErrorObject> {
    match spawn_blocking(move || rest.next(text, tail).map(|part| (rest, part))).await {
        Ok(made) => made.map_err(IntoErrorObject::into_error_object),
        Err(_) => Err(ErrorObject::new(code::INTERNAL, "the server could not read on")),
    }
}

/// Goes on with an answer that has begun.
async fn go_on(rest: Rest, tail: &'static str) -> Result<(Rest, Part), ErrorObject> {
    let late = |_| Err(ErrorObject::new(code::INTERNAL, "the next part of the file took too long to read"));
    timeout(PART_TIME, make(rest, String::new(), tail)).await.unwrap_or_else(late)
}

/// Answers with a file in parts. Returns what there is to answer instead, if it cannot begin.
pub(super) async fn answer(ticket: &Ticket, file: Opened, announce: &Announce) -> Option<String> {
    let (head, tail) = answers::around_file(ticket);
    let bytes = file.size();
    let around = (head.len() + tail.len()) as u64;
    if let Some(refusal) = answers::refuse_above_limit(ticket, around + bytes.div_ceil(3) * 4) {
        return Some(refusal);
    }
    let rest = Rest { file, bytes, buffer: vec![0; PART_BYTES] };
    match make(rest, head, tail).await {
        Ok((rest, first)) => {
            let outcome = send(rest, first, tail, announce).await;
            ticket.answered(outcome.as_ref().err());
            None
        }
        Err(error) => Some(answers::failure(ticket, &error)),
    }
}

/// Sends all parts, the next one in the making while one is written. Cancel-safe: the connection sees that the last part
/// is missing.
async fn send(rest: Rest, first: Part, tail: &'static str, announce: &Announce) -> Result<(), ErrorObject> {
    let gone = || ErrorObject::new(code::INTERNAL, "the connection has ended");
    let (sender, parts) = mpsc::channel(1);
    announce.send(parts).map_err(|_| gone())?;
    let (mut rest, mut part) = (rest, first);
    while !part.last {
        sender.send(part).await.map_err(|_| gone())?;
        (rest, part) = go_on(rest, tail).await.inspect_err(|error| {
            tracing::warn!(error = %error.message, "a file could not be read to its end");
        })?;
    }
    sender.send(part).await.map_err(|_| gone())?;
    // What the call holds counts until the transport has its last part.
    sender.closed().await;
    Ok(())
}
