//! What a log is made of, and what its readers get.

use bytes::Bytes;

use crate::protocol::limits::ProcessLimit;
use crate::protocol::process::{ExecOutputStream, ExitReason, LostOutput, OutputTotals};

/// Output of one number.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// Its number.
    pub seq: u64,
    /// Where it came from.
    pub stream: ExecOutputStream,
    /// The bytes.
    pub bytes: Bytes,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// Its number.
    pub seq: u64,
    /// 0 to 255, or 128 + N.
    pub code: i32,
    /// Name of the signal that killed it.
    pub signal: Option<&'static str>,
    /// Why it ended.
    pub reason: ExitReason,
    /// The limit that ended it.
    pub limit: Option<ProcessLimit>,
    /// It looks as if a sandbox had denied it something.
    pub sandbox_denied: bool,
    /// Unix milliseconds.
    pub at_ms: u64,
}

/// One numbered event.
#[derive(Debug, Clone)]
pub enum Event {
    /// Output.
    Output(Chunk),
    /// The process has ended.
    Exited(Exit),
    /// Nothing more will come.
    Closed {
        /// The last number.
        seq: u64,
        /// What was written in all.
        totals: OutputTotals,
    },
}

/// The answer to a read from memory.
#[derive(Debug)]
pub struct Page {
    /// Ascending.
    pub chunks: Vec<Chunk>,
    /// A limit ended the page before the newest chunk.
    pub limited: bool,
    /// The next wanted chunk lies in the spool; read it there and ask again.
    pub spooled: bool,
    /// Gone before the first chunk of this page.
    pub lost: Option<LostOutput>,
    /// State at the time of the read.
    pub status: Status,
}

/// Where a process stands.
#[derive(Debug, Clone)]
pub struct Status {
    /// The number that the next event will get.
    pub next_seq: u64,
    /// How it ended, if it has.
    pub exit: Option<Exit>,
    /// Nothing more will come.
    pub closed: bool,
    /// What was written so far.
    pub totals: OutputTotals,
    /// The oldest number that can still be read.
    pub retained_from: u64,
}

/// What a feed got.
#[derive(Debug)]
pub enum Taken {
    /// Events; `more` if others wait already.
    Events {
        /// In order.
        events: Vec<Event>,
        /// Put the log into the queue again.
        more: bool,
    },
    /// The next chunks lie in the spool, after this number.
    Spooled {
        /// Read from here, then [`super::OutputLog::skip_to`].
        after: u64,
    },
    /// What the feed wants next is gone, or it may not be served from the spool.
    Lagged,
}
