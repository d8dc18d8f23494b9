//! The examples, run as they are.

use pretty_assertions::assert_eq;
use test_case::test_case;

use crate::support::place::Room;
use crate::support::server::ServerProcess;
use crate::support::soon;

#[path = "../../examples/run_command.rs"]
#[expect(dead_code, reason = "its own main")]
mod run_command;
#[path = "../../examples/sandboxed_edit.rs"]
#[expect(dead_code, reason = "its own main")]
mod sandboxed_edit;
#[path = "../../examples/survive_disconnect.rs"]
#[expect(dead_code, reason = "its own main")]
mod survive_disconnect;

async fn url(remote: bool) -> (Option<String>, Option<ServerProcess>) {
    let server = if remote { Some(ServerProcess::start().await) } else { None };
    (server.as_ref().map(|server| server.url().to_owned()), server)
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn a_command_is_run(remote: bool) {
    let ((url, _server), mut output) = (url(remote).await, Vec::new());
    assert_eq!(soon(run_command::run(url, &mut output)).await.unwrap(), 0);
    assert!(String::from_utf8(output).unwrap().ends_with("\nhello\n"));
}

#[tokio::test]
async fn a_disconnect_is_survived() {
    let (server, mut output) = (ServerProcess::start().await, Vec::new());
    soon(survive_disconnect::run(server.url(), &mut output)).await.unwrap();
    let text = String::from_utf8(output).unwrap();
    assert_eq!(text, "the connection is gone\n1\n2\n3\n4\n5\nexit code 0\n");
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn a_file_is_edited_in_a_sandbox(remote: bool) {
    let ((url, _server), room, mut output) = (url(remote).await, Room::new(), Vec::new());
    for directory in ["inside", "outside"] {
        std::fs::create_dir(room.path(directory)).unwrap();
        std::fs::write(room.path(directory).join("note.txt"), "a draft\n").unwrap();
    }
    let (inside, outside) = (room.path("inside"), room.path("outside"));
    soon(sandboxed_edit::run(url, &inside, &outside, &mut output)).await.unwrap();
    assert!(String::from_utf8(output).unwrap().contains("refused: "));
    assert_eq!(std::fs::read_to_string(inside.join("note.txt")).unwrap(), "a done\n");
    assert_eq!(std::fs::read_to_string(outside.join("note.txt")).unwrap(), "a draft\n");
}
