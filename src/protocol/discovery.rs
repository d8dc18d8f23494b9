//! What a machine offers to an agent: the files of chosen directories, and the inventory of what is installed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::failure::FileErrorData;
use super::method::{Failures, methods};
use super::sandbox::SandboxContext;
use crate::path_uri::PathUri;

/// The most roots that one request may name.
pub const MAX_CAPABILITY_ROOTS: usize = 128;

/// How a discovery fails: what confines it is as with file calls.
const FAILURES: Failures = Failures::with::<FileErrorData>(&[]);

methods! {
    from Client;
    /// The recognised files below chosen directories.
    RootsDiscover = "capabilityRoots/discoverV1": CapabilityRootsDiscoverParams => CapabilityRootsDiscoverResponse, FAILURES;
    /// What is installed for the executor's user.
    Discover = "capabilities/discoverV2": DiscoverV2CapabilitiesRequest => DiscoverV2CapabilitiesResponse, FAILURES;
}

/// Params of `capabilityRoots/discoverV1`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CapabilityRootsDiscoverParams {
    /// At most [`MAX_CAPABILITY_ROOTS`]; each is independent of the others.
    pub roots: Vec<CapabilityRootDiscoverRequest>,
}

/// A directory to scan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CapabilityRootDiscoverRequest {
    /// Returned unchanged. May be empty, and may repeat.
    pub id: String,
    /// The directory.
    pub path: PathUri,
    /// What may be read for this root.
    #[serde(default)]
    pub sandbox: Option<SandboxContext>,
}

/// Result of `capabilityRoots/discoverV1`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct CapabilityRootsDiscoverResponse {
    /// As many as were asked for, in that order.
    pub roots: Vec<CapabilityRootDiscovery>,
}

/// What was found at and below one root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapabilityRootDiscovery {
    /// The id of the request.
    pub id: String,
    /// The path of the request.
    pub path: PathUri,
    /// The plugin that the root itself is.
    pub plugin: Option<CapabilityPluginFiles>,
    /// Skills at and below the root, by path.
    pub skills: Vec<CapabilitySkillFiles>,
    /// Manifests that name the skills below them: that of the root or above it first, then those below by directory.
    pub namespace_manifests: Vec<CapabilityTextFile>,
    /// What was left out, for people.
    pub warnings: Vec<String>,
    /// Why the root could not be scanned; then nothing was found.
    pub error: Option<String>,
}

/// The files of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapabilityPluginFiles {
    /// Its manifest; not necessarily valid JSON.
    pub manifest: CapabilityTextFile,
    /// Its MCP servers, where they are in a file.
    pub mcp_config: Option<CapabilityTextFile>,
    /// Its apps, where they are in a file.
    pub apps_config: Option<CapabilityTextFile>,
}

/// The files of a skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CapabilitySkillFiles {
    /// `SKILL.md`.
    pub instructions: CapabilityTextFile,
    /// `agents/openai.yaml` beside it.
    pub metadata: Option<CapabilityTextFile>,
}

/// A file with its content, unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CapabilityTextFile {
    /// The file.
    pub path: PathUri,
    /// Its text.
    pub contents: String,
}

/// Params of `capabilities/discoverV2`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiscoverV2CapabilitiesRequest {
    /// Required; it selects nothing and need not exist.
    pub cwd: PathUri,
    /// What may be read.
    #[serde(default)]
    pub sandbox: Option<SandboxContext>,
}

/// Result of `capabilities/discoverV2`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct DiscoverV2CapabilitiesResponse {
    /// Installed plugins, by id.
    pub plugins: Vec<DiscoveredPlugin>,
    /// Skills that belong to no plugin's cache, by source, then path.
    pub skills: Vec<DiscoveredSkill>,
    /// What kind of thing was left out: fixed sentences without paths.
    pub warnings: Vec<String>,
}

/// An installed plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveredPlugin {
    /// `name@marketplace`.
    pub id: String,
    /// For people.
    pub display_name: String,
    /// Its id where it came from.
    pub remote_plugin_id: Option<String>,
    /// The name of its version's directory.
    pub version: String,
    /// The directory of its version.
    pub root: PathUri,
    /// Its files.
    pub files: CapabilityPluginFiles,
    /// Its skills, by path.
    pub skills: Vec<DiscoveredSkill>,
}

/// A skill, without its instructions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveredSkill {
    /// Its name, qualified as `plugin:name` where a plugin encloses it.
    pub name: String,
    /// When it is of use.
    pub description: String,
    /// The same in few words.
    pub short_description: Option<String>,
    /// Its `SKILL.md`.
    pub path: PathUri,
    /// Where it was found; absent in the skills of a plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discovery_root: Option<CapabilityDiscoveryRoot>,
    /// What it needs.
    pub dependencies: Option<SkillDependencies>,
    /// When it may be used.
    pub policy: Option<SkillPolicy>,
}

/// A directory in which skills are looked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CapabilityDiscoveryRoot {
    /// Its role, such as `codex-home-skills`.
    pub id: String,
    /// The directory.
    pub path: PathUri,
}

/// What a skill needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SkillDependencies {
    /// At least one.
    pub tools: Vec<SkillTool>,
}

/// A tool that a skill needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillTool {
    /// Its kind, such as `mcp`.
    pub r#type: String,
    /// Its name.
    pub value: String,
    /// For people.
    pub description: Option<String>,
    /// How it is reached.
    pub transport: Option<String>,
    /// The program that it is.
    pub command: Option<String>,
    /// Where it is.
    pub url: Option<String>,
    /// The local port to which a login returns.
    pub oauth_callback_port: Option<u16>,
}

/// When a skill may be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillPolicy {
    /// Whether it may be used without having been named.
    pub allow_implicit_invocation: Option<bool>,
    /// Where it may be used; empty means everywhere.
    pub products: Vec<SkillProduct>,
}

/// A product that knows skills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "names of products, carried through")]
pub enum SkillProduct {
    #[serde(alias = "CHATGPT")]
    Chatgpt,
    #[serde(alias = "CODEX")]
    Codex,
    #[serde(alias = "ATLAS")]
    Atlas,
}
