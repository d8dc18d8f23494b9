//! What other programs know of the command line: completions of shells, and manual pages.

use std::io::{Write, stdout};
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use super::args::Cli;

/// Prints the completions for a shell.
pub(super) fn completions(shell: Shell) -> anyhow::Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "exec-server", &mut text);
    print(&text)
}

/// Prints a page in the form of man(7).
pub(super) fn man(command: Option<&str>) -> anyhow::Result<ExitCode> {
    let mut program = Cli::command();
    // Commands know their whole name only after this.
    program.build();
    let page = match command {
        None => program,
        Some(name) => {
            let command = program.find_subcommand(name);
            command
                .cloned()
                .with_context(|| format!("there is no command {name:?}; see `exec-server --help`"))?
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text)?;
    print(&text)
}

pub(super) fn print(text: &[u8]) -> anyhow::Result<ExitCode> {
    stdout().write_all(text).context("cannot write to stdout")?;
    Ok(ExitCode::SUCCESS)
}
