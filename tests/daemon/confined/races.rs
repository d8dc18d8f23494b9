//! Calls while a thread swaps what they name: it may change everything in the workspace, as a confined program may.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;
use test_case::test_case;

use super::{Policy, Room};
use crate::support::{Daemon, base64, unbase64};

const ROUNDS: usize = 400;

/// Swaps two names of the workspace again and again, until it is dropped.
struct Swapper {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<u64>>,
}

impl Swapper {
    fn of(one: &Path, other: &Path) -> Self {
        let (one, other) = (one.to_owned(), other.to_owned());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut swaps = 0;
            while !stopped.load(Ordering::Relaxed) {
                // What the call under test has replaced or taken away is put back.
                swaps += u64::from(renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).is_ok());
            }
            swaps
        });
        Self { stop, thread: Some(thread) }
    }

    fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

/// A directory with harmless files, and a link that leads to `target`, which has files of the same names.
fn trap(room: &Room, target: &str) {
    fs::create_dir_all(room.at("w/trap/dir")).unwrap();
    fs::write(room.at("w/trap/secret"), "inside").unwrap();
    fs::write(room.at("w/trap/x"), "inside").unwrap();
    fs::write(room.at("w/trap/dir/inner"), "inside").unwrap();
    symlink(room.at(target), room.at("w/swap")).unwrap();
}

#[test_case(Policy::WorkspaceWrite, "out")]
#[test_case(Policy::WorkspaceWrite, "w/.git")]
#[test_case(Policy::Denials, "w/den")]
#[test_case(Policy::Denials, "out")]
#[tokio::test]
async fn nothing_gets_through_a_directory_that_becomes_a_link(policy: Policy, target: &str) {
    let room = Room::new();
    trap(&room, target);
    let (context, kept) = room.policy(policy);
    let before = room.picture(&kept);
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let swapper = Swapper::of(&room.at("w/trap"), &room.at("w/swap"));
    let planted = base64(b"planted");
    let at = |name: &str| room.uri(&format!("w/trap/{name}"));
    let calls = [
        ("fs/writeFile", json!({"path": at("secret"), "dataBase64": planted})),
        ("fs/writeFile", json!({"path": at("config"), "dataBase64": planted, "atomic": false})),
        ("fs/writeFile", json!({"path": at("new"), "dataBase64": planted})),
        ("fs/readFile", json!({"path": at("secret")})),
        ("fs/readFile", json!({"path": at("x")})),
        ("fs/createDirectory", json!({"path": at("made/below")})),
        (
            "fs/copy",
            json!({"sourcePath": room.uri("w/sub"), "destinationPath": at("copied"), "recursive": true}),
        ),
        (
            "fs/copy",
            json!({"sourcePath": at("secret"), "destinationPath": room.uri("w/got"), "recursive": true}),
        ),
        ("fs/readFile", json!({"path": room.uri("w/got")})),
        ("fs/rename", json!({"sourcePath": room.uri("w/f"), "destinationPath": at("f"), "replace": true})),
        ("fs/setPermissions", json!({"path": at("secret"), "mode": "0600"})),
        ("fs/createSymlink", json!({"path": at("hooks/l"), "target": "f"})),
        ("fs/remove", json!({"path": at("dir")})),
        ("fs/remove", json!({"path": at("hooks")})),
    ];
    let mut succeeded = 0;
    for round in 0..ROUNDS {
        let (method, params) = &calls[round % calls.len()];
        let mut params = params.clone();
        params["sandbox"] = context.clone();
        let Ok(answer) = client.call(method, params).await else { continue };
        succeeded += 1;
        let content = answer["dataBase64"].as_str().map(unbase64).unwrap_or_default();
        let content = String::from_utf8_lossy(&content).into_owned();
        let secrets = policy.secrets(&room);
        assert_eq!(secrets.iter().find(|secret| content.contains(*secret)), None, "{method}");
    }
    let swaps = swapper.end();
    assert!(swaps > 100 && succeeded > 0, "{swaps} swaps, {succeeded} calls");
    assert_eq!(room.picture(&kept), before);
}

#[test_case("fs/writeFile")]
#[test_case("fs/open")]
#[tokio::test]
async fn nothing_gets_through_a_file_that_becomes_a_link(method: &str) {
    let room = Room::new();
    fs::write(room.at("w/trap"), "inside").unwrap();
    symlink("../out/secret", room.at("w/swap")).unwrap();
    let (context, kept) = room.policy(Policy::Denials);
    let before = room.picture(&kept);
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let swapper = Swapper::of(&room.at("w/trap"), &room.at("w/swap"));
    let mut succeeded = 0;
    for round in 0..ROUNDS {
        let mode = if round % 2 == 0 { "replace" } else { "read" };
        let params = json!({
            "path": room.uri("w/trap"), "handleId": "h", "mode": mode, "dataBase64": "cGxhbnRlZA==",
            "atomic": round % 3 == 0, "sandbox": context
        });
        if client.call(method, params).await.is_ok() {
            succeeded += 1;
        }
        if method == "fs/open" {
            let read = client.call("fs/readBlock", json!({"handleId": "h", "offset": 0, "len": 99})).await;
            let chunk = read.ok().and_then(|block| block["chunk"].as_str().map(unbase64)).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&chunk).contains("SECRET"));
            client
                .call("fs/writeBlock", json!({"handleId": "h", "offset": 0, "chunk": "cGxhbnRlZA=="}))
                .await
                .ok();
            client.ok("fs/close", json!({"handleId": "h"})).await;
        }
    }
    assert!(swapper.end() > 100 && succeeded > 0);
    assert_eq!(room.picture(&kept), before);
}

/// A tree is removed, walked and copied while a directory deep in it becomes a link.
#[tokio::test]
async fn trees_are_not_left_through_links_that_come_in_between() {
    let room = Room::new();
    let (context, kept) = room.policy(Policy::Denials);
    let before = room.picture(&kept);
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    fs::create_dir_all(room.at("w/deep")).unwrap();
    symlink(room.at("out"), room.at("w/deep/swap")).unwrap();
    let limits =
        json!({"maxDepth": 9, "maxDirectories": 500, "maxEntries": 5000, "followDirectorySymlinks": true});
    let swapper = Swapper::of(&room.at("w/deep/tree"), &room.at("w/deep/swap"));
    for _ in 0..ROUNDS / 4 {
        // Made aside: the test is not confined.
        for name in ["dir/a", "a/b/c"] {
            fs::create_dir_all(room.at("w/fresh").join(name)).unwrap();
        }
        fs::rename(room.at("w/fresh"), room.at("w/deep/tree")).ok();
        let got = json!({"sourcePath": room.uri("w/deep/tree"), "destinationPath": room.uri("w/got"), "recursive": true});
        for (method, mut params) in [
            ("fs/walk", json!({"path": room.uri("w/deep"), "options": limits})),
            ("fs/copy", got),
            ("fs/walk", json!({"path": room.uri("w/got"), "options": limits})),
            ("fs/remove", json!({"path": room.uri("w/got")})),
            ("fs/remove", json!({"path": room.uri("w/deep/tree/dir")})),
            ("fs/remove", json!({"path": room.uri("w/deep/tree")})),
        ] {
            params["sandbox"] = context.clone();
            let answer = client.call(method, params).await.unwrap_or_default();
            assert!(!answer.to_string().contains("SECRET"), "{method}: {answer}");
        }
        symlink(room.at("out"), room.at("w/deep/swap")).ok();
    }
    swapper.end();
    assert_eq!(room.picture(&kept), before);
}
