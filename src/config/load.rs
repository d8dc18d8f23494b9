//! Lays the layers over each other.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use toml::{Table, Value};

use super::value::Input;
use super::{
    Config, ConfigError, ConfigFile, Key, ListenAddress, Origin, Problem, Settings, auth, keys, tls,
};

const PREFIX: &str = "EXEC_SERVER_";

/// Variables of the prefix that are no keys: the command line reads them itself.
pub const OTHER_VARIABLES: &[&str] = &["EXEC_SERVER_CONFIG", "EXEC_SERVER_URL", "EXEC_SERVER_TOKEN_FILE"];

/// What the command line says about one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flag {
    name: String,
    key: String,
    value: FlagValue,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum FlagValue {
    Words(Vec<String>),
    Text(String),
}

impl Flag {
    /// A flag of its own, with all the values it was given.
    #[must_use]
    pub fn named(name: &str, key: &str, values: Vec<String>) -> Self {
        Self { name: name.into(), key: key.into(), value: FlagValue::Words(values) }
    }

    /// `--set KEY=VALUE`, written as in a variable.
    #[must_use]
    pub fn set(key: &str, value: &str) -> Self {
        Self { name: format!("--set {key}"), key: key.into(), value: FlagValue::Text(value.into()) }
    }
}

/// The settings of these layers. Among flags of one key the last one counts.
pub fn load(
    flags: &[Flag],
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    file: Option<&ConfigFile>,
) -> Result<Settings, ConfigError> {
    let mut loader = Loader::default();
    if let Some(file) = file {
        loader.file(file);
    }
    loader.environment(environment);
    for flag in flags {
        loader.flag(flag);
    }
    loader.finish()
}

#[derive(Default)]
struct Loader {
    config: Config,
    origins: BTreeMap<&'static str, Origin>,
    warnings: Vec<String>,
    problems: Vec<Problem>,
}

impl Loader {
    fn apply(&mut self, key: &'static Key, input: Input<'_>, origin: Origin) {
        match (key.read)(&mut self.config, &key.bounds, input) {
            Ok(()) => {
                self.origins.insert(key.path, origin);
            }
            Err(error) => {
                let value = (!key.secret).then(|| written(input));
                self.problems.push(Problem::BadValue { key: key.path, value, origin, expected: error.0 });
            }
        }
    }

    fn file(&mut self, file: &ConfigFile) {
        match file.text.parse::<Table>() {
            Ok(table) => self.table(file, "", &table),
            Err(error) => {
                let path = file.path.display().to_string();
                self.problems.push(Problem::Syntax { path, message: error.to_string() });
            }
        }
    }

    fn table(&mut self, file: &ConfigFile, prefix: &str, table: &Table) {
        for (name, value) in table {
            let path = format!("{prefix}{name}");
            let section = format!("{path}.");
            // A quoted name with a dot would otherwise pass as a key of a section.
            let plain = !name.contains('.');
            if let Some(key) = find(&path).filter(|_| plain) {
                let origin = Origin::File { path: file.path.clone(), key: path };
                self.apply(key, Input::Toml(value), origin);
            } else if let Value::Table(inner) = value
                && plain
                && keys().iter().any(|key| key.path.starts_with(&section))
            {
                self.table(file, &section, inner);
            } else {
                self.unknown(&path, file.path.display().to_string());
            }
        }
    }

    fn unknown(&mut self, key: &str, place: String) {
        let suggestion = suggest_key(key);
        self.problems.push(Problem::UnknownKey { key: key.into(), place, suggestion });
    }

    fn environment(&mut self, environment: impl IntoIterator<Item = (OsString, OsString)>) {
        let mut variables: BTreeMap<String, OsString> = environment
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .filter(|(name, _)| name.starts_with(PREFIX) || name == "RUST_LOG")
            .collect();
        if let Some(value) = variables.remove("RUST_LOG") {
            self.variable("log.filter", "RUST_LOG", &value);
        }
        for key in keys() {
            let name = key.variable();
            if let Some(value) = variables.remove(&name) {
                self.variable(key.path, &name, &value);
            }
        }
        self.warnings.extend(variables.iter().filter_map(|(name, value)| unknown_variable(name, value)));
    }

    fn variable(&mut self, key: &str, name: &str, value: &OsStr) {
        let Some(key) = find(key) else { return };
        let origin = Origin::Variable(name.into());
        match value.to_str() {
            Some(text) => self.apply(key, Input::Text(text), origin),
            None => self.problems.push(Problem::BadValue {
                key: key.path,
                value: None,
                origin,
                expected: "expected UTF-8 text".into(),
            }),
        }
    }

    fn flag(&mut self, flag: &Flag) {
        let Some(key) = find(&flag.key) else {
            return self.unknown(&flag.key, "--set".into());
        };
        let input = match &flag.value {
            FlagValue::Words(words) => Input::Words(words),
            FlagValue::Text(text) => Input::Text(text),
        };
        self.apply(key, input, Origin::Flag(flag.name.clone()));
    }

    fn finish(mut self) -> Result<Settings, ConfigError> {
        self.check_addresses();
        let resolved = auth::resolve(&self.config, &self.origins)
            .and_then(|auth| Ok((auth, tls::resolve(&self.config, &self.origins)?)));
        let (auth, tls) = match resolved {
            Ok(resolved) if self.problems.is_empty() => resolved,
            Ok(_) => return Err(ConfigError { problems: self.problems }),
            // What is missing may only be missing because its value was bad.
            Err(problem) if self.problems.is_empty() => return Err(ConfigError { problems: vec![problem] }),
            Err(_) => return Err(ConfigError { problems: self.problems }),
        };
        Ok(Settings { config: self.config, auth, tls, warnings: self.warnings, origins: self.origins })
    }

    fn check_addresses(&mut self) {
        let addresses = &self.config.server.listen;
        let origin = self.origins.get("server.listen").cloned().unwrap_or(Origin::Default);
        if addresses.is_empty() {
            self.problems.push(Problem::NoAddress { origin });
        } else if addresses.len() > 1 && addresses.contains(&ListenAddress::Stdio) {
            self.problems.push(Problem::StdioNotAlone { origin });
        }
        if addresses.contains(&ListenAddress::Stdio) && !self.config.metrics.listen.is_empty() {
            self.warnings.push("metrics.listen is ignored: with stdio nothing else is served".to_owned());
        }
        if self.config.metrics.listen.contains(&ListenAddress::Stdio) {
            let origin = self.origins.get("metrics.listen").cloned().unwrap_or(Origin::Default);
            self.problems.push(Problem::StdioMetrics { origin });
        }
    }
}

fn find(path: &str) -> Option<&'static Key> {
    keys().iter().find(|key| key.path == path)
}

fn written(input: Input<'_>) -> String {
    match input {
        Input::Text(text) => text.into(),
        Input::Toml(Value::String(text)) => text.clone(),
        Input::Words(words) => words.join(", "),
        Input::Toml(value) => value.to_string(),
    }
}

/// The key that was probably meant: the same name in another section, or one a few letters away.
fn suggest_key(key: &str) -> Option<String> {
    let last = key.rsplit('.').next().unwrap_or(key);
    let sections = keys().iter().filter_map(|key| key.path.split('.').next());
    let known = keys().iter().map(|key| key.path).chain(sections);
    let namesake = keys().iter().find(|known| known.path.rsplit('.').next() == Some(last));
    nearest(key, known, 1 + last.len() / 3).or_else(|| namesake.map(|key| key.path.into()))
}

fn nearest<T: AsRef<str>>(text: &str, known: impl Iterator<Item = T>, within: usize) -> Option<String> {
    known
        .map(|name| (strsim::damerau_levenshtein(text, name.as_ref()), name))
        .filter(|(distance, _)| *distance <= within)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name.as_ref().into())
}

/// The warning about a variable of the prefix that is no key.
fn unknown_variable(name: &str, value: &OsStr) -> Option<String> {
    if OTHER_VARIABLES.contains(&name) || is_service_link(name, value) {
        return None;
    }
    let rest = name.strip_prefix("EXEC_SERVER").unwrap_or(name);
    let meant = keys().iter().map(Key::variable).find(|known| known.ends_with(rest));
    let meant = meant.or_else(|| nearest(name, keys().iter().map(Key::variable), 1 + rest.len() / 4));
    let suggestion = meant.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
    Some(format!("unknown variable {name} is ignored{suggestion}"))
}

/// Kubernetes sets such variables for a service that is named `exec-server`.
fn is_service_link(name: &str, value: &OsStr) -> bool {
    name.starts_with("EXEC_SERVER_SERVICE_")
        || name.starts_with("EXEC_SERVER_PORT_")
        || (name == "EXEC_SERVER_PORT" && value.to_string_lossy().contains("://"))
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
