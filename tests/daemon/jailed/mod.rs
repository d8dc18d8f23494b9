//! Programs under a sandbox context: what they reach, and that they are otherwise what they are outside.

mod attempts;
mod backends;
mod landlock;
mod network;
mod surroundings;
mod weaknesses;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{Client, Daemon, Run, Start, uri};

/// A workspace `w` and a place `out` beside it, with a file `secret`.
struct Area {
    _dir: tempfile::TempDir,
    w: PathBuf,
    out: PathBuf,
}

impl Area {
    fn new() -> Self {
        // Not below /tmp, which policies name.
        let dir = tempfile::Builder::new().prefix("exec-server-jail-").tempdir_in("/var/tmp").unwrap();
        let base = dir.path().canonicalize().unwrap();
        let (w, out) = (base.join("w"), base.join("out"));
        std::fs::create_dir(&w).unwrap();
        std::fs::create_dir(&out).unwrap();
        std::fs::write(out.join("secret"), "SECRET").unwrap();
        std::fs::write(w.join("f"), "inside").unwrap();
        Self { _dir: dir, w, out }
    }

    fn context(&self, entries: &[Value], network: &str) -> Value {
        json!({
            "permissions": {
                "type": "managed",
                "file_system": {"type": "restricted", "entries": entries},
                "network": network
            },
            "policyContext": {"cwd": uri(&self.w), "workspaceRoots": [uri(&self.w)]},
            "windowsSandboxLevel": "disabled"
        })
    }

    fn read_only(&self) -> Value {
        self.context(&[special("root", "read")], "restricted")
    }

    fn workspace_write(&self) -> Value {
        self.workspace_and(&[])
    }

    fn workspace_and(&self, more: &[Value]) -> Value {
        let mut entries = vec![special("root", "read"), special("project_roots", "write")];
        entries.extend_from_slice(more);
        self.context(&entries, "restricted")
    }

    fn restricted_read(&self) -> Value {
        self.context(&[special("minimal", "read"), special("project_roots", "read")], "restricted")
    }

    fn networked(&self) -> Value {
        self.context(&[special("root", "read"), special("project_roots", "write")], "enabled")
    }

    /// Names in the workspace, sorted.
    fn names(&self) -> Vec<String> {
        names(&self.w)
    }

    /// Nothing outside the workspace has been changed.
    #[track_caller]
    fn assert_outside_untouched(&self) {
        assert_eq!(names(&self.out), ["secret"]);
        assert_eq!(std::fs::read_to_string(self.out.join("secret")).unwrap(), "SECRET");
    }

    fn sh(&self, script: &str, sandbox: Value) -> Start {
        Start::sh(script).cwd(&self.w).with("sandbox", sandbox)
    }

    fn bash(&self, script: &str, sandbox: Value) -> Start {
        Start::bash(script).cwd(&self.w).with("sandbox", sandbox)
    }

    fn python(&self, script: &str, sandbox: Value) -> Start {
        Start::argv(["/usr/bin/python3", "-c", script]).cwd(&self.w).with("sandbox", sandbox)
    }
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn special(kind: &str, access: &str) -> Value {
    json!({"path": {"type": "special", "value": {"kind": kind}}, "access": access})
}

fn entry(path: &Path, access: &str) -> Value {
    json!({"path": {"type": "path", "path": uri(path)}, "access": access})
}

fn stderr(run: &Run) -> String {
    String::from_utf8_lossy(&run.stderr).into_owned()
}

/// A server that has the named backend only.
async fn forced(backend: &str) -> (Daemon, Client) {
    let daemon = Daemon::setup().argument("--sandbox-backend").argument(backend).start().await;
    let client = daemon.client().await;
    (daemon, client)
}
