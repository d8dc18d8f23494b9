//! The `exec-server` program.

fn main() {}
