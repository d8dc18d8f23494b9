use crate::fs::FsError;
use crate::protocol::discovery::MAX_CAPABILITY_ROOTS;

/// Why a discovery failed as a whole.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// The request names more roots than one may.
    #[error(
        "capability root discovery accepts at most {MAX_CAPABILITY_ROOTS} roots, and `roots` has {0}; send several \
         requests"
    )]
    TooManyRoots(usize),
    /// The sandbox cannot be enforced.
    #[error(transparent)]
    Sandbox(#[from] FsError),
    /// The work ended without a result.
    #[error("the discovery was not finished: {0}")]
    Interrupted(String),
}
