use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether work on a blocking thread is still wanted.
#[derive(Debug, Clone, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(super) fn is_wanted(&self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }
}

/// Held by whoever waits for the work; its end stops it.
#[derive(Debug, Default)]
pub(super) struct StopOnDrop(Stop);

impl StopOnDrop {
    pub(super) fn stop(&self) -> Stop {
        self.0.clone()
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}
