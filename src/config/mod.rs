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
mod tls;
mod value;
mod words;

pub use address::{AddressError, Host, ListenAddress};
pub use auth::{AuthSettings, SignedSettings};
pub use error::{ConfigError, Problem};
pub use file::{ConfigFile, DEFAULT_PATH, FileError};
pub use load::{Flag, OTHER_VARIABLES, load};
pub use schema::{
    AuthConfig, Config, Key, LimitsConfig, LogConfig, NetworkConfig, ProcessConfig, SandboxConfig,
    ServerConfig, SessionConfig, TlsConfig, keys, template,
};
pub use settings::{Changes, Layer, Origin, Settings};
pub use state_dir::{StateDirError, state_dir};
pub use tls::TlsSettings;
pub use words::{
    AcceptedGap, AuditTarget, AuthMode, BackendChoice, HostName, HostPort, LogFilter, LogFormat, TokenDigest,
    VariableName,
};
