//! From a policy to its enforcement on this machine.
//!
//! [`ground`] is the one normal form: a policy on real paths. Everything that enforces one derives from it.

pub mod ground;
