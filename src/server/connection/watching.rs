//! The one watch that a connection may have.

use std::task::{Context, Poll};

use crate::fs::Watch;

/// The watch of a connection, and the ids that it has used.
#[derive(Debug, Default)]
pub(super) struct Watching {
    last_id: u64,
    current: Option<Box<Watch>>,
}

impl Watching {
    /// Takes an id and ends the watch before it. False for an id that is not above all before; it changes nothing.
    pub(super) fn begin(&mut self, id: u64) -> bool {
        let is_new = id > self.last_id;
        if is_new {
            self.last_id = id;
            self.current = None;
        }
        is_new
    }

    /// Takes the watch of the last id. One that was replaced while it was being made ends here.
    pub(super) fn set(&mut self, watch: Box<Watch>) {
        if watch.id() == self.last_id {
            self.current = Some(watch);
        }
    }

    /// The id of the watch, if something has changed already. The watch has ended then.
    pub(super) fn changed(&mut self) -> Option<u64> {
        self.current.take_if(|watch| watch.has_changed()).map(|watch| watch.id())
    }

    /// The id of the watch, when something has changed. The watch has ended then.
    pub(super) fn poll_changed(&mut self, cx: &mut Context<'_>) -> Poll<u64> {
        match self.current.take_if(|watch| watch.poll_changed(cx).is_ready()) {
            Some(watch) => Poll::Ready(watch.id()),
            None => Poll::Pending,
        }
    }
}
