//! The events of one remote process: ordered, published once, and what is known about its output.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::reorder::{Limits, Overflow, Reorder};
use crate::backend::{ExecProcessEvent, ExecProcessEvents, OutputAccounting};
use crate::protocol::process::{AccountedRead, ClosedParams, ExitedParams, LostOutput, ProcessOutputChunk};

/// Events that may wait for earlier ones. A server in order needs none of it.
const LIMITS: Limits = Limits { events: 256, bytes: 1 << 20 };
/// The same while the gap of an outage is being read: what is dropped then is read again.
const LIMITS_IN_RECOVERY: Limits = Limits { events: 1024, bytes: 4 << 20 };

/// Whether more can come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// It can.
    Open,
    /// The last event has been published.
    Ended,
}

/// What the read of a gap leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gap {
    /// Everything is there; events flow again.
    Closed,
    /// Read again.
    Open,
    /// The process has ended.
    Ended,
}

/// See the module's description. One lock is held while publishing, so that two publishers keep the order.
#[derive(Debug)]
pub(super) struct OrderedEvents {
    published: Arc<ExecProcessEvents>,
    wake: watch::Sender<u64>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    order: Reorder,
    accounting: OutputAccounting,
    in_recovery: bool,
    /// Something was dropped while in recovery.
    dropped: bool,
    failure: Option<Arc<str>>,
    closed: bool,
}

impl OrderedEvents {
    pub(super) fn new() -> Arc<Self> {
        let (wake, _) = watch::channel(0);
        Arc::new(Self { published: ExecProcessEvents::new(), wake, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn published(&self) -> &Arc<ExecProcessEvents> {
        &self.published
    }

    pub(super) fn subscribe_wake(&self) -> watch::Receiver<u64> {
        self.wake.subscribe()
    }

    pub(super) fn accounting(&self) -> OutputAccounting {
        self.state().accounting
    }

    /// Why no more will come although the process has not been seen to close.
    pub(super) fn failure(&self) -> Option<Arc<str>> {
        self.state().failure.clone()
    }

    /// Whether any subscriber would miss what comes.
    pub(super) fn has_subscribers(&self) -> bool {
        Arc::strong_count(&self.published) > 1
    }

    /// The server told a chunk of output.
    pub(super) fn output(&self, chunk: ProcessOutputChunk) -> Progress {
        self.accept(ExecProcessEvent::Output(chunk))
    }

    /// The server told the exit.
    pub(super) fn exited(&self, exit: ExitedParams) -> Progress {
        if exit.reason.is_some() {
            self.state().accounting.reason = exit.reason;
        }
        let ExitedParams { seq, exit_code, sandbox_denied, .. } = exit;
        self.accept(ExecProcessEvent::Exited { seq, exit_code, sandbox_denied })
    }

    /// The server told the close.
    pub(super) fn closed(&self, close: &ClosedParams) -> Progress {
        if close.output_bytes.is_some() {
            self.state().accounting.totals = close.output_bytes;
        }
        self.accept(ExecProcessEvent::Closed { seq: close.seq })
    }

    fn accept(&self, event: ExecProcessEvent) -> Progress {
        let mut state = self.state();
        let limits = if state.in_recovery { LIMITS_IN_RECOVERY } else { LIMITS };
        match state.order.insert(event, limits) {
            Ok(()) => self.publish_ready(&mut state),
            Err(Overflow) if state.in_recovery => state.dropped = true,
            Err(Overflow) => {
                let missing = state.order.taken() + 1;
                let why = format!("the server left out event {missing} and went on without it");
                self.publish_failure(&mut state, &why.into());
            }
        }
        progress(&state)
    }

    fn publish_ready(&self, state: &mut State) {
        while let Some(event) = state.order.take() {
            state.closed |= matches!(event, ExecProcessEvent::Closed { .. });
            self.published.publish(event);
        }
        self.wake(state.order.seen());
    }

    fn wake(&self, seq: u64) {
        self.wake.send_if_modified(|noticed| {
            let news = seq > *noticed;
            *noticed = seq.max(*noticed);
            news
        });
    }

    /// The connection is gone; the last event published, after which to read.
    pub(super) fn begin_recovery(&self) -> u64 {
        let mut state = self.state();
        state.in_recovery = true;
        state.order.taken()
    }

    /// Publishes what was read after [`Self::taken`]. What is missing there is lost.
    pub(super) fn fill(&self, read: AccountedRead) -> Gap {
        let mut state = self.state();
        let nothing_new = read.response.chunks.is_empty();
        let filled = state.order.fill(read);
        if let Some(lost) = filled.lost {
            state.accounting.lost = Some(join(state.accounting.lost, lost));
        }
        self.publish_ready(&mut state);
        let dropped = std::mem::take(&mut state.dropped);
        state.in_recovery = dropped || (filled.more && !nothing_new);
        match (progress(&state), state.in_recovery) {
            (Progress::Ended, _) => Gap::Ended,
            (Progress::Open, true) => Gap::Open,
            (Progress::Open, false) => Gap::Closed,
        }
    }

    /// The last event published.
    pub(super) fn taken(&self) -> u64 {
        self.state().order.taken()
    }

    /// A read of the user met output that is gone.
    pub(super) fn note_lost(&self, lost: LostOutput) {
        self.state().accounting.lost = Some(lost);
    }

    /// Nothing more will come, for this reason.
    pub(super) fn fail(&self, why: &Arc<str>) {
        self.publish_failure(&mut self.state(), why);
    }

    fn publish_failure(&self, state: &mut State, why: &Arc<str>) {
        if state.closed || state.failure.is_some() {
            return;
        }
        state.failure = Some(Arc::clone(why));
        self.published.publish(ExecProcessEvent::Failed(why.to_string()));
        self.wake.send_modify(|noticed| *noticed = noticed.saturating_add(1));
    }
}

fn progress(state: &State) -> Progress {
    if state.closed || state.failure.is_some() { Progress::Ended } else { Progress::Open }
}

fn join(before: Option<LostOutput>, now: LostOutput) -> LostOutput {
    let Some(before) = before else { return now };
    LostOutput {
        bytes: before.bytes.saturating_add(now.bytes),
        first_seq: before.first_seq.min(now.first_seq),
        last_seq: before.last_seq.max(now.last_seq),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::process::{ExecOutputStream, ReadResponse};
    use pretty_assertions::assert_eq;

    fn chunk(seq: u64, size: usize) -> ProcessOutputChunk {
        ProcessOutputChunk { seq, stream: ExecOutputStream::Stdout, chunk: vec![0; size].into() }
    }

    fn read(chunks: Vec<ProcessOutputChunk>, next_seq: u64) -> AccountedRead {
        let response = ReadResponse {
            chunks,
            next_seq,
            exited: false,
            exit_code: None,
            closed: false,
            failure: None,
            sandbox_denied: false,
        };
        AccountedRead { response, lost: None }
    }

    #[test]
    fn a_firehose_during_recovery_is_read_again_not_failed() {
        let events = OrderedEvents::new();
        events.output(chunk(1, 1));
        assert_eq!(events.begin_recovery(), 1);
        for seq in 3..=2000 {
            assert_eq!(events.output(chunk(seq, 1)), Progress::Open);
        }
        assert_eq!(events.fill(read(vec![chunk(2, 1)], 3)), Gap::Open);
        assert_eq!(events.taken(), 1026);
        let rest = (1027..=2000).map(|seq| chunk(seq, 1)).collect();
        assert_eq!(events.fill(read(rest, 2001)), Gap::Closed);
        assert_eq!((events.taken(), events.failure()), (2000, None));
    }

    #[tokio::test]
    async fn a_server_that_skips_an_event_fails_its_process() {
        let events = OrderedEvents::new();
        let mut receiver = events.published().subscribe();
        let mut wake = events.subscribe_wake();
        for seq in 2..=257 {
            assert_eq!(events.output(chunk(seq, 1)), Progress::Open);
        }
        assert_eq!(*wake.borrow_and_update(), 257);
        assert_eq!(events.output(chunk(258, 1)), Progress::Ended);
        assert!(
            matches!(receiver.recv().await, Ok(ExecProcessEvent::Failed(why)) if why.contains("event 1"))
        );
        assert_eq!(*wake.borrow_and_update(), 258);
    }

    #[test]
    fn losses_add_up() {
        let one = LostOutput { bytes: 5, first_seq: 3, last_seq: 4 };
        let two = LostOutput { bytes: 6, first_seq: 9, last_seq: 9 };
        assert_eq!(join(Some(one), two), LostOutput { bytes: 11, first_seq: 3, last_seq: 9 });
    }
}
