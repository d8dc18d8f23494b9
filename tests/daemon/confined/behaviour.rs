//! What file calls under a context do answer.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::{DAEMON, Policy, Room, special};
use crate::support::{Client, Daemon, base64, unbase64};

struct Scene {
    room: Room,
    client: Client,
    _daemon: Daemon,
}

impl Scene {
    async fn new() -> Self {
        let daemon = Daemon::start().await;
        let client = daemon.client().await;
        Self { room: Room::new(), client, _daemon: daemon }
    }

    /// A call on one path; its result, or the code and kind of its error.
    async fn call(
        &self,
        method: &str,
        name: &str,
        more: Value,
        context: &Value,
    ) -> Result<Value, (i64, String)> {
        let mut params = json!({"path": self.room.uri(name), "sandbox": context});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.client.call(method, params).await.map_err(|error| (error.code, error.kind().to_owned()))
    }

    async fn read(&self, name: &str, context: &Value) -> Result<String, (i64, String)> {
        let answer = self.call("fs/readFile", name, json!({}), context).await?;
        Ok(String::from_utf8(unbase64(answer["dataBase64"].as_str().unwrap())).unwrap())
    }

    async fn write(&self, name: &str, context: &Value) -> Result<Value, (i64, String)> {
        self.call("fs/writeFile", name, json!({"dataBase64": base64(b"new")}), context).await
    }

    async fn names(&self, name: &str, context: &Value) -> Vec<String> {
        let answer = self.call("fs/readDirectory", name, json!({}), context).await.unwrap();
        let entries = answer["entries"].as_array().unwrap();
        let mut names: Vec<_> =
            entries.iter().map(|entry| entry["fileName"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    }
}

fn refused<T>(code: i64, kind: &str) -> Result<T, (i64, String)> {
    Err((code, kind.to_owned()))
}

#[tokio::test]
async fn each_way_of_being_refused_has_its_code() {
    let scene = Scene::new().await;
    let (hiding, _) = scene.room.policy(Policy::RestrictedRead);
    assert_eq!(scene.read("out/secret", &hiding).await, refused(-32004, "notFound"));
    assert_eq!(scene.write("out/new", &hiding).await, refused(-32004, "notFound"));
    assert_eq!(scene.write("new", &hiding).await, refused(-32603, "readOnly"));
    let (denying, _) = scene.room.policy(Policy::Denials);
    for name in ["w/key", "w/den/x", "w/a.env", "w/alias", "w/den-link/x"] {
        assert_eq!(scene.read(name, &denying).await, refused(-32600, "permissionDenied"), "{name}");
        assert_eq!(scene.write(name, &denying).await, refused(-32600, "permissionDenied"), "{name}");
    }
    for name in ["w/key", "w/den", "w/a.env"] {
        let removed = scene.call("fs/remove", name, json!({}), &denying).await;
        assert_eq!(removed, refused(-32603, "other"), "{name}");
    }
    let listed = scene.call("fs/readDirectory", "w/den", json!({}), &denying).await;
    assert_eq!(listed, refused(-32600, "permissionDenied"));
    let (writing, _) = scene.room.policy(Policy::WorkspaceWrite);
    for name in ["out/secret", "out/new", "w/.git/config", "w/.codex", "w/.codex/x", "w/meta/config"] {
        let missing = name == "w/.codex/x";
        let expected = if missing { refused(-32004, "notFound") } else { refused(-32603, "readOnly") };
        assert_eq!(scene.write(name, &writing).await, expected, "{name}");
    }
    assert_eq!(scene.call("fs/remove", "w/.git", json!({}), &writing).await, refused(-32603, "other"));
    let set_id = scene.call("fs/setPermissions", "w/f", json!({"mode": "4755"}), &writing).await;
    assert_eq!(set_id, refused(-32600, "other"));
}

#[tokio::test]
async fn what_is_denied_shows_that_it_is_there_and_nothing_else() {
    let scene = Scene::new().await;
    let (context, _) = scene.room.policy(Policy::Denials);
    for (name, is_file) in [("w/key", true), ("w/a.env", true), ("w/key-link", true), ("w/den", false)] {
        let shown = scene.call("fs/getMetadata", name, json!({}), &context).await.unwrap();
        let facts =
            (&shown["isFile"], &shown["isDirectory"], &shown["size"], &shown["mode"], &shown["modifiedAtMs"]);
        assert_eq!(
            facts,
            (&json!(is_file), &json!(!is_file), &json!(0), &json!("0000"), &json!(0)),
            "{name}"
        );
    }
    let below = scene.call("fs/getMetadata", "w/den/x", json!({}), &context).await;
    assert_eq!(below, refused(-32600, "permissionDenied"));
    assert!(scene.names("w", &context).await.contains(&"key".to_owned()));
}

#[tokio::test]
async fn only_the_way_to_what_may_be_read_is_there() {
    let scene = Scene::new().await;
    let (context, _) = scene.room.policy(Policy::RestrictedRead);
    let base = scene.room.base.clone();
    fs::write(base.join("beside"), "x").unwrap();
    assert_eq!(scene.names("", &context).await, ["w"]);
    let way = scene.call("fs/getMetadata", "", json!({}), &context).await.unwrap();
    assert_eq!((&way["isDirectory"], &way["mode"]), (&json!(true), &json!("0755")));
    assert_eq!((&way["modifiedAtMs"], &way["inode"]), (&json!(0), &json!("0")));
    let top = scene.names("/", &context).await;
    for name in ["usr", "etc", "dev", "proc"] {
        assert!(top.contains(&name.to_owned()), "{top:?}");
    }
    assert!(
        !top.contains(&"root".to_owned()) && !top.contains(&"var".to_owned()) || base.starts_with("/var")
    );
    scene.call("fs/createDirectory", "", json!({}), &context).await.unwrap();
    scene.call("fs/remove", "out/secret", json!({}), &context).await.unwrap();
    assert!(base.join("out/secret").exists());
    let limits =
        json!({"maxDepth": 3, "maxDirectories": 99, "maxEntries": 999, "followDirectorySymlinks": true});
    let walked = scene.call("fs/walk", "", json!({"options": limits}), &context).await.unwrap().to_string();
    assert!(
        walked.contains("w/sub/g") && !walked.contains("beside") && !walked.contains("secret"),
        "{walked}"
    );
}

#[tokio::test]
async fn system_directories_are_read_by_their_usual_names() {
    let scene = Scene::new().await;
    let (context, _) = scene.room.policy(Policy::RestrictedRead);
    for name in ["/bin/sh", "/usr/bin/env", "/etc/passwd"] {
        let read = scene.call("fs/readFile", name, json!({}), &context).await;
        assert!(read.is_ok(), "{name}: {read:?}");
    }
}

#[tokio::test]
async fn of_devices_and_of_proc_only_the_plain_ones_are_there() {
    let scene = Scene::new().await;
    for policy in Policy::ALL {
        let (context, _) = scene.room.policy(policy);
        assert!(scene.read("/proc/meminfo", &context).await.unwrap().contains("MemTotal"));
        scene.write("/dev/null", &context).await.unwrap();
        assert_eq!(scene.read("/dev/zero", &context).await, refused(-32600, "notRegularFile"));
        for name in [
            "/proc/self/status",
            "/proc/1/status",
            "/proc/cmdline",
            "/dev/kmsg",
            "/dev/pts/ptmx",
            "/dev/fd/0",
        ] {
            assert_eq!(scene.read(name, &context).await, refused(-32004, "notFound"), "{policy:?} {name}");
        }
        let devices = scene.names("/dev", &context).await;
        assert!(
            devices
                .iter()
                .all(|name| ["full", "null", "random", "tty", "urandom", "zero"].contains(&name.as_str())),
            "{devices:?}"
        );
        let chmod = scene.call("fs/setPermissions", "/dev/null", json!({"mode": "0666"}), &context).await;
        assert_eq!(chmod, refused(-32600, "permissionDenied"));
    }
}

/// A `proc` file system is what it is, wherever it is mounted.
#[tokio::test]
async fn a_second_proc_tells_nothing() {
    let room = Room::new();
    let place = room.at("w/sub").display().to_string();
    let mounted = "mount --rbind /proc \"$0\" && exec \"$@\"";
    let daemon = Daemon::setup()
        .wrapper(&["unshare", "-rm", "sh", "-c", mounted, &place])
        .variable("TEST_SECRET", DAEMON)
        .start()
        .await;
    let client = daemon.client().await;
    let (context, _) = room.policy(Policy::WorkspaceWrite);
    for name in ["meminfo", "self/environ", "self/root/etc/passwd", "self", "self/fd/0", "thread-self/comm"] {
        let path = room.uri(&format!("w/sub/{name}"));
        client.ok("fs/getMetadata", json!({"path": path})).await;
        for method in ["fs/readFile", "fs/open", "fs/readDirectory"] {
            let call = json!({"path": path, "handleId": "h", "sandbox": context});
            assert_eq!(client.error(method, call).await.kind(), "notFound", "{method} {name}");
        }
    }
    let top = json!({"path": room.uri("w/sub"), "sandbox": context});
    assert_eq!(client.error("fs/readDirectory", top).await.kind(), "notFound");
}

#[tokio::test]
async fn everything_works_in_the_workspace() {
    let scene = Scene::new().await;
    let room = &scene.room;
    let (context, _) = room.policy(Policy::WorkspaceWrite);
    scene.write("w/new", &context).await.unwrap();
    scene.write("w/f", &context).await.unwrap();
    assert_eq!(scene.read("w/f", &context).await.unwrap(), "new");
    scene.call("fs/createDirectory", "w/x/y", json!({}), &context).await.unwrap();
    scene.call("fs/createSymlink", "w/x/l", json!({"target": "../f"}), &context).await.unwrap();
    assert_eq!(scene.read("w/x/l", &context).await.unwrap(), "new");
    scene.call("fs/setPermissions", "w/x/l", json!({"mode": "0640"}), &context).await.unwrap();
    assert_eq!(room.at("w/f").metadata().unwrap().permissions().mode() & 0o7777, 0o640);
    let two = |from: &str, to: &str| json!({"sourcePath": room.uri(from), "destinationPath": room.uri(to), "recursive": true, "sandbox": context});
    scene.client.ok("fs/copy", two("out", "w/copied")).await;
    assert!(room.at("w/copied/dir/inner").exists());
    scene.client.ok("fs/rename", two("w/copied", "w/x/moved")).await;
    let real = scene.call("fs/canonicalize", "w/x/l", json!({}), &context).await.unwrap();
    assert_eq!(real["path"], json!(room.uri("w/f")));
    scene.call("fs/remove", "w/x", json!({}), &context).await.unwrap();
    assert!(!room.at("w/x").exists());
    scene.call("fs/createDirectory", "out", json!({}), &context).await.unwrap();
    scene.call("fs/createDirectory", "w/sub/.git/hooks", json!({}), &context).await.unwrap();
}

#[tokio::test]
async fn a_single_file_is_rewritten_in_place() {
    let scene = Scene::new().await;
    let context = scene.room.context(&[special("root", "read"), scene.room.entry("out/secret", "write")]);
    scene.write("out/secret", &context).await.unwrap();
    assert_eq!(fs::read(scene.room.at("out/secret")).unwrap(), b"new");
    let atomic = json!({"dataBase64": "", "atomic": true});
    let refusal = scene.call("fs/writeFile", "out/secret", atomic, &context).await;
    assert_eq!(refusal, refused(-32600, "other"));
    assert_eq!(scene.write("out/other", &context).await, refused(-32603, "readOnly"));
}

#[tokio::test]
async fn a_grant_of_git_lets_commit_and_keeps_the_hooks() {
    let scene = Scene::new().await;
    let room = &scene.room;
    let context = room.context(&[
        special("root", "read"),
        special("project_roots", "write"),
        room.entry("w/.git", "write"),
    ]);
    scene.write("w/.git/index", &context).await.unwrap();
    scene.write("w/meta/HEAD", &context).await.unwrap();
    let hook = scene.write("w/.git/hooks/pre-commit", &context).await;
    assert_eq!(hook, refused(-32603, "readOnly"));
    fs::remove_dir_all(room.at("w/.git")).unwrap();
    scene.call("fs/createDirectory", "w/.git", json!({}), &context).await.unwrap();
    let hooks = scene.call("fs/createDirectory", "w/.git/hooks", json!({}), &context).await;
    assert_eq!(hooks, refused(-32603, "readOnly"));
    let moved = json!({"sourcePath": room.uri("w/prep"), "destinationPath": room.uri("w/.git"), "replace": true, "sandbox": context});
    scene.client.call("fs/rename", moved).await.unwrap_err();
    assert!(!room.at("w/.git/hooks").exists());
}

#[tokio::test]
async fn an_alias_of_a_workspace_is_as_good() {
    let scene = Scene::new().await;
    let room = &scene.room;
    std::os::unix::fs::symlink("w", room.at("link")).unwrap();
    let mut context = room.context(&[special("minimal", "read"), special("project_roots", "write")]);
    context["policyContext"]["workspaceRoots"] = json!([room.uri("link")]);
    for name in ["link/f", "w/f"] {
        assert_eq!(scene.read(name, &context).await.unwrap(), "inside", "{name}");
        scene.write(&name.replace("/f", "/by-name"), &context).await.unwrap();
    }
    let removed = scene.call("fs/remove", "link", json!({}), &context).await;
    assert!(removed.is_err() && room.at("link").is_symlink());
}

#[tokio::test]
async fn set_id_bits_do_not_survive_a_confined_write() {
    let scene = Scene::new().await;
    let (context, _) = scene.room.policy(Policy::WorkspaceWrite);
    for (name, more) in [("w/f", json!({"atomic": true})), ("w/sub/g", json!({"atomic": false}))] {
        let path = scene.room.at(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).unwrap();
        let mut params = json!({"dataBase64": base64(b"new")});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        scene.call("fs/writeFile", name, params, &context).await.unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o755, "{name}");
    }
}

#[tokio::test]
async fn a_file_that_is_replaced_again_and_again_is_always_there() {
    let scene = Scene::new().await;
    let (context, _) = scene.room.policy(Policy::RestrictedRead);
    let (path, aside) = (scene.room.at("w/f"), scene.room.at("w/aside"));
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = std::sync::Arc::clone(&stop);
    let writer = std::thread::spawn(move || {
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            fs::write(&aside, "inside").unwrap();
            fs::rename(&aside, &path).unwrap();
        }
    });
    for _ in 0..300 {
        assert_eq!(scene.read("w/f", &context).await.unwrap(), "inside");
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    writer.join().unwrap();
}
