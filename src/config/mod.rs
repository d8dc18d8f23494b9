//! Settings: flags over environment over a TOML file over defaults, as one plain [`Config`].
//!
//! Every key exists once, in the table of `schema.rs`; the struct, its default, the variable name, the reader and the
//! example file follow from it. Loading is a pure function of its inputs, so that tests need neither files nor an
//! environment. The module never opens a socket and never reads a secret.

mod address;
mod auth;
mod error;
mod file;
mod load;
mod schema;
mod settings;
mod state_dir;
mod value;
mod words;

pub use address::{AddressError, Host, ListenAddress};
pub use auth::{AuthSettings, SignedSettings};
pub use error::{ConfigError, Problem};
pub use file::{ConfigFile, DEFAULT_PATH, FileError};
pub use load::{Flag, OTHER_VARIABLES, load};
pub use schema::{
    AuthConfig, Config, DefaultLimitsConfig, Key, LimitsConfig, LogConfig, MaxLimitsConfig, ProcessConfig,
    SandboxConfig, ServerConfig, SessionConfig, keys, template,
};
pub use settings::{Layer, Origin, Settings};
pub use state_dir::{StateDirError, state_dir};
pub use words::{
    AcceptedGap, AuthMode, BackendChoice, CgroupChoice, HostName, LogFilter, LogFormat, TokenDigest,
    VariableName,
};
