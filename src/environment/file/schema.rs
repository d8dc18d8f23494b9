//! The form of `environments.toml`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

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
/// The line, the key and what is wrong; never the text itself, which may hold a token.
pub(super) fn parse(text: &str) -> Result<File, String> {
    let at = |error: &toml::de::Error| {
        let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        line.map_or_else(String::new, |line| format!("line {line}: "))
    };
    let document = toml::Deserializer::parse(text).map_err(|error| at(&error) + error.message())?;
    serde_path_to_error::deserialize(document).map_err(|error| {
        let (key, error) = (error.path().to_string(), error.inner());
        // Its message quotes the value.
        let why = if key.ends_with("auth_bearer_token") { "must be a string" } else { error.message() };
        format!("{}`{key}`: {why}", at(error))
    })
}
