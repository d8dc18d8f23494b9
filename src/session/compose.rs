//! From what a client asks for to what is executed.
//!
//! Commands as they are given, commands with a restored shell, and captures of a shell all come through here, so that
//! environment and protection are the same for each.

use super::{Executor, StartError};
use crate::process::{ProcessSpec, env};
use crate::protocol::process::StartParams;
use crate::snapshot::{Capture, Snapshot};

/// What is run of a start.
#[derive(Debug)]
pub(super) enum Form<'a> {
    /// The command.
    AsGiven,
    /// The shell's start-up files, to learn its state.
    Capture(&'a mut Capture),
    /// The command, in a shell of this state.
    Restored(&'a Snapshot),
}

/// Composes a run: inherited variables, what a snapshot has changed in them, the request's own over both; then the
/// command line.
///
/// # Errors
/// [`StartError::InvalidParams`] for a working directory that is none on this machine.
pub(super) fn compose(
    params: &StartParams,
    executor: &Executor,
    form: Form<'_>,
) -> Result<ProcessSpec, StartError> {
    let exec = &params.exec;
    let cwd =
        exec.cwd.to_native_path().map_err(|error| StartError::InvalidParams(format!("`cwd`: {error}")))?;
    let mut variables = env::inherited(exec.env_policy.as_ref(), executor.environment());
    if let Form::Restored(snapshot) = form {
        snapshot.lay_over(&mut variables);
    }
    env::lay_over(&mut variables, &exec.env);
    let mut spec = ProcessSpec {
        id: exec.process_id.clone(),
        argv: exec.argv.clone(),
        arg0: exec.arg0.clone(),
        cwd,
        env: variables,
        terminal: exec.tty.then(|| params.options.size.unwrap_or_default()),
        pipe_stdin: exec.pipe_stdin,
        inherited: Vec::new(),
    };
    match form {
        Form::AsGiven => {}
        Form::Capture(capture) => capture.put_in_place(&mut spec),
        Form::Restored(snapshot) => snapshot.put_before(&mut spec),
    }
    Ok(spec)
}
