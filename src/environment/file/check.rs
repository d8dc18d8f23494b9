//! The rules of `environments.toml` that its form does not express.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use super::schema::{Entry, File};
use super::{Configured, Settings};
use crate::backend::{ExecServerError, Result};
use crate::client::ProgramCommand;
use crate::environment::LOCAL_ENVIRONMENT_ID;
use crate::environment::definition::{Definition, RemoteEnvironmentOptions, check_id};

/// Checks a file of a directory, to which its relative paths are relative.
///
/// # Errors
/// [`ExecServerError::Protocol`] with the first rule that is broken, and by whom.
pub(super) fn check(file: File, directory: &Path) -> Result<Settings> {
    let File { default, include_local, environments } = file;
    let mut ids = HashSet::new();
    let mut checked = Vec::with_capacity(environments.len());
    for entry in environments {
        check_id(&entry.id)?;
        if !ids.insert(entry.id.clone()) {
            return refuse(format!("environment id `{}` is duplicated", entry.id));
        }
        checked.push(configured(entry, directory)?);
    }
    let default = default_of(default.as_deref(), include_local, &ids)?;
    Ok(Settings { default, include_local, environments: checked })
}

fn default_of(wanted: Option<&str>, include_local: bool, ids: &HashSet<String>) -> Result<Option<String>> {
    let Some(wanted) = wanted.map(str::trim) else {
        return Ok(include_local.then(|| LOCAL_ENVIRONMENT_ID.to_owned()));
    };
    if wanted.eq_ignore_ascii_case("none") {
        return Ok(None);
    }
    if wanted.is_empty() {
        return refuse("default must not be empty: name an environment, or \"none\"".to_owned());
    }
    let is_local = wanted == LOCAL_ENVIRONMENT_ID && include_local;
    if !is_local && !ids.contains(wanted) {
        return refuse(format!("default environment `{wanted}` is not configured"));
    }
    Ok(Some(wanted.to_owned()))
}

fn configured(entry: Entry, directory: &Path) -> Result<Configured> {
    let id = entry.id.clone();
    let required_skills = entry.skills.required.clone();
    let definition = definition(entry, directory)?;
    Ok(Configured { id, definition, required_skills })
}

fn definition(mut entry: Entry, directory: &Path) -> Result<Definition> {
    match (entry.url.take(), entry.program.take()) {
        (Some(url), None) => server(url, entry),
        (None, Some(program)) => program_of(program, entry, directory),
        _ => refuse(format!("environment `{}` must set exactly one of url or program", entry.id)),
    }
}

fn server(url: String, entry: Entry) -> Result<Definition> {
    let id = &entry.id;
    if !entry.args.is_empty() || !entry.env.is_empty() || entry.cwd.is_some() {
        return refuse(format!("environment `{id}` args, env, and cwd require program"));
    }
    let options = RemoteEnvironmentOptions {
        url,
        auth_bearer_token: entry.auth_bearer_token,
        request_id: None,
        connect_timeout: seconds(id, "connect_timeout_sec", entry.connect_timeout_sec)?,
        initialize_timeout: seconds(id, "initialize_timeout_sec", entry.initialize_timeout_sec)?,
    };
    Definition::remote(options).map_err(|error| of(id, &error))
}

fn program_of(program: String, entry: Entry, directory: &Path) -> Result<Definition> {
    let id = &entry.id;
    require_url(id, "auth_bearer_token", entry.auth_bearer_token.is_none())?;
    require_url(id, "connect_timeout_sec", entry.connect_timeout_sec.is_none())?;
    let initialize_timeout = seconds(id, "initialize_timeout_sec", entry.initialize_timeout_sec)?;
    let cwd = entry.cwd.map(|cwd| directory.join(cwd));
    let command = ProgramCommand { program, args: entry.args, env: entry.env, cwd };
    Definition::program(command, initialize_timeout).map_err(|error| of(id, &error))
}

fn of(id: &str, error: &ExecServerError) -> ExecServerError {
    ExecServerError::Protocol(format!("environment `{id}`: {error}"))
}

fn require_url(id: &str, key: &str, holds: bool) -> Result<()> {
    if holds { Ok(()) } else { refuse(format!("environment `{id}` {key} requires url")) }
}

fn seconds(id: &str, key: &str, value: Option<f64>) -> Result<Option<Duration>> {
    let Some(value) = value else { return Ok(None) };
    match Duration::try_from_secs_f64(value) {
        Ok(limit) => Ok(Some(limit)),
        Err(error) => {
            refuse(format!("environment `{id}` {key} must be a number of seconds, 0 or more: {error}"))
        }
    }
}

fn refuse<T>(why: String) -> Result<T> {
    Err(ExecServerError::Protocol(why))
}
