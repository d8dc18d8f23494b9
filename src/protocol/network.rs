//! Managed networking: the proxy of a start, and what its decisions say to the client.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::method::{methods, notifications};
use super::process::ProcessId;

methods! {
    from Server;
    /// Asks the client whether a process may reach a host. The server sends it.
    PolicyRequest = "network/policyRequest": PolicyRequestParams => PolicyRequestResult;
}

notifications! {
    from Server;
    /// Tells what has been decided.
    PolicyDecision = "network/policyDecision": PolicyDecisionParams;
}

/// Variables that name the HTTP listener of a proxy, as they are set.
pub const HTTP_VARIABLES: [&str; 21] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "http_proxy",
    "https_proxy",
    "WS_PROXY",
    "WSS_PROXY",
    "ws_proxy",
    "wss_proxy",
    "YARN_HTTP_PROXY",
    "YARN_HTTPS_PROXY",
    "npm_config_http_proxy",
    "npm_config_https_proxy",
    "npm_config_proxy",
    "NPM_CONFIG_HTTP_PROXY",
    "NPM_CONFIG_HTTPS_PROXY",
    "NPM_CONFIG_PROXY",
    "BUNDLE_HTTP_PROXY",
    "BUNDLE_HTTPS_PROXY",
    "PIP_PROXY",
    "DOCKER_HTTP_PROXY",
    "DOCKER_HTTPS_PROXY",
];

/// Variables that name its SOCKS listener, or the HTTP one where there is none.
pub const ALL_VARIABLES: [&str; 4] = ["ALL_PROXY", "all_proxy", "FTP_PROXY", "ftp_proxy"];

/// Variables that name what is reached without a proxy.
pub const BYPASS_VARIABLES: [&str; 5] =
    ["NO_PROXY", "no_proxy", "npm_config_noproxy", "NPM_CONFIG_NOPROXY", "BUNDLE_NO_PROXY"];

/// Set to `1` behind a proxy.
pub const ACTIVE_VARIABLE: &str = "CODEX_NETWORK_PROXY_ACTIVE";

/// Other variables that are set behind a proxy.
pub const OTHER_VARIABLES: [&str; 3] =
    ["CODEX_NETWORK_ALLOW_LOCAL_BINDING", "ELECTRON_GET_USE_PROXY", "NODE_USE_ENV_PROXY"];

/// The longest reason of a client's decision, in bytes.
pub const MAX_REASON_BYTES: usize = 1024;

/// `networkProxy` of a start: a proxy for this process alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkProxyLaunch {
    /// What it lets through.
    pub proxy: ProxySettings,
    /// For log events only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit_metadata: Option<AuditMetadata>,
    /// For log events only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment_id: Option<String>,
    /// For log events only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<String>,
    /// Milliseconds that the client has for its decision. Absent: it is not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_decision_timeout_ms: Option<NonZeroU64>,
}

/// See [`NetworkProxyLaunch::proxy`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxySettings {
    /// Must be true.
    pub enabled: bool,
    /// A SOCKS5 listener besides the one for HTTP.
    pub enable_socks5: bool,
    /// Datagrams through it.
    pub enable_socks5_udp: bool,
    /// Use the server's own proxy for onward connections.
    pub allow_upstream_proxy: bool,
    /// Without effect on Linux.
    pub dangerously_allow_all_unix_sockets: bool,
    /// Everything, or reading only.
    pub mode: ProxyMode,
    /// Rules by patterns of hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domains: Option<BTreeMap<String, DomainAccess>>,
    /// Absolute paths. Without effect on Linux.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unix_sockets: Option<BTreeMap<String, UnixSocketAccess>>,
    /// Loopback and private destinations need no literal rule.
    pub allow_local_binding: bool,
    /// Patterns of hosts about which the client is asked although a rule allows them.
    #[serde(default)]
    pub review_domains: Vec<String>,
    /// Connections of programs that ignore the proxy are led through it.
    #[serde(default)]
    pub transparent_tcp: bool,
    /// Stand-ins for credentials.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub credential_masking: bool,
    /// Kinds of credentials, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub credential_providers: BTreeMap<String, Value>,
}

impl ProxySettings {
    /// A proxy with every listener, for every method, that lets nothing through: what it is to allow is added.
    #[must_use]
    pub fn closed() -> Self {
        Self {
            enabled: true,
            enable_socks5: true,
            enable_socks5_udp: true,
            allow_upstream_proxy: false,
            dangerously_allow_all_unix_sockets: false,
            mode: ProxyMode::Full,
            domains: None,
            unix_sockets: None,
            allow_local_binding: false,
            review_domains: Vec::new(),
            transparent_tcp: false,
            credential_masking: false,
            credential_providers: BTreeMap::new(),
        }
    }
}

/// See [`ProxySettings::mode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProxyMode {
    /// GET, HEAD and OPTIONS only.
    Limited,
    /// Everything.
    Full,
}

/// What a rule says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DomainAccess {
    /// It says nothing.
    None,
    /// It lets through.
    Allow,
    /// It refuses, whatever else is said.
    Deny,
}

/// What a rule on a unix socket says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnixSocketAccess {
    /// It may be used.
    Allow,
    /// It may not.
    Deny,
}

/// Who asked for a process, for log events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[expect(missing_docs, reason = "labels without meaning to this server")]
pub struct AuditMetadata {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_account_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub originator: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_email: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slug: Option<String>,
}

/// `managedNetwork` of a start: facts about a proxy that somebody else runs on this machine's loopback.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedNetwork {
    /// Ports that the process may reach.
    pub loopback_ports: Vec<u16>,
    /// Without effect on Linux: the loopback of a network of its own is always usable.
    pub allow_local_binding: bool,
    /// For other systems.
    pub allow_unix_sockets: Vec<String>,
    /// For other systems.
    pub dangerously_allow_all_unix_sockets: bool,
    /// Needs a proxy of this server.
    pub transparent_tcp: bool,
}

/// Params of `network/policyRequest`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRequestParams {
    /// The process whose proxy asks.
    pub process_id: ProcessId,
    /// What it wants.
    pub request: NetworkRequest,
}

/// A destination that a process wants to reach.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct NetworkRequest {
    /// How.
    pub protocol: NetworkProtocol,
    /// A name in lower case, or an address.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// How a destination is to be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NetworkProtocol {
    /// A request that the proxy forwards.
    Http,
    /// A tunnel by CONNECT.
    HttpsConnect,
    /// A connection by SOCKS.
    Socks5Tcp,
    /// Datagrams by SOCKS.
    Socks5Udp,
}

/// Result of `network/policyRequest`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyRequestResult {
    /// What the client has decided.
    pub decision: ClientDecision,
}

/// What a client decides about one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ClientDecision {
    /// It may go on.
    Allow,
    /// It is blocked.
    Deny {
        /// Why.
        reason: String,
    },
    /// It is blocked, and the client asks its user.
    Ask {
        /// Why.
        reason: String,
    },
}

/// Params of `network/policyDecision`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyDecisionParams {
    /// The process whose proxy has decided.
    pub process_id: ProcessId,
    /// When: RFC 3339, UTC, milliseconds.
    pub timestamp: String,
    /// What it is about.
    pub scope: DecisionScope,
    /// What was decided.
    pub decision: Decision,
    /// Who has.
    pub source: DecisionSource,
    /// A word for it.
    pub reason: String,
    /// How the destination was to be reached.
    pub protocol: NetworkProtocol,
    /// The destination.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Of HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Who has connected to the proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The client has decided otherwise than the rules.
    pub policy_override: bool,
    /// How many such decisions this stands for; absent is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

/// See [`PolicyDecisionParams::scope`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecisionScope {
    /// The destination.
    Domain,
    /// Mode, method or kind of socket.
    NonDomain,
}

/// See [`PolicyDecisionParams::decision`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// It went on.
    Allow,
    /// It was blocked.
    Deny,
    /// It was blocked; the client asks its user.
    Ask,
}

/// See [`PolicyDecisionParams::source`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecisionSource {
    /// The rules.
    BaselinePolicy,
    /// The client.
    Decider,
    /// The mode.
    ModeGuard,
    /// What the proxy can do.
    ProxyState,
}
