//! `error.data`: facts about failures, for programs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sandbox::SandboxGap;

/// `error.data` of a start that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StartErrorData {
    /// Why.
    pub kind: StartErrorKind,
    /// With `sandboxUnavailable`: what would have to be accepted for the start to succeed; empty if that would not help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gaps: Option<Vec<SandboxGap>>,
}

/// See [`StartErrorData`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum StartErrorKind {
    /// The program, its interpreter or the working directory does not exist.
    SpawnNotFound,
    /// Not executable, or not to be entered.
    SpawnPermissionDenied,
    /// Any other failure of the start itself.
    SpawnFailed,
    /// Nothing here can enforce the policy.
    SandboxUnavailable,
    /// The sandbox cannot be built from what is on this machine now.
    SandboxPreparation,
}

impl From<StartErrorKind> for StartErrorData {
    fn from(kind: StartErrorKind) -> Self {
        Self { kind, gaps: None }
    }
}

/// `error.data` of a write that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WriteErrorData {
    /// Why.
    pub kind: WriteErrorKind,
}

/// See [`WriteErrorData`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum WriteErrorKind {
    /// The process does not read, and no more is held for it. Nothing was written.
    StdinFull,
}

/// `error.data` of a file call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileErrorData {
    /// Why.
    pub kind: FileErrorKind,
    /// The number of the operating system's error, where it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
}

/// See [`FileErrorData`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum FileErrorKind {
    /// The path does not exist.
    NotFound,
    /// The system forbids it.
    PermissionDenied,
    /// The path exists.
    AlreadyExists,
    /// It is a directory.
    IsDirectory,
    /// It is no directory.
    NotDirectory,
    /// The directory has entries.
    NotEmpty,
    /// The file system is read-only.
    ReadOnly,
    /// The disk or the quota is full.
    NoSpace,
    /// Too many links, or one where none may be.
    SymlinkLoop,
    /// The file is too large.
    TooLarge,
    /// A limit of the server or the system.
    Limit,
    /// It is no regular file.
    NotRegularFile,
    /// No such open file.
    UnknownHandle,
    /// Nothing here can enforce the policy.
    SandboxUnavailable,
    /// The policy cannot be enforced on what is on this machine now.
    SandboxPreparation,
    /// Anything else.
    Other,
}

/// `error.data` of an HTTP request that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HttpErrorData {
    /// Where it happened.
    pub kind: HttpErrorKind,
}

/// See [`HttpErrorData`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum HttpErrorKind {
    /// The time limit of the request.
    Timeout,
    /// No connection to the host or the proxy.
    Connect,
    /// The name of the host.
    Dns,
    /// Certificates, trust store, handshake.
    Tls,
    /// What came is not HTTP.
    Protocol,
    /// Too many redirects, or one to elsewhere than HTTP.
    Redirect,
    /// The body ended early or cannot be decoded.
    Body,
    /// The body is larger than what can be taken whole.
    TooLarge,
    /// The configuration puts the host out of bounds.
    Denied,
}
