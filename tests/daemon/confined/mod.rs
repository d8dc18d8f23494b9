//! File calls under a sandbox context: what they reach, and that nothing else is ever read or changed.

mod agreement;
mod attempts;
mod battery;
mod behaviour;
mod races;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{uri, work_dir};

/// In files that a policy hides or denies, and in the daemon's environment.
const OUTSIDE: &str = "SECRET-outside";
const DENIED: &str = "SECRET-denied";
const DAEMON: &str = "SECRET-of-the-daemon";

/// A workspace `w` full of traps, and a place `out` beside it.
struct Room {
    _dir: tempfile::TempDir,
    base: PathBuf,
}

impl Room {
    fn new() -> Self {
        let dir = work_dir();
        let base = dir.path().canonicalize().unwrap();
        let room = Self { _dir: dir, base };
        room.furnish();
        room
    }

    fn at(&self, name: &str) -> PathBuf {
        if name.starts_with('/') { PathBuf::from(name) } else { self.base.join(name) }
    }

    fn uri(&self, name: &str) -> String {
        uri(&self.at(name))
    }

    /// A name that only a listing of this room tells: others stand open where only this one is denied.
    fn untold(&self) -> String {
        format!("SECRET-of-{}", self.base.file_name().unwrap().display())
    }

    /// Makes everything as it was in the beginning.
    fn refurnish(&self) {
        for entry in fs::read_dir(&self.base).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                fs::remove_dir_all(path)
            } else {
                fs::remove_file(path)
            }
            .unwrap();
        }
        self.furnish();
    }

    fn furnish(&self) {
        for directory in [
            "out/dir",
            "out/up",
            "w/sub",
            "w/deep",
            "w/den",
            "w/hold/den",
            "w/env",
            "w/tree",
            "w/.git/hooks",
            "w/prep/hooks",
            "w/src/esc",
            "w/src/.codex",
        ] {
            fs::create_dir_all(self.at(directory)).unwrap();
        }
        for (file, content) in [
            ("out/secret", OUTSIDE),
            ("out/dir/inner", OUTSIDE),
            (&format!("out/{}", self.untold()), OUTSIDE),
            ("w/f", "inside"),
            ("w/sub/g", "inside"),
            ("w/tree/t", "inside"),
            // A link that a deny glob names leads here: a process is denied both, a file call the link.
            ("w/linked", "inside"),
            ("w/prep/hooks/pre-commit", "planted"),
            ("w/src/esc/planted", "planted"),
            ("w/src/.codex/planted", "planted"),
            ("w/.git/config", "protected"),
            ("w/den/x", DENIED),
            ("w/hold/den/x", DENIED),
            ("w/key", DENIED),
            ("w/a.env", DENIED),
            ("w/env/b.env", DENIED),
            ("w/env/c.key", DENIED),
        ] {
            fs::write(self.at(file), content).unwrap();
        }
        let out = self.at("out").display().to_string();
        for (link, target) in [
            ("w/esc", out.as_str()),
            ("w/esc-file", "../out/secret"),
            ("w/dangling", "../out/created"),
            ("w/dangling-dir", "../out/newdir"),
            ("w/chain", "esc"),
            ("w/up", ".."),
            ("w/deep/up2", "../../out"),
            ("w/root", "/"),
            ("w/proc", "/proc"),
            ("w/self", "/proc/self"),
            ("w/environ", "/proc/self/environ"),
            ("w/loop", "loop"),
            ("w/alias", "a.env"),
            ("w/link.env", "linked"),
            ("w/den-link", "den"),
            ("w/key-link", "key"),
            ("w/meta", ".git"),
            ("w/tree/l", out.as_str()),
            ("w/tree/f", "../../out/secret"),
        ] {
            symlink(target, self.at(link)).unwrap();
        }
    }

    fn context(&self, entries: &[Value]) -> Value {
        json!({
            "permissions": {
                "type": "managed",
                "file_system": {"type": "restricted", "entries": entries},
                "network": "restricted"
            },
            "policyContext": {"cwd": self.uri("w"), "workspaceRoots": [self.uri("w")]},
            "windowsSandboxLevel": "disabled"
        })
    }

    fn entry(&self, name: &str, access: &str) -> Value {
        json!({"path": {"type": "path", "path": self.uri(name)}, "access": access})
    }

    /// A context of a kind, and what it must keep as it is.
    fn policy(&self, policy: Policy) -> (Value, Vec<&'static str>) {
        let (reads, writes) = (special("root", "read"), special("project_roots", "write"));
        match policy {
            Policy::ReadOnly => (self.context(&[reads]), vec!["out", "w"]),
            Policy::WorkspaceWrite => (self.context(&[reads, writes]), vec!["out", "w/.git", "w/.codex"]),
            Policy::RestrictedRead => {
                let reads = special("project_roots", "read");
                (self.context(&[special("minimal", "read"), reads]), vec!["out", "w"])
            }
            Policy::Denials => {
                let globs = ["**/*.env", "env/*.key"].map(
                    |pattern| json!({"path": {"type": "glob_pattern", "pattern": pattern}, "access": "deny"}),
                );
                let denied = ["w/den", "w/hold/den", "w/key", "out"].map(|name| self.entry(name, "deny"));
                let entries: Vec<Value> = [reads, writes].into_iter().chain(globs).chain(denied).collect();
                let kept = vec!["out", "w/.git", "w/.codex", "w/den", "w/hold", "w/key", "w/a.env", "w/env"];
                (self.context(&entries), kept)
            }
        }
    }

    /// Everything below some names that can be told without a clock: kind, mode, owner, content or target.
    fn picture(&self, names: &[&str]) -> BTreeMap<PathBuf, String> {
        let mut picture = BTreeMap::new();
        for name in names {
            depict(&self.at(name), &mut picture);
        }
        picture
    }
}

fn depict(path: &Path, picture: &mut BTreeMap<PathBuf, String>) {
    let Ok(metadata) = path.symlink_metadata() else { return };
    let content = if metadata.is_symlink() {
        format!("-> {}", fs::read_link(path).unwrap().display())
    } else if metadata.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            depict(&entry.unwrap().path(), picture);
        }
        String::new()
    } else {
        String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()
    };
    let what = format!("{:o} {} {} {content}", metadata.permissions().mode(), metadata.uid(), metadata.ino());
    picture.insert(path.to_owned(), what);
}

fn special(kind: &str, access: &str) -> Value {
    json!({"path": {"type": "special", "value": {"kind": kind}}, "access": access})
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    /// All may be read, nothing written.
    ReadOnly,
    /// All may be read, the workspace written.
    WorkspaceWrite,
    /// The system and the workspace may be read, nothing else is there.
    RestrictedRead,
    /// As [`Self::WorkspaceWrite`], but places inside and outside are denied.
    Denials,
}

impl Policy {
    const ALL: [Self; 4] = [Self::ReadOnly, Self::WorkspaceWrite, Self::RestrictedRead, Self::Denials];

    /// What no answer may contain.
    fn secrets(self, room: &Room) -> Vec<String> {
        let secrets: &[&str] = match self {
            Self::ReadOnly | Self::WorkspaceWrite => return vec![DAEMON.to_owned()],
            Self::RestrictedRead => &[DAEMON, OUTSIDE],
            Self::Denials => &[DAEMON, OUTSIDE, DENIED],
        };
        secrets.iter().map(|secret| (*secret).to_owned()).chain([room.untold()]).collect()
    }
}
