//! What waits to be written to a client: answers first, then events, frames of bodies and questions by turns.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::answers;
use super::bodies::Bodies;
use super::parts::{Part, Parts};
use super::questions::Questions;
use super::work::Reply;
use crate::memory::{Held, MemoryBudget};
use crate::process::log::{Chunk, Event, OutputLog, Taken};
use crate::session::Attachment;

/// Answers that may wait to be written; then the connection is read no further.
const QUEUED_REPLIES: usize = 128;
const QUEUED_REPLY_BYTES: usize = 4 << 20;
/// Output taken from a process before the others have their turn.
const TURN_BYTES: usize = 256 << 10;

/// Chunks read back from the spool, after which number of which log.
type ReadBack = (Arc<OutputLog>, u64, Vec<Chunk>);

/// Why a connection is of no use any more.
#[derive(Debug)]
pub(super) enum Loss {
    /// It observes, and is behind what is in memory.
    Lagged,
    /// An answer that it has in part cannot be finished.
    Cut,
}

/// What the transport is given.
#[derive(Debug)]
pub(super) enum Output {
    Message(String),
    Part(Part),
}

/// An answer that waits, or goes out.
#[derive(Debug)]
enum Answer {
    Whole(Reply),
    InParts(Parts),
}

/// Where messages come from that answer nothing.
#[derive(Debug, Clone, Copy)]
enum Source {
    Events,
    Frames,
    Desk,
}

impl Source {
    const COUNT: usize = 3;

    fn next(self) -> Self {
        match self {
            Self::Events => Self::Frames,
            Self::Frames => Self::Desk,
            Self::Desk => Self::Events,
        }
    }
}

/// See the module's description.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// One in parts stays in front until its last.
    answers: VecDeque<Answer>,
    reply_bytes: usize,
    /// Answers in parts that are not in the queue yet.
    announced: mpsc::UnboundedReceiver<Parts>,
    /// The next part of the answer in front.
    part: Option<Part>,
    /// The answer in front has gone out in part. Nothing else goes out until its last.
    has_begun: bool,
    /// What the answer counts for that the transport is writing.
    sending: Option<Held>,
    events: VecDeque<(Arc<OutputLog>, Event)>,
    /// Reading events back that have left memory.
    spooled: Option<JoinHandle<ReadBack>>,
    pub(super) bodies: Bodies,
    pub(super) questions: Questions,
    /// Which source of messages has the next turn.
    turn: Source,
    memory: Arc<MemoryBudget>,
}

impl Outgoing {
    pub(super) fn new(announced: mpsc::UnboundedReceiver<Parts>, memory: Arc<MemoryBudget>) -> Self {
        Self {
            answers: VecDeque::new(),
            reply_bytes: 0,
            announced,
            part: None,
            has_begun: false,
            sending: None,
            events: VecDeque::new(),
            spooled: None,
            bodies: Bodies::new(Arc::clone(&memory)),
            questions: Questions::default(),
            turn: Source::Events,
            memory,
        }
    }

    /// Queues an answer, or what is to go out with them.
    pub(super) fn push(&mut self, reply: impl Into<Reply>) {
        let mut reply = reply.into();
        reply.count(&self.memory);
        self.reply_bytes += reply.text.len();
        self.answers.push_back(Answer::Whole(reply));
    }

    /// Whether more answers may come.
    pub(super) fn has_room(&self) -> bool {
        self.answers.len() < QUEUED_REPLIES && self.reply_bytes < QUEUED_REPLY_BYTES
    }

    /// No answer waits to begin.
    pub(super) fn has_begun_all(&self) -> bool {
        self.announced.is_empty() && self.answers.len() == usize::from(self.has_begun)
    }

    /// No answer waits, nor is one going out.
    pub(super) fn is_answered(&self) -> bool {
        self.announced.is_empty() && self.answers.is_empty()
    }

    /// No answer and no event waits.
    pub(super) fn is_empty(&self) -> bool {
        self.is_answered() && self.events.is_empty()
    }

    /// Makes sure that there is something to send, if there is anything; events are those of the attachment.
    ///
    /// # Errors
    /// The connection is of no use any more.
    pub(super) fn has_output(
        &mut self,
        attachment: Option<&Attachment>,
        cx: &mut Context<'_>,
    ) -> Result<bool, Loss> {
        while let Poll::Ready(Some(parts)) = self.announced.poll_recv(cx) {
            self.answers.push_back(Answer::InParts(parts));
        }
        match self.answers.front_mut() {
            Some(Answer::Whole(_)) => return Ok(true),
            Some(Answer::InParts(parts)) => {
                if self.part.is_none()
                    && let Poll::Ready(part) = parts.poll_recv(cx)
                {
                    self.part = Some(part.ok_or(Loss::Cut)?);
                }
                return Ok(self.part.is_some());
            }
            None if !self.events.is_empty() => return Ok(true),
            None => {}
        }
        // No source can keep another from the wire.
        let mut source = self.turn;
        for _ in 0..Source::COUNT {
            let next = source.next();
            if self.has(source, attachment, cx)? {
                self.turn = next;
                return Ok(true);
            }
            source = next;
        }
        Ok(false)
    }

    /// Makes sure that there is something of this source to send, if there is anything.
    fn has(
        &mut self,
        source: Source,
        attachment: Option<&Attachment>,
        cx: &mut Context<'_>,
    ) -> Result<bool, Loss> {
        match (source, attachment) {
            (Source::Frames, _) => Ok(self.bodies.poll_frame(cx)),
            (Source::Events, Some(attachment)) => self.has_events(attachment, cx),
            (Source::Desk, Some(attachment)) => Ok(self.has_question(attachment, cx)),
            (_, None) => Ok(false),
        }
    }

    fn has_question(&mut self, attachment: &Attachment, cx: &mut Context<'_>) -> bool {
        let Some(seat) = attachment.desk() else { return false };
        let Poll::Ready(text) = self.questions.poll_message(seat, cx) else { return false };
        self.push(text);
        true
    }

    /// Makes sure that there is an event to send, if there is any.
    fn has_events(&mut self, attachment: &Attachment, cx: &mut Context<'_>) -> Result<bool, Loss> {
        if self.poll_spooled(attachment, cx) {
            return Ok(true);
        }
        let feed = attachment.feed();
        while self.spooled.is_none() {
            let Poll::Ready(log) = feed.poll_pop(cx) else { return Ok(false) };
            match log.take(feed, TURN_BYTES) {
                Taken::Events { events, more } => {
                    if more {
                        feed.push(Arc::clone(&log));
                    }
                    self.events.extend(events.into_iter().map(|event| (Arc::clone(&log), event)));
                    if !self.events.is_empty() {
                        return Ok(true);
                    }
                }
                Taken::Spooled { after } => {
                    self.read_back(log, after);
                    return Ok(self.poll_spooled(attachment, cx));
                }
                Taken::Lagged => return Err(Loss::Lagged),
            }
        }
        Ok(false)
    }

    fn read_back(&mut self, log: Arc<OutputLog>, after: u64) {
        self.spooled = Some(tokio::task::spawn_blocking(move || {
            let chunks = log.read_spool(after, TURN_BYTES as u64);
            (log, after, chunks)
        }));
    }

    fn poll_spooled(&mut self, attachment: &Attachment, cx: &mut Context<'_>) -> bool {
        let Some(reading) = &mut self.spooled else { return false };
        let Poll::Ready(read) = Pin::new(reading).poll(cx) else { return false };
        self.spooled = None;
        let Ok((log, after, chunks)) = read else { return false };
        let bytes = chunks.iter().map(|chunk| chunk.bytes.len() as u64).sum();
        log.skip_to(attachment.feed(), chunks.last().map_or(after, |chunk| chunk.seq), bytes);
        attachment.feed().push(Arc::clone(&log));
        self.events.extend(chunks.into_iter().map(|chunk| (Arc::clone(&log), Event::Output(chunk))));
        !self.events.is_empty()
    }

    /// What goes out next, if [`Self::has_output`] has found something. The transport has written the answer before.
    pub(super) fn next_output(&mut self) -> Option<Output> {
        self.sending = None;
        if let Some(part) = self.part.take() {
            self.has_begun = !part.last;
            if part.last {
                self.answers.pop_front();
            }
            return Some(Output::Part(part));
        }
        self.next_message().map(Output::Message)
    }

    fn next_message(&mut self) -> Option<String> {
        if let Some(reply) = self.pop_reply() {
            self.sending = reply.memory;
            return Some(reply.text);
        }
        if let Some((log, event)) = self.events.pop_front() {
            return Some(answers::notification(log.id(), &event));
        }
        self.bodies.next_frame()
    }

    /// The next whole answer, for the end of a connection. None while one has gone out in part; others in parts are given
    /// up.
    pub(super) fn pop_reply(&mut self) -> Option<Reply> {
        if self.has_begun {
            return None;
        }
        while let Some(answer) = self.answers.pop_front() {
            if let Answer::Whole(reply) = answer {
                self.reply_bytes -= reply.text.len();
                return Some(reply);
            }
        }
        None
    }

    /// The transport has written everything that it was given.
    pub(super) fn written(&mut self) {
        self.sending = None;
    }
}
