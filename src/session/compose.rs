//! From what a client asks for to what is executed.
//!
//! Commands as they are given, commands with a restored shell, and captures of a shell all come through here, so that
//! environment and protection are the same for each.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use super::egress::{Doors, Egress, Way};
use super::{Executor, StartError};
use crate::process::{ProcessSpec, env};
use crate::protocol::process::{ExecParams, StartParams};
use crate::sandbox::{Prepared, Wanted, WantedNetwork};
use crate::snapshot::{Capture, Snapshot};

/// A run, ready to start.
#[derive(Debug)]
pub(super) struct Composed {
    /// What runs.
    pub(super) spec: ProcessSpec,
    /// What confines it.
    pub(super) sandbox: Option<Prepared>,
    /// Its doors to the network.
    pub(super) doors: Option<Doors>,
}

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

/// Composes a run: inherited variables, what a snapshot has changed in them, the request's own over both, those of its
/// proxy over everything; then the command line; then the sandbox around it.
///
/// # Errors
/// [`StartError::InvalidParams`] for a working directory that is none on this machine and for variables that name no
/// usable proxy, [`StartError::Sandbox`] for a policy that is not enforced.
pub(super) async fn compose(
    params: &StartParams,
    executor: &Executor,
    form: Form<'_>,
    egress: Option<&Arc<Egress>>,
) -> Result<Composed, StartError> {
    let (mut spec, mut way) = specify(params, executor, form, egress)?;
    spec.introduction = way.as_mut().and_then(|way| way.introduction.take());
    let network = way.as_ref().map(|way| way.network.clone()).unwrap_or_default();
    let mut sandbox = confine(&params.exec, &spec, network, executor).await?;
    if let Some(why) = way.as_mut().and_then(|way| way.refusal.take())
        && !sandbox.as_mut().is_some_and(|sandbox| sandbox.refuse(&why))
    {
        return Err(StartError::InvalidParams(why));
    }
    let entrance = sandbox.as_mut().and_then(Prepared::take_entrance);
    Ok(Composed { spec, sandbox, doors: way.map(|way| way.open(entrance)) })
}

/// Decides how the policy of a start is enforced.
async fn confine(
    exec: &ExecParams,
    spec: &ProcessSpec,
    network: WantedNetwork,
    executor: &Executor,
) -> Result<Option<Prepared>, StartError> {
    let Some(context) = exec.sandbox.clone() else { return Ok(None) };
    let temporary = spec.env.get(b"TMPDIR".as_slice());
    let wanted = Wanted {
        context,
        cwd: spec.cwd.clone(),
        temporary_directory: temporary.map(|path| OsStr::from_bytes(path).into()),
        network,
    };
    let sandboxes = Arc::clone(executor.sandboxes());
    let prepared = tokio::task::spawn_blocking(move || sandboxes.prepare(&wanted)).await;
    Ok(Some(prepared.map_err(|_| StartError::SessionEnded)??))
}

fn specify(
    params: &StartParams,
    executor: &Executor,
    form: Form<'_>,
    egress: Option<&Arc<Egress>>,
) -> Result<(ProcessSpec, Option<Way>), StartError> {
    let exec = &params.exec;
    let cwd =
        exec.cwd.to_native_path().map_err(|error| StartError::InvalidParams(format!("`cwd`: {error}")))?;
    let mut variables = env::inherited(exec.env_policy.as_ref(), executor.environment());
    if let Form::Restored(snapshot) = form {
        snapshot.lay_over(&mut variables);
    }
    env::lay_over(&mut variables, &exec.env);
    let way = egress.map(|egress| egress.arrange(&mut variables)).transpose()?;
    let mut spec = ProcessSpec {
        id: exec.process_id.clone(),
        argv: exec.argv.clone(),
        arg0: exec.arg0.clone(),
        cwd,
        env: variables,
        terminal: exec.tty.then(|| params.options.size.unwrap_or_default()),
        pipe_stdin: exec.pipe_stdin,
        inherited: Vec::new(),
        introduction: None,
    };
    match form {
        Form::AsGiven => {}
        Form::Capture(capture) => capture.put_in_place(&mut spec),
        Form::Restored(snapshot) => snapshot.put_before(&mut spec),
    }
    Ok((spec, way))
}
