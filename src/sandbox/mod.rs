//! Confines what it starts: prepares, and never touches this process.
//!
//! * [`plan`] is what the helper is told about one run; [`launch`] starts a helper with it.
//! * [`landlock`] and [`seccomp`] build rules; the helper and the child apply them.

pub mod landlock;
pub mod launch;
pub mod plan;
pub mod seccomp;

/// The hidden first argument by which the program becomes the init of a sandbox.
pub const WORD: &str = "__exec-server-sandbox";
