use crate::path_uri::ForeignPath;

/// Why a context is refused before anything is looked at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// It asks for a mechanism of another platform.
    #[error("windowsSandboxLevel `mxc` is a sandbox of Windows; this executor runs on Linux")]
    Mxc,
    /// A path of it is of another platform.
    #[error("sandbox {member}: {error}")]
    Foreign {
        /// The member that holds the path.
        member: String,
        /// What is wrong with it.
        error: ForeignPath,
    },
    /// It has relative parts, and nobody says what they are relative to.
    #[error("sandbox entry {entry} requires cwd: name one in policyContext.cwd")]
    NoCwd {
        /// The entry that is relative.
        entry: String,
    },
    /// A deny glob that cannot be enforced as it is written.
    #[error("sandbox deny glob `{pattern}`: {reason}")]
    Glob {
        /// The pattern.
        pattern: String,
        /// What is wrong with it, and how to write it.
        reason: String,
    },
    /// It is too large.
    #[error("the sandbox policy has more than {most} {what}; name directories instead of what is in them")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// The most that there may be.
        most: usize,
    },
}
