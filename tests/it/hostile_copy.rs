//! `exec-server cp -r` from a server that would write elsewhere on this machine.

use std::process::Stdio;

use serde_json::{Value, json};
use test_case::test_case;
use tokio::process::Command;

use crate::support::place::Room;
use crate::support::scripted::ScriptedServer;
use crate::support::soon;

fn entry(name: &str, is_directory: bool, link: Option<&str>) -> Value {
    let mut entry = json!({"fileName": name, "isDirectory": is_directory, "isFile": !is_directory});
    if let Some(text) = link {
        entry["linkTarget"] = json!(text);
    }
    entry
}

#[test_case(&[entry("../evil", false, None)]; "upwards")]
#[test_case(&[entry("evil/../../evil", false, None)]; "up behind a name")]
#[test_case(&[entry("..", true, None)]; "the directory above")]
#[test_case(&[entry("a", false, Some("..")), entry("a", true, None)]; "through a link of its own making")]
#[tokio::test]
async fn names_do_not_lead_out_of_the_destination(entries: &[Value]) {
    let (server, room) = (ScriptedServer::start().await, Room::new());
    let child = Command::new(env!("CARGO_BIN_EXE_exec-server"))
        .args(["cp", "-r", &format!("{}:/tree", server.url())])
        .arg(room.path("copy"))
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut connection = server.accept_session(json!({"fileOperations": true})).await;
    let about = connection.expect("fs/getMetadata").await;
    let tree = json!({"isDirectory": true, "isFile": false, "isSymlink": false, "size": 0, "createdAtMs": 0,
        "modifiedAtMs": 0, "mode": "0755"});
    connection.reply(&about, tree).await;
    let list = connection.expect("fs/readDirectory").await;
    connection.reply(&list, json!({"entries": entries})).await;
    // Nothing else is asked for: the listing as a whole is refused.
    assert_eq!(connection.next().await, None);
    let output = soon(child.wait_with_output()).await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.starts_with("exec-server: "), "{said}");
    let names: Vec<_> = room.path("").read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["copy"]);
    assert_eq!(room.path("copy").read_dir().unwrap().count(), 0);
}
