//! What the executor says of itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::method::methods;
use super::process::{Empty, ShellInfo};
use super::sandbox::SandboxReport;
use crate::path_uri::PathUri;

methods! {
    from Client;
    /// What the executor is.
    Info = "environment/info": Empty => EnvironmentInfo;
    /// Is this initialised connection alive?
    Status = "environment/status": Empty => StatusResponse;
    /// Chosen keys of the settings layers of the executor.
    ConfigRead = "environmentConfig/read": ConfigReadParams => ConfigReadResponse;
}

/// Result of `environment/status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusResponse {
    /// Always `ready`.
    pub status: String,
}

/// What the executor is. The same in `initialize` and `environment/info`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentInfo {
    /// Login shell of the account.
    pub shell: ShellInfo,
    /// Release; `0.0.0` means unknown.
    #[serde(default = "unknown_version")]
    pub executor_version: String,
    /// Opaque identity of the build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Directory in which the server was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathUri>,
    /// Home of the server's user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_home_dir: Option<PathUri>,
    /// `linux`, `macos` or `windows`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform_os: Option<String>,
    /// Directories to put in front of PATH.
    #[serde(default)]
    pub prepend_path_dirs: Vec<PathUri>,
    /// What TMPDIR names.
    #[serde(default)]
    pub temporary_directories: Vec<PathUri>,
    /// Where temporary files go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temp_dir: Option<PathUri>,
    /// What can confine a process here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxReport>,
    /// What clients may rely on.
    #[serde(default)]
    pub capabilities: Capabilities,
}

fn unknown_version() -> String {
    "0.0.0".to_owned()
}

/// Promises of a server: a flag is true only where the feature works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[expect(missing_docs, reason = "each is the wire name of a feature, described in docs/protocol.md")]
pub struct Capabilities {
    pub network_proxy_launch: bool,
    pub network_proxy_review_domains: bool,
    pub network_proxy_transparent_tcp: bool,
    pub credential_masking: bool,
    pub credential_masking_custom_providers: bool,
    pub capability_discovery_sandbox: bool,
    pub capability_discovery_v2: bool,
    pub fs_watch_missing: bool,
    pub environment_config_read: bool,
    pub http_header_env_vars: bool,
    pub sandboxed_file_streaming: bool,
    pub file_write_streaming: bool,
    pub shell_snapshot_v2: bool,
    pub windows_mxc: bool,
    pub linux_root_write_preserves_devices: bool,
    pub linux_approved_root_write_preserves_restrictions: bool,
    pub process_control: bool,
    pub process_list: bool,
    pub session_observe: bool,
    pub output_accounting: bool,
    pub process_limits: bool,
    pub sandbox_report: bool,
    pub shell_snapshot_report: bool,
    pub file_operations: bool,
}

/// Params of `environmentConfig/read`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigReadParams {
    /// Selects the project layers.
    pub cwd: PathUri,
    /// Key paths wanted of the configuration.
    pub config_paths: Vec<Vec<String>>,
    /// Key paths wanted of the requirements.
    pub requirements_paths: Vec<Vec<String>>,
}

/// Result of `environmentConfig/read`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigReadResponse {
    /// For expanding `~`.
    pub user_home_dir: Option<PathUri>,
    /// The user's settings directory.
    pub codex_home_dir: PathUri,
    /// Name of the machine.
    pub hostname: Option<String>,
    /// Configuration layers.
    pub config: ConfigLayers,
    /// Requirements layers.
    pub requirements: ConfigLayers,
}

/// Layers of settings, lowest precedence first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigLayers {
    /// Layers that have a selected key.
    pub layers: Vec<ConfigLayer>,
    /// Where a client inserts layers that it got elsewhere.
    pub cloud_insertion_index: usize,
}

/// The selected part of one settings file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigLayer {
    /// Provenance, for messages only.
    pub source: String,
    /// What relative paths in `toml` are relative to.
    pub base_dir: PathUri,
    /// The selected part.
    pub toml: String,
}
