//! The handshake and what sessions there are.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::code;
use super::environment::EnvironmentInfo;
use super::method::{Failures, methods, notifications};
use super::process::Empty;

methods! {
    from Client;
    /// Opens, resumes or observes a session.
    Initialize = "initialize": InitializeParams => InitializeResult,
        Failures { codes: &[code::SESSION_ATTACHED], data: None };
    /// Lists the sessions of the server.
    List = "session/list": Empty => SessionListResponse;
}

notifications! {
    from Client;
    /// The client has read the answer to `initialize`.
    Initialized = "initialized": serde_json::Value;
}

/// Params of `initialize`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InitializeParams {
    /// Any text, for people.
    pub client_name: String,
    /// The session to resume.
    #[serde(default)]
    pub resume_session_id: Option<String>,
    /// The session to look on at, without taking it over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observe_session_id: Option<String>,
}

/// Result of `initialize`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InitializeResult {
    /// The session of this connection.
    pub session_id: String,
    /// What the executor is; absent from older servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment_info: Option<EnvironmentInfo>,
    /// The connection looks on only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub observer: bool,
}

/// Result of `session/list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionListResponse {
    /// In order of creation.
    pub sessions: Vec<SessionSummary>,
}

/// One row of `session/list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionSummary {
    /// The id to resume or observe it by.
    pub session_id: String,
    /// What its client called itself.
    pub client_name: String,
    /// A connection holds it.
    pub attached: bool,
    /// Connections that look on.
    pub observers: usize,
    /// Live processes and records of ended ones.
    pub processes: usize,
    /// Unix milliseconds.
    pub created_at_ms: u64,
    /// Unix milliseconds; null while attached.
    pub detached_at_ms: Option<u64>,
}
