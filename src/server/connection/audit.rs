//! What the audit log says of requests: those that change something, and those that were refused.
//!
//! Of a command line only the program and the number of its arguments are recorded, of a URL only scheme and host, of
//! content only its size: the rest is where secrets are.

use url::Url;

use super::calls::Call;
use crate::path_uri::PathUri;
use crate::protocol::fs::OpenMode;
use crate::protocol::http::RequestParams;
use crate::protocol::process::{StartParams, StartResult};
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

    /// An entry about it.
    pub(in crate::server) fn entry(&self, event: &'static str) -> Entry {
        Entry::new(event).text("peer", &self.peer).optional("token", self.token.as_deref())
    }
}

/// What a call is about, if it is to be recorded when it succeeds; otherwise it is recorded when it fails.
pub(super) struct Subject {
    pub(super) entry: Entry,
    pub(super) always: bool,
}

impl Subject {
    /// What is recorded of a call; nothing of calls that look at what the session owns anyway.
    pub(super) fn of(call: &Call) -> Option<Self> {
        let entry = Entry::new("request").text("method", call.method());
        let changing = |entry| Some(Self { entry, always: true });
        let looking = |entry| Some(Self { entry, always: false });
        match call {
            Call::Initialize(params) => changing(
                entry
                    .text("client", &params.client_name)
                    .optional("resume", params.resume_session_id.as_deref())
                    .optional("observe", params.observe_session_id.as_deref()),
            ),
            Call::Start(params) => changing(start(entry, params)),
            Call::Signal(params) => {
                changing(entry.text("process", params.process_id.as_str()).value("signal", &params.signal))
            }
            Call::Terminate(params) => changing(entry.text("process", params.process_id.as_str())),
            Call::FsWriteFile(params) => {
                changing(path(entry, &params.path).plain("base64Bytes", params.data_base64.len()))
            }
            Call::FsOpen(params) if params.mode == OpenMode::Replace => changing(path(entry, &params.path)),
            Call::FsCreateDirectory(params) => changing(path(entry, &params.path)),
            Call::FsRemove(params) => {
                changing(path(entry, &params.path).plain("recursive", params.recursive))
            }
            Call::FsCopy(params) => changing(pair(entry, &params.source_path, &params.destination_path)),
            Call::FsRename(params) => changing(pair(entry, &params.source_path, &params.destination_path)),
            Call::FsSetPermissions(params) => changing(path(entry, &params.path).value("mode", &params.mode)),
            Call::FsCreateSymlink(params) => {
                changing(path(entry, &params.path).text("target", &params.target))
            }
            Call::HttpRequest(params) => changing(http(entry, params)),
            Call::FsOpen(params) => looking(path(entry, &params.path)),
            Call::FsReadFile(params) => looking(path(entry, &params.path)),
            Call::FsGetMetadata(params) => looking(path(entry, &params.path)),
            Call::FsCanonicalize(params) => looking(path(entry, &params.path)),
            Call::FsReadDirectory(params) => looking(path(entry, &params.path)),
            Call::FsWalk(params) => looking(path(entry, &params.path)),
            _ => None,
        }
    }

    /// With what enforces the policy of a process that has started.
    pub(super) fn started(&mut self, result: &StartResult) {
        let entry = std::mem::replace(&mut self.entry, Entry::new("request"));
        self.entry = entry
            .value("sandboxBackend", &result.sandbox_backend)
            .value("sandboxGaps", &result.sandbox_gaps)
            .plain("alreadyStarted", result.already_started);
    }
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
