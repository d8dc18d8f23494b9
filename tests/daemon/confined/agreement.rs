//! File calls and sandboxed processes are confined by different means to the same policy: they agree.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};
use test_case::test_case;

use super::{Policy, Room, special};
use crate::support::{Client, Daemon, Start};

/// Names that exist, by ways of all kinds.
const NAMES: &[&str] = &[
    "w/f",
    "w/sub/g",
    "w/esc/secret",
    "w/esc-file",
    "w/chain/dir/inner",
    "w/up/out/secret",
    "w/deep/up2/secret",
    "w/key",
    "w/key-link",
    "w/den/x",
    "w/den-link/x",
    "w/hold/den/x",
    "w/a.env",
    "w/alias",
    "w/env/b.env",
    "w/env/c.key",
    "w/.git/config",
    "w/meta/config",
    "out/secret",
    "/etc/passwd",
    "/proc/meminfo",
];

/// Directories in which something is to be made.
const PLACES: &[&str] = &[
    "w",
    "w/sub",
    "w/esc",
    "w/up/out",
    "w/den",
    "w/den-link",
    "w/hold",
    "w/.git",
    "w/meta",
    "w/.git/hooks",
    "out",
    "/usr",
    "/etc",
    "/",
];

/// What a shell in a sandbox can do: read the names, make something in the places.
async fn by_a_process(client: &Client, room: &Room, context: &Value) -> BTreeMap<String, bool> {
    let tests = NAMES.iter().map(|name| (*name, format!("cat '{}'", room.at(name).display())));
    let made = PLACES.iter().map(|name| {
        let path = room.at(name).join("agreement-new");
        (*name, format!("mkdir '{0}' && rmdir '{0}'", path.display()))
    });
    let script: String = tests
        .chain(made)
        .map(|(name, command)| format!("if ( {command} ) >/dev/null 2>&1; then echo '{name}'; fi; echo -;"))
        .collect();
    let start = Start::sh(&script).cwd(&room.at("w")).with("sandbox", context.clone());
    let told = client.run(&start).await.text();
    let answers = told.split("-\n").map(|answer| !answer.is_empty());
    NAMES.iter().chain(PLACES).map(|name| (*name).to_owned()).zip(answers).collect()
}

async fn by_file_calls(client: &Client, room: &Room, context: &Value) -> BTreeMap<String, bool> {
    let mut can = BTreeMap::new();
    for name in NAMES {
        let read = json!({"path": room.uri(name), "sandbox": context});
        can.insert((*name).to_owned(), client.call("fs/readFile", read).await.is_ok());
    }
    for name in PLACES {
        let path = format!("{}/agreement-new", room.uri(name).trim_end_matches('/'));
        let params = json!({"path": path, "sandbox": context, "recursive": false});
        let made = client.call("fs/createDirectory", params.clone()).await.is_ok();
        let removed = client.call("fs/remove", params).await;
        assert!(!made || removed.is_ok(), "{name}: {removed:?}");
        can.insert((*name).to_owned(), made);
    }
    can
}

#[test_case(Policy::ReadOnly)]
#[test_case(Policy::WorkspaceWrite)]
#[test_case(Policy::RestrictedRead)]
#[test_case(Policy::Denials)]
#[tokio::test]
async fn a_file_call_can_what_a_process_can(policy: Policy) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let room = Room::new();
    let (context, _) = room.policy(policy);
    let by_process = by_a_process(&client, &room, &context).await;
    assert_eq!(by_file_calls(&client, &room, &context).await, by_process);
    let able = by_process.values().filter(|able| **able).count();
    assert!(able > 2 && able < by_process.len(), "{by_process:?}");
}

#[tokio::test]
async fn what_keeps_a_running_sandbox_from_creating_is_not_shown() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let room = Room::new();
    fs::remove_dir_all(room.at("w/.git")).unwrap();
    let context = room.context(&[special("root", "read"), special("project_roots", "write")]);
    let start =
        Start::sh("echo ready; read line").stdin().cwd(&room.at("w")).with("sandbox", context.clone());
    client.start(&start).await;
    client.wait_output(&start.id(), "ready").await;
    let call = async |method: &str, name: &str| {
        client.call(method, json!({"path": room.uri(name), "sandbox": context})).await
    };
    let listed = call("fs/readDirectory", "w").await.unwrap().to_string();
    for name in [".git", ".codex", ".agents", ".aws"] {
        assert!(!listed.contains(&format!("\"{name}\"")), "{listed}");
        let name = format!("w/{name}");
        assert_eq!(call("fs/getMetadata", &name).await.unwrap_err().kind(), "notFound");
        assert_eq!(call("fs/createDirectory", &name).await.unwrap_err().kind(), "readOnly");
    }
    assert!(listed.contains("\"sub\""));
    client.write(&start.id(), "1", b"\n").await;
    client.finish(&start.id()).await;
}
