//! The sandbox context: intent only. The executor chooses the mechanism, or refuses.

mod construct;
mod legacy;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::construct::{
    FileSystemAccessMode, FileSystemPath, FileSystemSandboxContext, FileSystemSandboxEntry,
    FileSystemSandboxPolicy, FileSystemSpecialPath, NetworkSandboxPolicy,
};
pub use self::legacy::SandboxPolicy;
use super::schema;
use crate::path_uri::PathUri;

/// What a process or a file call may touch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxContext {
    /// What is allowed.
    pub permissions: PermissionProfile,
    /// Why the policy was chosen; never changes enforcement.
    #[serde(default, skip_serializing_if = "SandboxOverride::is_default")]
    pub sandbox_override: SandboxOverride,
    /// Older form of `policy_context.cwd`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathUri>,
    /// What relative parts of the policy are relative to; wins over the flat members completely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_context: Option<PolicyContext>,
    /// Older form of `policy_context.workspace_roots`. Empty means none.
    #[serde(default)]
    pub workspace_roots: Vec<PathUri>,
    /// Accepted, without effect on Linux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_home_dir: Option<PathUri>,
    /// Accepted, without effect on Linux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temporary_directories: Option<Vec<PathUri>>,
    /// Ignored on Linux, except for `mxc`, which is refused.
    #[serde(rename = "windowsSandboxLevel")]
    pub windows_sandbox_selection: WindowsSandboxSelection,
    /// Ignored on Linux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows_sandbox_proxy_settings_mode: Option<WindowsSandboxProxySettingsMode>,
    /// Refused with restricted entries.
    #[serde(default)]
    pub use_legacy_landlock: bool,
}

/// See [`SandboxContext::sandbox_override`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SandboxOverride {
    /// The default.
    #[default]
    NoOverride,
    /// Escalated, restrictions kept.
    EscalatedSandboxWithRestrictions,
    /// First attempt without.
    BypassSandboxFirstAttempt,
}

impl SandboxOverride {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that skip_serializing_if wants")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What relative parts of a policy are relative to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyContext {
    /// Base of relative globs.
    pub cwd: Option<PathUri>,
    /// What `project_roots` means. Empty means none.
    pub workspace_roots: Vec<PathUri>,
}

/// See [`SandboxContext::windows_sandbox_selection`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "names of another platform, carried through")]
pub enum WindowsSandboxSelection {
    Disabled,
    RestrictedToken,
    Elevated,
    Mxc,
}

/// See [`SandboxContext::windows_sandbox_proxy_settings_mode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "names of another platform, carried through")]
pub enum WindowsSandboxProxySettingsMode {
    Reconcile,
    Preserve,
}

/// What is allowed. Member names below it are snake_case on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum PermissionProfile {
    /// This executor confines.
    Managed {
        /// Files.
        file_system: FileSystemPermissions,
        /// Network.
        network: NetworkPermission,
    },
    /// Nothing is confined.
    Disabled,
    /// Someone else confines files.
    External {
        /// Network.
        network: NetworkPermission,
    },
}

/// Whether a process may use the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetworkPermission {
    /// It may not.
    Restricted,
    /// It may.
    Enabled,
}

/// Which files may be touched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum FileSystemPermissions {
    /// What the entries say, nothing else.
    Restricted {
        /// The rules; the deeper path wins.
        entries: Vec<SandboxEntry>,
        /// How deep deny globs are looked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        glob_scan_max_depth: Option<std::num::NonZeroU64>,
    },
    /// All of them.
    Unrestricted,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxEntry {
    /// What it is about.
    pub path: SandboxPath,
    /// What it allows.
    pub access: SandboxAccess,
    /// What a missing path means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_path_behavior: Option<MissingPathBehavior>,
}

/// What a rule allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = schema::also("deny", "none"))]
pub enum SandboxAccess {
    /// Reading.
    Read,
    /// Reading and writing.
    Write,
    /// Nothing.
    #[serde(alias = "none")]
    Deny,
}

/// See [`SandboxEntry::missing_path_behavior`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MissingPathBehavior {
    /// The rule does not count.
    Skip,
}

/// What a rule is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SandboxPath {
    /// A path and everything below.
    Path {
        /// The path.
        path: PathUri,
    },
    /// A native glob; of use with deny only.
    GlobPattern {
        /// The pattern.
        pattern: String,
    },
    /// A place by its role.
    Special {
        /// Which.
        value: SpecialPath,
    },
}

/// A place by its role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[schemars(transform = schema::also("project_roots", "current_working_directory"))]
pub enum SpecialPath {
    /// `/`.
    Root,
    /// What programs need of the system.
    Minimal,
    /// Every workspace root, or a part of each.
    #[serde(alias = "current_working_directory")]
    ProjectRoots {
        /// The part.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subpath: Option<String>,
    },
    /// `/tmp`.
    SlashTmp,
    /// What TMPDIR names.
    Tmpdir,
    /// A newer kind; ignored.
    Unknown {
        /// Its name.
        path: String,
        /// The part.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subpath: Option<String>,
    },
}

/// What enforces a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SandboxBackend {
    /// A private view of the system, with or without a user namespace.
    Namespaces,
    /// Rules of Landlock and a filter of system calls.
    Landlock,
    /// A filter of system calls alone, where only the network is restricted. Never a backend of its own.
    Seccomp,
}

impl SandboxBackend {
    /// The wire name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
        }
    }
}

/// What a backend leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SandboxGap {
    /// Names, sizes and times of files outside can be seen.
    OutsideNames,
    /// The host's processes, devices and shared memory can be seen.
    HostView,
    /// Mode, owner, times and attributes of files outside can be changed.
    OutsideMetadata,
    /// The protected names of a writable root can be changed.
    ProtectedMetadata,
    /// The proxy's port can be reached at any address.
    ProxyPortAnyHost,
}

impl SandboxGap {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::OutsideNames,
        Self::HostView,
        Self::OutsideMetadata,
        Self::ProtectedMetadata,
        Self::ProxyPortAnyHost,
    ];

    /// The wire name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OutsideNames => "outsideNames",
            Self::HostView => "hostView",
            Self::OutsideMetadata => "outsideMetadata",
            Self::ProtectedMetadata => "protectedMetadata",
            Self::ProxyPortAnyHost => "proxyPortAnyHost",
        }
    }
}

/// Which backends this machine has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SandboxReport {
    /// Every backend, available or not.
    pub backends: Vec<BackendReport>,
    /// The one that a policy goes to first.
    pub default: Option<SandboxBackend>,
}

/// Whether a backend can be had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackendReport {
    /// Which.
    pub name: SandboxBackend,
    /// Whether it can be had.
    pub available: bool,
    /// Why not.
    pub reason: Option<String>,
}

impl SandboxContext {
    /// Whether the context asks for no protection at all, so that running without any honours it.
    #[must_use]
    pub fn is_unconfined(&self) -> bool {
        match &self.permissions {
            PermissionProfile::Disabled => true,
            PermissionProfile::External { network } => *network == NetworkPermission::Enabled,
            PermissionProfile::Managed { file_system, network } => {
                *file_system == FileSystemPermissions::Unrestricted && *network == NetworkPermission::Enabled
            }
        }
    }
}
