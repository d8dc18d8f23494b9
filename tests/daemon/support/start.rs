//! The params of `process/start`.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use super::{Marker, uri};

/// A start with an id of its own, PATH `/usr/bin:/bin`, in the temporary directory.
#[derive(Debug, Clone)]
pub(crate) struct Start(Value);

impl Start {
    pub(crate) fn argv<S: AsRef<str>>(argv: impl IntoIterator<Item = S>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let argv: Vec<String> = argv.into_iter().map(|word| word.as_ref().to_owned()).collect();
        let id = format!("p{}", NEXT.fetch_add(1, Ordering::Relaxed));
        Self(json!({
            "processId": id, "argv": argv, "cwd": "file:///tmp", "env": {"PATH": "/usr/bin:/bin"}, "tty": false,
        }))
    }

    pub(crate) fn sh(script: &str) -> Self {
        Self::argv(["/bin/sh", "-c", script])
    }

    pub(crate) fn bash(script: &str) -> Self {
        Self::argv(["/bin/bash", "-c", script])
    }

    pub(crate) fn tty(self, tty: bool) -> Self {
        self.with("tty", json!(tty))
    }

    pub(crate) fn stdin(self) -> Self {
        self.with("pipeStdin", json!(true))
    }

    pub(crate) fn cwd(self, path: &Path) -> Self {
        self.with("cwd", json!(uri(path)))
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.0["env"][name] = json!(value);
        self
    }

    pub(crate) fn no_env(self) -> Self {
        self.with("env", json!({}))
    }

    /// Carries the marker, so that the process and what it starts can be found.
    pub(crate) fn marked(self, marker: &Marker) -> Self {
        self.env(Marker::NAME, marker.value())
    }

    pub(crate) fn with(mut self, member: &str, value: Value) -> Self {
        self.0[member] = value;
        self
    }

    pub(crate) fn id(&self) -> String {
        self.0["processId"].as_str().expect("an id").to_owned()
    }

    pub(crate) fn named(self, id: &str) -> Self {
        self.with("processId", json!(id))
    }

    pub(crate) fn params(&self) -> Value {
        self.0.clone()
    }
}
