//! The `exec-server` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything else: a helper is single-threaded and knows no command line.
    if exec_server::helper::dispatch() {
        return ExitCode::SUCCESS;
    }
    exec_server::cli::main()
}
