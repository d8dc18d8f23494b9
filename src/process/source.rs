//! One stream of output: waits until a read makes sense, and reads into the log.
//!
//! A stream is watched for readiness. One that gives many small pieces in a row is taken off the watch and looked at
//! again after a moment instead: for a watched pipe the kernel wakes the watcher at every single write, which costs
//! writer and server more than the bytes do. What it holds meanwhile comes as one chunk. A prompt, an echo or a lone
//! line never waits, for it does not follow others without a gap.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::pipe::fcntl_setpipe_size;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until};

use super::log::OutputLog;
use super::stdin::Endpoint;
use crate::protocol::process::ExecOutputStream;
use crate::spawn::watched::{watched, watched_or_back};

/// One read takes at most this much.
const READ_BYTES: usize = 64 << 10;
/// What is read of one stream before the others get their turn.
const TURN_BYTES: usize = 128 << 10;
/// A stream that gives this much at once is a busy one.
const BUSY_BYTES: usize = 512;
/// Less than this at a time makes small pieces.
const SMALL_BYTES: usize = 16 << 10;
/// So many small pieces without a gap between them are a flood of small writes.
const FLOOD_PIECES: u32 = 16;
/// How long a flood is left alone.
const PAUSE: Duration = Duration::from_millis(1);
/// What its pipe holds, so that the writer need not wait meanwhile.
const FLOOD_PIPE_BYTES: usize = 512 << 10;
/// A terminal that has more gives at least this much to one read.
const TERMINAL_READ: usize = 4095;

thread_local! {
    /// Chunks are copied out of it at their size, so a process costs no buffer while it is quiet.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// A stream of output.
#[derive(Debug)]
pub(super) struct Source {
    stream: ExecOutputStream,
    end: End,
}

#[derive(Debug)]
enum End {
    Pipe {
        fd: AsyncFd<OwnedFd>,
        /// Small pieces since the last gap.
        pieces: u32,
    },
    /// A pipe off the watch, to be read at this time.
    Flooding {
        fd: OwnedFd,
        read_at: Instant,
    },
    Terminal(Arc<AsyncFd<Endpoint>>),
    Ended,
}

/// What came of reading a stream.
#[derive(Debug, Clone, Copy)]
enum Progress {
    /// There may be more at once.
    More,
    /// Nothing more for now, after this much.
    Drained { taken: usize },
    /// Nothing more ever.
    Ended,
}

impl Progress {
    /// A gap: the writer is not faster than the reader.
    fn is_gap(self) -> bool {
        matches!(self, Self::Drained { taken } if taken < BUSY_BYTES)
    }
}

impl Source {
    pub(super) fn pipe(stream: ExecOutputStream, fd: OwnedFd) -> io::Result<Self> {
        Ok(Self { stream, end: End::Pipe { fd: watched(fd, Interest::READABLE)?, pieces: 0 } })
    }

    pub(super) fn terminal(endpoint: Arc<AsyncFd<Endpoint>>) -> Self {
        Self { stream: ExecOutputStream::Pty, end: End::Terminal(endpoint) }
    }

    /// The second stream of a process that has one.
    pub(super) fn none() -> Self {
        Self { stream: ExecOutputStream::Stderr, end: End::Ended }
    }

    pub(super) fn is_open(&self) -> bool {
        !matches!(self.end, End::Ended)
    }

    /// Waits until a read makes sense, then reads a turn's worth into the log. Cancel-safe: it waits for readiness
    /// or a moment only, and between a read and the log there is no await.
    pub(super) async fn read_turn(&mut self, log: &Arc<OutputLog>) {
        let stream = self.stream;
        match &mut self.end {
            End::Ended => std::future::pending().await,
            End::Terminal(fd) => {
                if turn(fd, stream, log).await.is_none() {
                    self.end = End::Ended;
                }
            }
            End::Pipe { fd, pieces } => match turn(fd, stream, log).await {
                None => self.end = End::Ended,
                Some(progress) => {
                    *pieces = match progress {
                        Progress::Drained { taken } if (BUSY_BYTES..SMALL_BYTES).contains(&taken) => {
                            *pieces + 1
                        }
                        _ => 0,
                    };
                    if *pieces >= FLOOD_PIECES {
                        self.unwatch();
                    }
                }
            },
            End::Flooding { fd, read_at } => {
                sleep_until(*read_at).await;
                match read_into(log, stream, fd) {
                    Progress::Ended => self.end = End::Ended,
                    progress if progress.is_gap() => self.watch(),
                    Progress::Drained { .. } => *read_at = Instant::now() + PAUSE,
                    Progress::More => {}
                }
            }
        }
    }

    /// Reads what is there, without waiting, as far as the log has room. With `abandon` an empty stream counts as
    /// ended.
    pub(super) fn drain(&mut self, log: &Arc<OutputLog>, abandon: bool) {
        let progress = match &self.end {
            End::Ended => return,
            End::Pipe { fd, .. } => read_into(log, self.stream, fd.get_ref()),
            End::Flooding { fd, .. } => read_into(log, self.stream, fd),
            End::Terminal(fd) => read_into(log, self.stream, fd.get_ref()),
        };
        if matches!(progress, Progress::Ended) || (abandon && matches!(progress, Progress::Drained { .. })) {
            self.end = End::Ended;
        }
    }

    /// Leaves a flood alone for a while, where its pipe can be made large enough to hold what comes meanwhile.
    fn unwatch(&mut self) {
        self.end = match std::mem::replace(&mut self.end, End::Ended) {
            End::Pipe { fd, .. } if fcntl_setpipe_size(&fd, FLOOD_PIPE_BYTES).is_ok() => {
                End::Flooding { fd: fd.into_inner(), read_at: Instant::now() + PAUSE }
            }
            End::Pipe { fd, .. } => End::Pipe { fd, pieces: 0 },
            other => other,
        };
    }

    /// Goes back to waiting for readiness; looks again after a moment where the watch list is full.
    fn watch(&mut self) {
        self.end = match std::mem::replace(&mut self.end, End::Ended) {
            End::Flooding { fd, .. } => match watched_or_back(fd, Interest::READABLE) {
                Ok(fd) => End::Pipe { fd, pieces: 0 },
                Err((fd, _)) => End::Flooding { fd, read_at: Instant::now() + PAUSE },
            },
            other => other,
        };
    }
}

/// Waits for readiness, then reads a turn's worth; none at the end of the stream. A stream that gave much stays
/// marked as ready: when its output has been taken there is probably more, and looking costs less than being woken.
async fn turn<T: AsRawFd + AsFd>(
    fd: &AsyncFd<T>,
    stream: ExecOutputStream,
    log: &Arc<OutputLog>,
) -> Option<Progress> {
    let mut ready = fd.readable().await.ok()?;
    let progress = read_into(log, stream, fd.get_ref());
    if progress.is_gap() {
        ready.clear_ready();
    }
    (!matches!(progress, Progress::Ended)).then_some(progress)
}

/// Reads until the descriptor has nothing, the log has no room, or the turn is over.
fn read_into(log: &Arc<OutputLog>, stream: ExecOutputStream, fd: impl AsFd) -> Progress {
    let mut taken = 0;
    let progress = SCRATCH.with_borrow_mut(|buffer| {
        let mut room = log.window();
        while taken < TURN_BYTES {
            let wanted = usize::try_from(room).unwrap_or(usize::MAX).min(buffer.len());
            if wanted == 0 {
                return Progress::More;
            }
            match rustix::io::read(fd.as_fd(), &mut buffer[..wanted]) {
                Ok(0) => return Progress::Ended,
                Ok(count) => {
                    room = log.append(stream, &buffer[..count]);
                    taken += count;
                    // A short read has emptied a pipe; new data makes it ready anew. A terminal gives a page at most.
                    if count < wanted && count < TERMINAL_READ {
                        return Progress::Drained { taken };
                    }
                }
                Err(Errno::AGAIN) => return Progress::Drained { taken },
                Err(Errno::INTR) => {}
                // A terminal reports the end of its last program as an I/O error.
                Err(_) => return Progress::Ended,
            }
        }
        Progress::More
    });
    if taken > 0 {
        log.announce();
    }
    progress
}
