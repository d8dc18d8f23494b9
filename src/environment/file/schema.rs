//! The form of `environments.toml`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde_path_to_error::{Path, Segment};

/// The whole file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) default: Option<String>,
    #[serde(default = "included")]
    pub(super) include_local: bool,
    #[serde(default)]
    pub(super) environments: Vec<Entry>,
}

fn included() -> bool {
    true
}

/// One environment.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) id: String,
    pub(super) url: Option<String>,
    pub(super) auth_bearer_token: Option<String>,
    pub(super) program: Option<String>,
    #[serde(default)]
    pub(super) args: Vec<String>,
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    pub(super) cwd: Option<PathBuf>,
    pub(super) connect_timeout_sec: Option<f64>,
    pub(super) initialize_timeout_sec: Option<f64>,
    #[serde(default)]
    pub(super) skills: Skills,
}

/// What has to be available from it.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Skills {
    #[serde(default)]
    pub(super) required: Vec<String>,
}

/// Parses the text.
///
/// # Errors
/// The line, the key and what is wrong; never the text itself where it may hold a secret.
pub(super) fn parse(text: &str) -> Result<File, String> {
    let at = |error: &toml::de::Error| {
        let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        line.map_or_else(String::new, |line| format!("line {line}: "))
    };
    let document = toml::Deserializer::parse(text).map_err(|error| at(&error) + error.message())?;
    serde_path_to_error::deserialize(document).map_err(|error| {
        let (path, error) = (error.path(), error.inner());
        // Its message quotes the value.
        let why = secret_form(path).unwrap_or_else(|| error.message());
        format!("{}`{path}`: {why}", at(error))
    })
}

/// What a value should be that lies where secrets are, or below.
fn secret_form(path: &Path) -> Option<&'static str> {
    let keys = path.iter().filter_map(|segment| match segment {
        Segment::Map { key } => Some(key.as_str()),
        Segment::Seq { .. } | Segment::Enum { .. } | Segment::Unknown => None,
    });
    match keys.collect::<Vec<_>>().as_slice() {
        ["environments", "auth_bearer_token", ..] => Some("must be a string"),
        ["environments", "args", ..] => Some("must be an array of strings"),
        ["environments", "env", ..] => Some("must be a table of strings"),
        _ => None,
    }
}
