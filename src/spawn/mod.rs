//! The only place that creates children, and that knows which processes belong to this server.
//!
//! * [`exec`] makes one child: without copying page tables, allocation-free between clone and exec, with its pidfd.
//! * [`isolation`] sets a child apart: by rules, or by namespaces of which it is the init; [`inner`] is then the program.
//! * [`terminal`] makes pseudo-terminals.
//! * [`mark`] gives every run a mark that its whole tree inherits; [`tree`] finds and ends trees by it.
//! * [`lookup`] finds the file that a program name means.
//! * [`lineage`] tells what a process came of, and [`kin`] whether that is one run; [`peer`] who is at the other end of a unix socket.
//! * [`reaper`] reaps orphans that the server adopted, without stealing the status of its own children.
//! * [`watched`] waits on what they leave in our hands.
//! * `roster` is the list of children that outlives the server; [`guard`] is the helper that ends everything when the server itself is killed.
//!
//! It never decides what runs: program, environment and limits come ready from above.

pub mod exec;
pub mod guard;
pub mod inner;
pub mod isolation;
pub mod kin;
pub mod lineage;
pub mod lookup;
pub mod mark;
pub mod peer;
pub mod reaper;
mod roster;
pub mod terminal;
pub mod tree;
pub mod watched;

pub use exec::{
    Child, ExitStatus, HIGHEST_INHERITED, Inherited, Launch, SpawnError, SpawnStage, Stdio, spawn,
};
