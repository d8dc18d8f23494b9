//! The daemon from outside: real processes, real sockets, the real program.

mod output;
mod support;
