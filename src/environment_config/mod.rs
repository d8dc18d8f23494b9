//! `environmentConfig/read`: chosen keys of the settings layers of this machine, unmerged.
//!
//! Every read looks at the disk; nothing is kept. A project's own settings count only if the user's settings trust the
//! project, and a file that does not count is not even opened.

mod project;
mod select;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::fsops::{self, FsError, Links};
use crate::path_uri::{ForeignPath, PathUri, PathUriError};
use crate::protocol::environment::{ConfigLayer, ConfigLayers, ConfigReadParams, ConfigReadResponse};
use crate::protocol::failure::FileErrorKind;

/// Where the settings of the whole machine are.
const SYSTEM_DIR: &str = "/etc/codex";

/// The settings directory in a home or a project.
const SETTINGS_DIR: &str = ".codex";

const SETTINGS_FILE: &str = "config.toml";
const MANAGED_FILE: &str = "managed_config.toml";
const REQUIREMENTS_FILE: &str = "requirements.toml";

/// The largest settings file that is read.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Why the settings could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ConfigReadError {
    /// Params that can never be right.
    #[error("at least one key path is required in configPaths or requirementsPaths")]
    NoPath,
    /// Params that can never be right.
    #[error("a key path is empty: it must name at least one key")]
    EmptyPath,
    /// Params that can never be right here.
    #[error("cwd: {0}")]
    ForeignCwd(#[from] ForeignPath),
    /// There is no user's settings directory.
    #[error("the user's settings directory is unknown: set HOME or CODEX_HOME to an absolute path")]
    NoHome,
    /// A file is there and cannot be read.
    #[error(transparent)]
    File(#[from] FsError),
    /// A file is no TOML.
    #[error("'{}' is not valid TOML, line {line}: {message}; correct or remove it", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong there.
        message: String,
    },
    /// The selection of a file cannot be written as TOML.
    #[error("cannot select keys of '{}': {error}", path.display())]
    Selection {
        /// The file.
        path: PathBuf,
        /// Why.
        error: toml::ser::Error,
    },
    /// A directory has no URI.
    #[error(transparent)]
    Uri(#[from] PathUriError),
}

impl ConfigReadError {
    /// Whether the params are at fault, not the files.
    #[must_use]
    pub fn is_invalid_params(&self) -> bool {
        match self {
            Self::NoPath | Self::EmptyPath | Self::ForeignCwd(_) => true,
            Self::NoHome | Self::File(_) | Self::Syntax { .. } | Self::Selection { .. } | Self::Uri(_) => {
                false
            }
        }
    }
}

/// Reads the settings of one user.
#[derive(Debug, Clone)]
pub struct EnvironmentConfig {
    home: Option<PathBuf>,
    codex_home: Option<PathBuf>,
    hostname: Option<String>,
    system_dir: PathBuf,
}

impl EnvironmentConfig {
    /// A reader for the values of HOME and CODEX_HOME, empty or relative ones of which do not count, and the name of the
    /// machine.
    #[must_use]
    pub fn new(home: Option<PathBuf>, codex_home: Option<PathBuf>, hostname: Option<String>) -> Self {
        let home = home.filter(|path| path.is_absolute());
        let codex_home = codex_home
            .filter(|path| path.is_absolute())
            .or_else(|| home.as_ref().map(|home| home.join(SETTINGS_DIR)));
        Self { home, codex_home, hostname, system_dir: SYSTEM_DIR.into() }
    }

    /// The user's home directory.
    #[must_use]
    pub fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    /// The user's settings directory.
    #[must_use]
    pub fn codex_home(&self) -> Option<&Path> {
        self.codex_home.as_deref()
    }

    /// Looks for the settings of the whole machine elsewhere than in `/etc/codex`.
    #[must_use]
    pub fn with_system_dir(mut self, directory: PathBuf) -> Self {
        self.system_dir = directory;
        self
    }

    /// Reads the selected keys. It blocks on the disk.
    ///
    /// # Errors
    ///
    /// The params name no key, or a file that counts is unreadable or no TOML.
    pub fn read(&self, params: &ConfigReadParams) -> Result<ConfigReadResponse, ConfigReadError> {
        let paths = || params.config_paths.iter().chain(&params.requirements_paths);
        if paths().next().is_none() {
            return Err(ConfigReadError::NoPath);
        }
        if paths().any(Vec::is_empty) {
            return Err(ConfigReadError::EmptyPath);
        }
        let cwd = params.cwd.to_native_path()?;
        let codex_home = self.codex_home.as_deref().ok_or(ConfigReadError::NoHome)?;
        let managed = Layer::load("managed", &self.system_dir, MANAGED_FILE)?;
        Ok(ConfigReadResponse {
            user_home_dir: self.home.as_deref().map(PathUri::from_native_path).transpose()?,
            codex_home_dir: PathUri::from_native_path(codex_home)?,
            hostname: self.hostname.clone(),
            config: self.config(codex_home, &cwd, managed.as_ref(), &params.config_paths)?,
            requirements: self.requirements(managed, &params.requirements_paths)?,
        })
    }

    fn config(
        &self,
        codex_home: &Path,
        cwd: &Path,
        managed: Option<&Layer>,
        paths: &[Vec<String>],
    ) -> Result<ConfigLayers, ConfigReadError> {
        let system = Layer::load("system", &self.system_dir, SETTINGS_FILE)?;
        let user = Layer::load("user", codex_home, SETTINGS_FILE)?;
        let mut projects = Vec::new();
        if let Some(user) = &user {
            for directory in project::trusted_settings(&user.table, cwd) {
                if !project::same_directory(&directory, codex_home) {
                    projects.extend(Layer::load("project", &directory, SETTINGS_FILE)?);
                }
            }
        }
        let above = user.iter().chain(&projects).chain(managed);
        select_layers(system.as_ref(), above, paths)
    }

    fn requirements(
        &self,
        managed: Option<Layer>,
        paths: &[Vec<String>],
    ) -> Result<ConfigLayers, ConfigReadError> {
        let system = Layer::load("requirements", &self.system_dir, REQUIREMENTS_FILE)?;
        let implied = managed.map(|managed| Layer { table: implied_requirements(&managed.table), ..managed });
        select_layers(system.as_ref(), implied.iter(), paths)
    }
}

/// The layers that have a selected key. What a client got elsewhere comes right above the one of the machine.
fn select_layers<'a>(
    system: Option<&Layer>,
    above: impl Iterator<Item = &'a Layer>,
    paths: &[Vec<String>],
) -> Result<ConfigLayers, ConfigReadError> {
    let paths = select::minimal(paths);
    let mut layers = Vec::new();
    layers.extend(system.map(|layer| layer.select(&paths)).transpose()?.flatten());
    let cloud_insertion_index = layers.len();
    for layer in above {
        layers.extend(layer.select(&paths)?);
    }
    Ok(ConfigLayers { layers, cloud_insertion_index })
}

/// What the managed settings of an older form require.
fn implied_requirements(managed: &Table) -> Table {
    let mut requirements = Table::new();
    if let Some(policy) = managed.get("approval_policy") {
        requirements.insert("allowed_approval_policies".to_owned(), Value::Array(vec![policy.clone()]));
    }
    if let Some(mode) = managed.get("sandbox_mode") {
        // Clients cannot work without the narrowest mode.
        let mut modes = vec![Value::from("read-only")];
        modes.extend((modes[0] != *mode).then(|| mode.clone()));
        requirements.insert("allowed_sandbox_modes".to_owned(), Value::Array(modes));
    }
    requirements
}

/// One settings file.
struct Layer {
    role: &'static str,
    path: PathBuf,
    base_dir: PathBuf,
    table: Table,
}

impl Layer {
    /// Reads a file, if it is there.
    fn load(role: &'static str, directory: &Path, name: &str) -> Result<Option<Self>, ConfigReadError> {
        let path = directory.join(name);
        let content = match fsops::read_file(&path, Links::Follow, MAX_FILE_BYTES) {
            Ok(content) => content,
            Err(error) if matches!(error.kind(), FileErrorKind::NotFound | FileErrorKind::NotDirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let table = parse(&path, &content)?;
        Ok(Some(Self { role, path, base_dir: directory.to_owned(), table }))
    }

    fn select(&self, paths: &[&[String]]) -> Result<Option<ConfigLayer>, ConfigReadError> {
        let selected = select::select(&self.table, paths);
        if selected.is_empty() {
            return Ok(None);
        }
        let toml = toml::to_string(&selected)
            .map_err(|error| ConfigReadError::Selection { path: self.path.clone(), error })?;
        Ok(Some(ConfigLayer {
            source: format!("{} ({})", self.role, self.path.display()),
            base_dir: PathUri::from_native_path(&self.base_dir)?,
            toml,
        }))
    }
}

fn parse(path: &Path, content: &[u8]) -> Result<Table, ConfigReadError> {
    let syntax = |offset: usize, message: String| {
        let before = &content[..offset.min(content.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        ConfigReadError::Syntax { path: path.to_owned(), line, message }
    };
    let text =
        std::str::from_utf8(content).map_err(|error| syntax(error.valid_up_to(), "not UTF-8".to_owned()))?;
    text.parse().map_err(|error: toml::de::Error| {
        // The parser's message may have several lines.
        let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        syntax(error.span().map_or(0, |span| span.start), message)
    })
}
