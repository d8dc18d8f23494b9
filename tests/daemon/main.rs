//! The daemon from outside: real processes, real sockets, the real program.

mod control;
mod ending;
mod output;
mod support;
mod terminal;
