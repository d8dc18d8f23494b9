//! From a policy to its enforcement on this machine: prepares, and never touches this process.
//!
//! * [`ground`] is the one normal form: a policy on real paths. Everything that enforces one derives from it.
//! * [`plan`] is what the helper is told about one run; [`launch`] starts a helper with it.
//! * [`landlock`] and [`seccomp`] build rules; the helper and the child apply them.

pub mod ground;
pub mod landlock;
pub mod launch;
pub mod plan;
pub mod seccomp;

/// The hidden first argument by which the program becomes the init of a sandbox.
pub const WORD: &str = "__exec-server-sandbox";
