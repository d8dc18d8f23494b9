//! Sandboxes through the library: this program makes them and becomes their helper.

#![expect(clippy::unwrap_used, reason = "a test, which the lint cannot see without the usual harness")]

mod broker;
mod peers;
mod ports;
mod private;
mod support;
mod transparent;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    if exec_server::helper::dispatch() {
        return ExitCode::SUCCESS;
    }
    let tests = [private::tests(), broker::tests(), ports::tests(), peers::tests(), transparent::tests()];
    let tests: Vec<Trial> = tests.into_iter().flatten().collect();
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}
