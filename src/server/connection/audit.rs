//! What the audit log says of requests: those that change something, and those that were refused.
//!
//! Of a command line only the program and the number of its arguments are recorded, of a URL only scheme and host, of
//! content only its size: the rest is where secrets are.

use std::sync::Arc;
use std::time::SystemTime;

use url::Url;

use super::calls::Call;
use crate::path_uri::PathUri;
use crate::protocol::fs::OpenMode;
use crate::protocol::http::RequestParams;
use crate::protocol::process::{StartParams, StartResult};
use crate::session::{Attachment, ConnectionId};
use crate::telemetry::Entry;

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Default)]
pub struct Who {
    /// Its address, as far as it has one.
    pub peer: String,
    /// What it has proved to know, without telling it.
    pub token: Option<String>,
}

impl Who {
    /// Whoever started this process.
    pub(in crate::server) fn stdio() -> Self {
        Self { peer: "stdio".to_owned(), token: None }
    }

    /// What entries of a connection share.
    pub(super) fn asker(&self, id: ConnectionId, attachment: Option<&Attachment>) -> Arc<Entry> {
        let entry = Entry::new("request")
            .text("peer", &self.peer)
            .optional("token", self.token.as_deref())
            .plain("connection", id.number());
        let session = attachment.map(Attachment::session);
        Arc::new(match session {
            Some(session) => entry.text("session", session.id()).text("client", session.client_name()),
            None => entry,
        })
    }
}

/// What a call is about, as long as it is not answered.
pub(super) enum Subject {
    /// It changes something.
    Change(Entry),
    /// It looks at something that the session does not own, which is recorded only when it fails.
    Look { arrived: SystemTime, method: &'static str, path: PathUri },
}

impl Subject {
    /// What may be recorded of a call; nothing of calls that look at what the session owns anyway.
    pub(super) fn of(call: &Call) -> Option<Self> {
        let look = |path: &PathUri| Self::Look {
            arrived: SystemTime::now(),
            method: call.method(),
            path: path.clone(),
        };
        change(call).map(Self::Change).or_else(|| looked_at(call).map(look))
    }

    /// With what enforces the policy of a process that has started.
    pub(super) fn started(self, result: &StartResult) -> Self {
        match self {
            Self::Change(entry) => Self::Change(
                entry
                    .value("sandboxBackend", &result.sandbox_backend)
                    .value("sandboxGaps", &result.sandbox_gaps)
                    .plain("alreadyStarted", result.already_started),
            ),
            look @ Self::Look { .. } => look,
        }
    }

    /// The entry, if there is to be one.
    pub(super) fn into_entry(self, failed: bool) -> Option<Entry> {
        match self {
            Self::Change(entry) => Some(entry),
            Self::Look { arrived, method, path } if failed => {
                Some(Entry::at(arrived, "request").text("method", method).text("path", path.as_str()))
            }
            Self::Look { .. } => None,
        }
    }
}

/// The entry of a call that changes something.
fn change(call: &Call) -> Option<Entry> {
    let entry = || Entry::new("request").text("method", call.method());
    Some(match call {
        Call::Initialize(params) => entry()
            .text("client", &params.client_name)
            .optional("resume", params.resume_session_id.as_deref())
            .optional("observe", params.observe_session_id.as_deref()),
        Call::Start(params) => start(entry(), params),
        Call::Signal(params) => {
            entry().text("process", params.process_id.as_str()).value("signal", &params.signal)
        }
        Call::Terminate(params) => entry().text("process", params.process_id.as_str()),
        Call::FsWriteFile(params) => {
            path(entry(), &params.path).plain("base64Bytes", params.data_base64.len())
        }
        Call::FsOpen(params) if params.mode == OpenMode::Replace => path(entry(), &params.path),
        Call::FsCreateDirectory(params) => path(entry(), &params.path),
        Call::FsRemove(params) => path(entry(), &params.path).plain("recursive", params.recursive),
        Call::FsCopy(params) => pair(entry(), &params.source_path, &params.destination_path),
        Call::FsRename(params) => pair(entry(), &params.source_path, &params.destination_path),
        Call::FsSetPermissions(params) => path(entry(), &params.path).value("mode", &params.mode),
        Call::FsCreateSymlink(params) => path(entry(), &params.path).text("target", &params.target),
        Call::HttpRequest(params) => http(entry(), params),
        _ => return None,
    })
}

/// What a call looks at, if it is a file.
fn looked_at(call: &Call) -> Option<&PathUri> {
    Some(match call {
        Call::FsOpen(params) => &params.path,
        Call::FsReadFile(params) => &params.path,
        Call::FsGetMetadata(params) => &params.path,
        Call::FsCanonicalize(params) => &params.path,
        Call::FsReadDirectory(params) => &params.path,
        Call::FsWalk(params) => &params.path,
        _ => return None,
    })
}

fn start(entry: Entry, params: &StartParams) -> Entry {
    let exec = &params.exec;
    let entry = entry
        .text("process", exec.process_id.as_str())
        .optional("program", exec.argv.first().map(String::as_str))
        .plain("arguments", exec.argv.len().saturating_sub(1))
        .text("cwd", exec.cwd.as_str())
        .plain("tty", exec.tty);
    match &exec.sandbox {
        Some(sandbox) => entry.value("policy", &sandbox.permissions),
        None => entry,
    }
}

fn http(entry: Entry, params: &RequestParams) -> Entry {
    let entry = entry.text("httpMethod", &params.method);
    match Url::parse(&params.url) {
        Ok(url) => entry.text("host", &url.origin().ascii_serialization()),
        Err(_) => entry,
    }
}

fn path(entry: Entry, path: &PathUri) -> Entry {
    entry.text("path", path.as_str())
}

fn pair(entry: Entry, source: &PathUri, destination: &PathUri) -> Entry {
    entry.text("source", source.as_str()).text("path", destination.as_str())
}
