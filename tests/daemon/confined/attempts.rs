//! What is tried: each a series of calls, the last of which would read or change what it must not.

use serde_json::{Value, json};

use super::Room;
use crate::support::base64;

/// A call without its context.
pub(super) type Call = (&'static str, Value);

/// Something that must not work, and its calls.
pub(super) struct Attempt {
    pub(super) what: String,
    pub(super) calls: Vec<Call>,
}

fn planted() -> String {
    base64(b"planted")
}

fn one(what: String, method: &'static str, params: Value) -> Attempt {
    Attempt { what, calls: vec![(method, params)] }
}

/// Names of files that must not be read or written, by every way that leads to them.
const FORBIDDEN_FILES: &[&str] = &[
    "w/esc/secret",
    "w/esc-file",
    "w/chain/dir/inner",
    "w/up/out/secret",
    "w/deep/up2/secret",
    "w/tree/l/secret",
    "w/tree/f",
    "w/key",
    "w/key-link",
    "w/den/x",
    "w/den-link/x",
    "w/hold/den/x",
    "w/a.env",
    "w/alias",
    "w/up/w/a.env",
    "w/env/b.env",
    "w/env/c.key",
    "w/proc/self/environ",
    "w/self/environ",
    "w/environ",
    "/proc/self/environ",
    "/proc/thread-self/environ",
    "/proc/self/task/../environ",
    "/proc/self/maps",
    "/proc/self/mem",
    "/proc/self/cmdline",
    "/proc/self/fd/0",
    "/proc/self/cwd/stderr",
    "/proc/self/mountinfo",
    "/proc/1/environ",
    "/dev/fd/0",
    "/dev/stdin",
    "/dev/stderr",
    "/dev/mem",
    "/dev/kmsg",
    "/etc/mtab",
];

/// Where nothing may come to be.
const FORBIDDEN_PLACES: &[&str] = &[
    "out/new",
    "w/esc/new",
    "w/esc/dir/new",
    "w/chain/new",
    "w/dangling",
    "w/dangling-dir",
    "w/up/out/new",
    "w/deep/up2/new",
    "w/tree/l/new",
    "w/.codex",
    "w/.git/new",
    "w/.git/hooks/pre-commit",
    "w/meta/new",
    "w/meta/hooks/post-commit",
    "w/den/new",
    "w/den-link/new",
    "w/hold/den/new",
    "/dev/new",
    "/dev/shm/exec-server-test-new",
    "/proc/new",
    "/proc/self/comm",
];

impl Room {
    /// All of them, for a daemon of this process id.
    pub(super) fn attempts(&self, pid: i32) -> Vec<Attempt> {
        let mut all = self.on_files(pid);
        all.extend(self.on_places());
        all.extend(self.on_directories());
        all.extend(self.by_two_names());
        all.extend(self.by_links_of_its_own());
        all
    }

    fn on_files(&self, pid: i32) -> Vec<Attempt> {
        let root = format!("w/root{}", self.at("out/secret").display());
        let through_proc = format!("/proc/self/root{}", self.at("out/secret").display());
        let of_daemon = ["environ", "maps", "fd/1", "cwd", "exe"].map(|name| format!("/proc/{pid}/{name}"));
        let names = FORBIDDEN_FILES.iter().map(|name| (*name).to_owned());
        let names = names.chain([root, through_proc]).chain(of_daemon);
        names.flat_map(|name| self.on_file(&name)).collect()
    }

    fn on_file(&self, name: &str) -> Vec<Attempt> {
        let path = self.uri(name);
        let calls = [
            ("fs/readFile", json!({"path": path})),
            ("fs/open", json!({"path": path, "handleId": "h"})),
            (
                "fs/copy",
                json!({"sourcePath": path, "destinationPath": self.uri("w/sub/got"), "recursive": true}),
            ),
            ("fs/rename", json!({"sourcePath": path, "destinationPath": self.uri("w/sub/got")})),
        ];
        let then_read = ("fs/readFile", json!({"path": self.uri("w/sub/got")}));
        calls
            .into_iter()
            .map(|(method, params)| Attempt {
                what: format!("{method} {name}"),
                calls: vec![(method, params), then_read.clone()],
            })
            .collect()
    }

    fn on_places(&self) -> Vec<Attempt> {
        let changed =
            ["w/esc/secret", "w/esc-file", "w/.git/config", "w/meta/config", "w/key", "w/a.env", "w/alias"];
        let names = FORBIDDEN_PLACES.iter().chain(&changed);
        names.flat_map(|name| self.on_place(name)).collect()
    }

    fn on_place(&self, name: &str) -> Vec<Attempt> {
        let path = self.uri(name);
        let from = |source: &str| json!({"sourcePath": self.uri(source), "destinationPath": path, "recursive": true});
        let over =
            |source: &str| json!({"sourcePath": self.uri(source), "destinationPath": path, "replace": true});
        [
            ("fs/writeFile", json!({"path": path, "dataBase64": planted()})),
            ("fs/writeFile", json!({"path": path, "dataBase64": planted(), "atomic": true})),
            ("fs/writeFile", json!({"path": path, "dataBase64": planted(), "atomic": false})),
            ("fs/writeFile", json!({"path": path, "dataBase64": planted(), "followSymlinks": false})),
            ("fs/open", json!({"path": path, "handleId": "h", "mode": "replace"})),
            ("fs/createDirectory", json!({"path": path})),
            ("fs/createDirectory", json!({"path": format!("{path}/a/b")})),
            ("fs/createDirectory", json!({"path": path, "recursive": false})),
            ("fs/createSymlink", json!({"path": path, "target": "f"})),
            ("fs/copy", from("w/f")),
            ("fs/copy", from("w/tree")),
            ("fs/rename", over("w/f")),
            ("fs/rename", over("w/prep")),
            ("fs/setPermissions", json!({"path": path, "mode": "0777"})),
        ]
        .into_iter()
        .enumerate()
        .map(|(index, (method, params))| one(format!("{method} #{index} {name}"), method, params))
        // A link at the workspace's own name that leads out is the workspace's to replace.
        .filter(|attempt| !(name.contains("dangling") && matches!(attempt.calls[0].0, "fs/rename")))
        .collect()
    }

    fn on_directories(&self) -> Vec<Attempt> {
        let names = [
            "out",
            "w/esc",
            "w/esc/dir",
            "w/chain",
            "w/up/out",
            "w/deep/up2",
            "w/den",
            "w/den-link",
            "w/hold/den",
            "w/tree/l",
            "w/root",
            "/proc/self",
            "/proc/self/cwd",
            "/proc/self/fd",
            "/proc/self/root",
            "/dev/fd",
        ];
        let limits = json!({"maxDepth": 9, "maxDirectories": 500, "maxEntries": 5000, "followDirectorySymlinks": true});
        let looking = names.iter().flat_map(|name| {
            let path = self.uri(name);
            let got = self.uri("w/sub/got");
            vec![
                one(format!("readDirectory {name}"), "fs/readDirectory", json!({"path": path})),
                one(format!("walk {name}"), "fs/walk", json!({"path": path, "options": limits})),
                one(
                    format!("copy {name}"),
                    "fs/copy",
                    json!({"sourcePath": path, "destinationPath": got, "recursive": *name != "w/root"}),
                ),
            ]
        });
        let removing = [
            "out",
            "out/dir",
            "w/esc/dir",
            "w/up/out",
            "w/deep/up2/dir",
            "w/.git",
            "w/.git/hooks",
            "w/den",
            "w/hold",
            "w/hold/den",
            "w",
            "w/up/w",
            "w/root",
        ];
        let removing = removing.iter().filter(|name| **name != "w/root").flat_map(|name| {
            let path = self.uri(name);
            vec![
                one(format!("remove {name}"), "fs/remove", json!({"path": path})),
                one(
                    format!("rename {name}"),
                    "fs/rename",
                    json!({"sourcePath": path, "destinationPath": self.uri("w/sub/got")}),
                ),
                one(format!("chmod {name}"), "fs/setPermissions", json!({"path": path, "mode": "0700"})),
            ]
        });
        let workspace = one("walk w".into(), "fs/walk", json!({"path": self.uri("w"), "options": limits}));
        let whole = one(
            "copy w".into(),
            "fs/copy",
            json!({"sourcePath": self.uri("w"), "destinationPath": self.uri("w/../x"), "recursive": true}),
        );
        // The mode of the workspace itself is its own.
        let own =
            |attempt: &Attempt| !matches!(attempt.what.as_str(), "chmod w" | "chmod w/up/w" | "chmod w/hold");
        looking.chain(removing).chain([workspace, whole]).filter(own).collect()
    }

    /// Recursive copies and removals through links, and moves that would carry something out of what protects it.
    fn by_two_names(&self) -> Vec<Attempt> {
        let copy = |from: &str, to: &str| {
            (
                "fs/copy",
                json!({"sourcePath": self.uri(from), "destinationPath": self.uri(to), "recursive": true}),
            )
        };
        let moves = |from: &str, to: &str| {
            (
                "fs/rename",
                json!({"sourcePath": self.uri(from), "destinationPath": self.uri(to), "replace": true}),
            )
        };
        let read = |path: &str| ("fs/readFile", json!({"path": self.uri(path)}));
        let remove = |path: &str| ("fs/remove", json!({"path": self.uri(path)}));
        let calls = [
            ("a copy into the workspace follows its link out", vec![copy("w/src", "w")]),
            ("a copy onto a link that leads out", vec![copy("w/f", "w/esc-file")]),
            ("a copy onto a dangling link", vec![copy("w/f", "w/dangling")]),
            ("a tree with links is removed", vec![remove("w/tree")]),
            ("a link to a directory is removed", vec![remove("w/esc"), remove("w/chain")]),
            ("a parent of what is denied is moved", vec![moves("w/hold", "w/moved"), read("w/moved/den/x")]),
            ("a directory is moved out of a glob", vec![moves("w/env", "w/env2"), read("w/env2/c.key")]),
            ("a file is moved out of a glob", vec![moves("w/a.env", "w/plain"), read("w/plain")]),
            ("a tree is copied out of a glob", vec![copy("w/env", "w/env2"), read("w/env2/c.key")]),
            (
                "a tree is moved onto protected names",
                vec![moves("w/prep", "w/.agents"), copy("w/prep", "w/.git")],
            ),
            ("a link is moved onto a protected name", vec![moves("w/esc", "w/.codex")]),
            ("the workspace is moved away", vec![moves("w", "elsewhere")]),
            ("the metadata is moved away", vec![moves("w/.git", "w/git2"), copy("w/prep", "w/.git")]),
            ("something outside is moved in", vec![moves("out/dir", "w/dir"), read("w/dir/inner")]),
            ("a file is moved over what is denied", vec![moves("w/f", "w/key"), moves("w/f", "w/den")]),
            (
                "a set-id bit",
                vec![("fs/setPermissions", json!({"path": self.uri("w/f"), "mode": "4755"})), read("w/key")],
            ),
        ];
        calls.into_iter().map(|(what, calls)| Attempt { what: what.into(), calls }).collect()
    }

    /// The confined client makes the link itself, then uses it.
    fn by_links_of_its_own(&self) -> Vec<Attempt> {
        let targets = [
            "../out",
            "../out/secret",
            "..",
            "/",
            "/proc/self",
            "/proc/self/environ",
            "/proc/self/root",
            "/dev/fd",
            "den",
            "key",
            "a.env",
            "esc",
            ".git",
            "../out/./../out",
        ];
        let uses = |target: &str| {
            let own = self.uri("w/own");
            let below = |name: &str| format!("{own}/{name}");
            let out = self.at("out/secret").display().to_string();
            vec![
                ("fs/createSymlink", json!({"path": own, "target": target})),
                ("fs/readFile", json!({"path": own})),
                ("fs/readFile", json!({"path": below("secret")})),
                ("fs/readFile", json!({"path": below("x")})),
                ("fs/readFile", json!({"path": below("environ")})),
                ("fs/readFile", json!({"path": below(&out[1..])})),
                ("fs/readDirectory", json!({"path": own})),
                ("fs/createDirectory", json!({"path": below("out/made")})),
                ("fs/remove", json!({"path": below("out/dir")})),
                ("fs/remove", json!({"path": below("dir")})),
                ("fs/setPermissions", json!({"path": below("secret"), "mode": "0600"})),
                ("fs/rename", json!({"sourcePath": self.uri("w/f"), "destinationPath": below("moved")})),
            ]
        };
        targets
            .iter()
            .map(|target| Attempt { what: format!("a link to {target}"), calls: uses(target) })
            .collect()
    }
}
