//! `environments.toml`: which environments there are. Any error refuses the whole file.

mod check;
mod schema;

use std::path::Path;

use super::definition::Definition;
use crate::backend::{ExecServerError, Result};
use crate::fsops::{self, Links};
use crate::protocol::failure::FileErrorKind;

/// The name of the file in the settings directory.
const NAME: &str = "environments.toml";
/// A larger file is a mistake.
const MAX_BYTES: u64 = 1 << 20;

/// What the file says, checked.
#[derive(Debug)]
pub(super) struct Settings {
    /// The id of the default environment.
    pub(super) default: Option<String>,
    /// Whether this machine is one of them.
    pub(super) include_local: bool,
    /// The others, in order.
    pub(super) environments: Vec<Configured>,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Configured {
    pub(super) id: String,
    pub(super) definition: Definition,
    pub(super) required_skills: Vec<String>,
}

/// Reads the file of a directory; none if it is not there. Blocks on the disk.
///
/// # Errors
/// [`ExecServerError::Protocol`] with the file and what is wrong.
pub(super) fn read(directory: &Path) -> Result<Option<Settings>> {
    let path = directory.join(NAME);
    let content = match fsops::read_file(&path, Links::Follow, MAX_BYTES) {
        Ok(content) => content,
        Err(error) if error.kind() == FileErrorKind::NotFound => return Ok(None),
        Err(error) => return refuse(&path, &error),
    };
    let Ok(text) = String::from_utf8(content) else { return refuse(&path, &"it is not UTF-8") };
    parse(&text, directory).map(Some).or_else(|error| refuse(&path, &error))
}

fn parse(text: &str, directory: &Path) -> Result<Settings> {
    let file = schema::parse(text).map_err(ExecServerError::Protocol)?;
    check::check(file, directory)
}

fn refuse<T>(path: &Path, why: &dyn std::fmt::Display) -> Result<T> {
    Err(ExecServerError::Protocol(format!("{}: {why}", path.display())))
}

#[cfg(test)]
mod tests;
