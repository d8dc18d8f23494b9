//! `exec-server token`: makes tokens.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;

use super::args::NewTokenArgs;
use crate::config::state_dir;
use crate::server::auth::token;

/// Makes a token, and puts it where it was asked for, or prints it.
pub(super) fn new(args: &NewTokenArgs) -> anyhow::Result<ExitCode> {
    match (&args.out, &args.state_dir) {
        (Some(path), _) => write(path)?,
        (None, Some(directory)) => write(&state_dir(Some(directory), |_| None)?.join("token"))?,
        (None, None) => println!("{}", token::random().context("no token can be made")?),
    }
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path) -> anyhow::Result<()> {
    token::create(path).with_context(|| format!("cannot write a token to {}", path.display()))
}
