use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::{AuthSettings, Config, TlsSettings, keys};

/// What a value came from; a later one comes before an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// The table.
    Default,
    /// The TOML file.
    File,
    /// The environment.
    Environment,
    /// The command line.
    Flag,
}

/// Where the value of a key came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The default of the table.
    Default,
    /// A key of a file.
    File {
        /// The file.
        path: PathBuf,
        /// The key in it.
        key: String,
    },
    /// An environment variable.
    Variable(String),
    /// A flag, as it was written.
    Flag(String),
}

impl Origin {
    /// Its layer.
    #[must_use]
    pub const fn layer(&self) -> Layer {
        match self {
            Self::Default => Layer::Default,
            Self::File { .. } => Layer::File,
            Self::Variable(_) => Layer::Environment,
            Self::Flag(_) => Layer::Flag,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            // Escaped, since the text also stands behind the # of a TOML comment.
            Self::File { path, key } => write!(f, "{}:{key}", path.to_string_lossy().escape_debug()),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// Keys, and sections of keys, that a running server can follow.
const FOLLOWED: &[&str] = &["auth", "tls", "metrics.token_file", "server.allowed_hosts", "log.filter"];

/// What differs between settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Keys that take effect at once.
    pub followed: Vec<&'static str>,
    /// Keys that take effect at the next start.
    pub ignored: Vec<&'static str>,
}

/// The settings in force, and where each came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The values.
    pub config: Config,
    /// What the keys of `auth` add up to.
    pub auth: AuthSettings,
    /// What the keys of `tls` add up to; without, TCP is served in clear.
    pub tls: Option<TlsSettings>,
    /// What should be logged once logging is set up, such as variables that are probably misspelt.
    pub warnings: Vec<String>,
    pub(super) origins: BTreeMap<&'static str, Origin>,
}

impl Settings {
    /// Where the value of a key came from.
    #[must_use]
    pub fn origin(&self, key: &str) -> &Origin {
        self.origins.get(key).unwrap_or(&Origin::Default)
    }

    /// A line `key = value   # origin` for each key: valid TOML, without secrets.
    #[must_use]
    pub fn table(&self) -> String {
        let rows: Vec<(String, &Origin)> =
            keys().iter().map(|key| (self.assignment(key), self.origin(key.path))).collect();
        let width = rows.iter().map(|(text, _)| text.chars().count()).filter(|width| *width <= 60).max();
        let width = width.unwrap_or_default();
        rows.iter().map(|(text, origin)| format!("{text:width$}   # {origin}\n")).collect()
    }

    /// The keys whose values differ, those that a running server can follow and those that need a restart.
    #[must_use]
    pub fn changes(&self, next: &Self) -> Changes {
        let differs = |key: &&super::Key| (key.show)(&self.config) != (key.show)(&next.config);
        let paths = keys().iter().filter(differs).map(|key| key.path);
        let (followed, ignored) = paths.partition(|path| {
            FOLLOWED.iter().any(|followed| {
                path.strip_prefix(followed).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
        });
        Changes { followed, ignored }
    }

    fn assignment(&self, key: &super::Key) -> String {
        let value = (key.show)(&self.config);
        let unset = value.as_array().is_some_and(Vec::is_empty);
        if key.secret && !unset {
            return format!("{} = \"(set)\"", key.path);
        }
        format!("{} = {value}", key.path)
    }
}
