//! Sandboxed processes of an environment, as the seeds have them: in this program, with another one as the helper, and
//! on a server.

use std::os::unix::fs::PermissionsExt;

use exec_server::environment::{Environment, ExecServerRuntimePaths};
use exec_server::outbound::HttpClientFactory;
use exec_server::protocol::process::{ExecParams, SandboxType};
use exec_server::protocol::sandbox::{
    FileSystemAccessMode, FileSystemPath, FileSystemSandboxContext, FileSystemSandboxEntry,
    FileSystemSandboxPolicy, FileSystemSpecialPath, NetworkSandboxPolicy, PermissionProfile,
};
use pretty_assertions::assert_eq;
use test_case::test_case;

use crate::support::events::{Told, complete, rest};
use crate::support::params::exec;
use crate::support::place::{Place, Room};
use crate::support::soon;

/// Only what programs need, and the workspace, may be read.
fn restricted(room: &Room, places: &[FileSystemSpecialPath]) -> FileSystemSandboxContext {
    let entry = |value: &FileSystemSpecialPath| FileSystemSandboxEntry {
        path: FileSystemPath::Special { value: value.clone() },
        access: FileSystemAccessMode::Read,
        missing_path_behavior: None,
    };
    let policy = FileSystemSandboxPolicy::restricted(places.iter().map(entry).collect());
    FileSystemSandboxContext::from_permission_profile_with_cwd(
        PermissionProfile::from_runtime_permissions(&policy, NetworkSandboxPolicy::Restricted),
        room.uri(""),
    )
}

fn minimal_and_workspace(room: &Room) -> FileSystemSandboxContext {
    restricted(room, &[FileSystemSpecialPath::Minimal, FileSystemSpecialPath::project_roots(None)])
}

fn confined(argv: &[&str], room: &Room, sandbox: FileSystemSandboxContext) -> ExecParams {
    ExecParams { cwd: room.uri(""), sandbox: Some(sandbox), ..exec("p", argv) }
}

async fn output(place: &Place, params: ExecParams) -> (String, i32) {
    let started = place.start(params).await;
    assert!(started.sandbox_type.is_some_and(|kind| kind != SandboxType::None));
    complete(&rest(&mut started.process.subscribe_events()).await)
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn a_sandboxed_process_keeps_its_own_name(remote: bool) {
    let (place, room, outside) = (Place::new(remote).await, Room::new(), Room::new());
    std::fs::write(outside.path("denied.txt"), "denied").unwrap();
    let text = format!(
        "printf '%s' \"$0\"; if /bin/cat {} >/dev/null 2>&1; then exit 42; fi",
        outside.path("denied.txt").display()
    );
    let sandbox = minimal_and_workspace(&room);
    let params = confined(&["/bin/sh", "-c", &text], &room, sandbox);
    let params = ExecParams { arg0: Some("custom-arg0".into()), ..params };
    assert_eq!(output(&place, params).await, ("custom-arg0".into(), 0));
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn the_helper_works_where_little_may_be_read(remote: bool) {
    let (place, room) = (Place::new(remote).await, Room::new());
    std::fs::write(room.path("allowed.txt"), "allowed").unwrap();
    let file = room.path("allowed.txt").display().to_string();
    let params = confined(&["/bin/cat", &file], &room, minimal_and_workspace(&room));
    assert_eq!(output(&place, params).await, ("allowed".into(), 0));
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn no_program_of_the_workspace_becomes_the_helper(remote: bool) {
    let (place, room) = (Place::new(remote).await, Room::new());
    std::fs::write(room.path("allowed.txt"), "allowed").unwrap();
    for name in ["codex-linux-sandbox", "exec-server", "bwrap"] {
        std::fs::write(room.path(name), "#!/bin/sh\nprintf hostile").unwrap();
        std::fs::set_permissions(room.path(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let file = room.path("allowed.txt").display().to_string();
    let mut params = confined(&["/bin/cat", &file], &room, minimal_and_workspace(&room));
    params.tty = true;
    params.env.insert("PATH".into(), format!("{}:/usr/bin:/bin", room.path("").display()));
    assert_eq!(output(&place, params).await, ("allowed".into(), 0));
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn no_workspace_roots_are_none(remote: bool) {
    let (place, room) = (Place::new(remote).await, Room::new());
    std::fs::write(room.path("excluded.txt"), "excluded").unwrap();
    let mut sandbox = restricted(&room, &[FileSystemSpecialPath::project_roots(None)]);
    sandbox.workspace_roots.clear();
    let file = room.path("excluded.txt").display().to_string();
    let params = confined(&["/bin/cat", &file], &room, sandbox);
    let told = match soon(place.environment.get_exec_backend().start(params)).await {
        Ok(started) => rest(&mut started.process.subscribe_events()).await,
        Err(refused) => panic!("a start that must end by itself was refused: {refused}"),
    };
    let shown = format!("{told:?}");
    assert!(
        !shown.contains("excluded\"") && !told.iter().any(|event| matches!(event, Told::Exited(_, 0))),
        "{shown}"
    );
}

/// A program that is no helper builds no sandbox, and nothing runs instead.
#[test_case(ExecServerRuntimePaths::itself(), "helper"; "itself")]
#[test_case(ExecServerRuntimePaths::with_sandbox_helper("/bin/true"), ""; "another program")]
#[test_case(ExecServerRuntimePaths::with_sandbox_helper("/nonexistent"), ""; "none")]
#[test_case(ExecServerRuntimePaths::with_sandbox_helper("exec-server"), "not absolute"; "a relative path")]
#[tokio::test]
async fn without_a_helper_a_start_is_refused(paths: ExecServerRuntimePaths, why: &str) {
    let environment = Environment::local(paths, &HttpClientFactory::default());
    let room = Room::new();
    let touched = room.path("touched").display().to_string();
    let sandbox =
        FileSystemSandboxContext::from_permission_profile(PermissionProfile::workspace_write(), room.uri(""));
    let params = confined(&["/bin/touch", &touched], &room, sandbox);
    let error = soon(environment.get_exec_backend().start(params)).await.err().unwrap().to_string();
    assert!(error.contains("was not started"), "{error}");
    assert!(!room.path("touched").exists());
    let report = soon(environment.info()).await.unwrap().sandbox.unwrap();
    let reason = report.backends[0].reason.clone().unwrap();
    assert!(reason.contains(why), "{reason}");
}
