//! What confines a run, and what it leaves behind on the host while it is confined.
//!
//! * [`placeholders`] keeps protected paths that do not exist from being created.

pub mod placeholders;

use std::path::Path;
use std::sync::Arc;

use self::placeholders::Placeholders;

/// What all sandboxes of one server share.
#[derive(Debug)]
pub struct Sandboxes {
    /// The owner of their placeholders.
    pub placeholders: Placeholders,
}

impl Sandboxes {
    /// Those of a server with this state directory, if it has one. Reads the directory: it blocks for a moment.
    #[must_use]
    pub fn new(state_dir: Option<&Path>) -> Arc<Self> {
        Arc::new(Self { placeholders: Placeholders::new(state_dir) })
    }
}
