//! The `exec-server` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    exec_server::cli::main()
}
