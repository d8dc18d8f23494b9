//! The processes of one session by their names.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::ConnectionId;
use crate::process::Process;
use crate::protocol::process::{ProcessId, SandboxType, StartParams};

/// A name that is taken.
#[derive(Debug)]
pub(super) enum Entry {
    /// By a start in progress; `end` is the grace if its end was asked for meanwhile.
    Starting { params: Arc<StartParams>, origin: ConnectionId, end: Option<Duration> },
    /// By a process, running or ended.
    Present {
        process: Arc<Process>,
        params: Arc<StartParams>,
        origin: ConnectionId,
        sandbox: SandboxType,
        order: u64,
    },
}

impl Entry {
    pub(super) fn request(&self) -> (&StartParams, ConnectionId) {
        match self {
            Self::Starting { params, origin, .. } | Self::Present { params, origin, .. } => (params, *origin),
        }
    }
}

/// One process, for listing.
pub(super) struct Row<'a> {
    pub(super) process: &'a Process,
    pub(super) params: &'a StartParams,
    pub(super) sandbox_type: SandboxType,
    pub(super) order: u64,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    entries: HashMap<ProcessId, Entry>,
    started: u64,
    ended: bool,
}

impl Table {
    pub(super) fn get(&self, id: &ProcessId) -> Option<&Entry> {
        self.entries.get(id)
    }

    pub(super) fn get_mut(&mut self, id: &ProcessId) -> Option<&mut Entry> {
        self.entries.get_mut(id)
    }

    pub(super) fn is_ended(&self) -> bool {
        self.ended
    }

    pub(super) fn ever_started(&self) -> bool {
        self.started > 0
    }

    /// Processes that have not ended, and starts in progress.
    pub(super) fn live(&self) -> usize {
        let live = |entry: &&Entry| match entry {
            Entry::Starting { .. } => true,
            Entry::Present { process, .. } => !process.log().status().closed,
        };
        self.entries.values().filter(live).count()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn starting(&self) -> usize {
        self.entries.values().filter(|entry| matches!(entry, Entry::Starting { .. })).count()
    }

    pub(super) fn reserve(&mut self, id: ProcessId, params: Arc<StartParams>, origin: ConnectionId) {
        self.entries.insert(id, Entry::Starting { params, origin, end: None });
    }

    /// Frees a name that a start has not filled.
    pub(super) fn release(&mut self, id: &ProcessId) {
        if matches!(self.entries.get(id), Some(Entry::Starting { .. })) {
            self.entries.remove(id);
        }
    }

    /// The reserved name now means this process. Returns the grace if its end was asked for already.
    pub(super) fn fill(&mut self, process: &Arc<Process>, sandbox: SandboxType) -> Option<Duration> {
        self.started += 1;
        let order = self.started;
        if let Some(entry) = self.entries.get_mut(process.id())
            && let Entry::Starting { params, origin, end } = entry
        {
            let (params, origin, end) = (Arc::clone(params), *origin, *end);
            *entry = Entry::Present { process: Arc::clone(process), params, origin, sandbox, order };
            return end;
        }
        None
    }

    /// Forgets a record, unless the name has been taken by another process since.
    pub(super) fn forget(&mut self, process: &Arc<Process>) {
        let same = |entry: &Entry| matches!(entry, Entry::Present { process: kept, .. } if Arc::ptr_eq(kept, process));
        if self.entries.get(process.id()).is_some_and(same) {
            self.entries.remove(process.id());
        }
    }

    pub(super) fn processes(&self) -> Vec<Arc<Process>> {
        let present = |entry: &Entry| match entry {
            Entry::Present { process, .. } => Some(Arc::clone(process)),
            Entry::Starting { .. } => None,
        };
        self.entries.values().filter_map(present).collect()
    }

    pub(super) fn present(&self) -> impl Iterator<Item = Row<'_>> {
        self.entries.values().filter_map(|entry| match entry {
            Entry::Starting { .. } => None,
            Entry::Present { process, params, sandbox, order, .. } => {
                Some(Row { process, params, sandbox_type: *sandbox, order: *order })
            }
        })
    }

    /// Lets nothing be started any more; returns what there is to end.
    pub(super) fn end(&mut self) -> Vec<Arc<Process>> {
        self.ended = true;
        self.processes()
    }
}
