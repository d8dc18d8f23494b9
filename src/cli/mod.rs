//! The command line: reads arguments and settings, starts what was asked for, and turns its end into an exit code.
//!
//! Exit codes: 0 done, 1 a setting or the work failed (one clear sentence on stderr), 2 the arguments are wrong. `run`
//! and `doctor` have more.

pub mod args;
mod client;
mod config_check;
mod cp;
mod doctor;
mod health;
mod help;
mod kill;
mod limits;
mod local;
mod logs;
mod name_service;
mod pages;
mod ps;
mod run;
mod sandboxes;
mod schema;
mod serve;
mod serve_args;
mod settings;
mod signals;
mod terminal;
mod token;

use std::process::ExitCode;

use clap::Parser;

use crate::config::ConfigError;
use args::{Cli, Command, ConfigCommand, TokenCommand};

const FAILURE: u8 = 1;
const USAGE: u8 = 2;

/// Runs the program with the arguments and the environment of this process.
#[must_use]
pub fn main() -> ExitCode {
    name_service::keep_to_what_is_linked();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return explain(&error),
    };
    match dispatch(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("exec-server: {error:#}");
            ExitCode::from(code_of(&error))
        }
    }
}

fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        None => serve::serve(&cli.serve),
        Some(Command::Config { command: ConfigCommand::Check(args) }) => config_check::run(&args),
        Some(Command::Doctor(args)) => doctor::run(&args),
        Some(Command::Health(args)) => health::run(&args),
        Some(Command::Token { command: TokenCommand::New(args) }) => token::new(&args),
        Some(Command::Completions { shell }) => pages::completions(shell),
        Some(Command::Man { command }) => pages::man(command.as_deref()),
        Some(Command::Schema) => schema::run(),
        Some(Command::Run(args)) => run::run(args),
        Some(Command::Cp(args)) => cp::run(&args),
        Some(Command::Ps(args)) => ps::run(args),
        Some(Command::Logs(args)) => logs::run(args),
        Some(Command::Kill(args)) => kill::run(args),
    }
}

/// Help and version go to stdout with code 0, errors to stderr with code 2.
fn explain(error: &clap::Error) -> ExitCode {
    // Nobody is left to tell that stdout or stderr is closed.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
}

fn code_of(error: &anyhow::Error) -> u8 {
    let is_usage = error.downcast_ref::<ConfigError>().is_some_and(ConfigError::is_usage);
    if is_usage { USAGE } else { FAILURE }
}
