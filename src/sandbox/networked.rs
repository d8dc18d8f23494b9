//! Sandboxed runs that can reach sockets of this machine, the server's own among them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// The runs of a server.
#[derive(Debug, Default)]
pub struct NetworkedRuns(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    live: usize,
    /// Of these the first process is not known yet.
    starting: usize,
    leaders: HashSet<i32>,
    last_end: Option<Instant>,
}

/// One run. It lasts from before its first process exists until none of its processes can be alive.
#[derive(Debug)]
pub struct NetworkedRun {
    runs: Arc<NetworkedRuns>,
    leader: OnceLock<i32>,
    scatters: bool,
}

impl NetworkedRuns {
    /// Announces a run, before its first process is made. Where its processes do not all end with the first
    /// (`scatters`), nobody can say when the last of them has ended, and so the run counts as alive for good.
    #[must_use]
    pub fn begin(self: &Arc<Self>, scatters: bool) -> NetworkedRun {
        let mut state = self.state();
        state.live += 1;
        state.starting += 1;
        NetworkedRun { runs: Arc::clone(self), leader: OnceLock::new(), scatters }
    }

    /// Whether one of them was alive at this time or later; without a time, ever.
    #[must_use]
    pub fn lived_since(&self, time: Option<Instant>) -> bool {
        let state = self.state();
        state.live > 0 || state.last_end.is_some_and(|end| time.is_none_or(|time| end >= time))
    }

    /// Whether this child of the server is the first process of one; `None` while that cannot be told.
    #[must_use]
    pub fn are_led_by(&self, child: i32) -> Option<bool> {
        let state = self.state();
        let leads = state.leaders.contains(&child);
        (leads || state.starting == 0).then_some(leads)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NetworkedRun {
    /// Names the first process, a child of the server.
    pub fn led_by(&self, pid: i32) {
        let mut state = self.runs.state();
        if self.leader.set(pid).is_ok() {
            state.starting -= 1;
            state.leaders.insert(pid);
        }
    }
}

impl Drop for NetworkedRun {
    fn drop(&mut self) {
        let mut state = self.runs.state();
        match self.leader.get() {
            // Its id may be given to another child now.
            Some(leader) => drop(state.leaders.remove(leader)),
            None => state.starting -= 1,
        }
        if self.leader.get().is_none() || !self.scatters {
            state.live -= 1;
            state.last_end = Some(Instant::now());
        }
    }
}
