//! Sandboxed runs leave nothing in a workspace, and their protection lasts as long as they do.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::json;
use test_case::test_case;

use super::support::machine::{guards_of, kill};
use super::support::sandbox::workspace;
use super::support::{Client, Daemon, LIMIT, Marker, Start, eventually, work_dir};

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

const PROTECTED: [&str; 4] = [".agents", ".aws", ".codex", ".git"];
/// Says what it could make of the protected names, whenever it is told to.
const TRY: &str =
    "echo up; while read line; do mkdir -p .git/hooks 2>/dev/null && echo made || echo refused; done";

fn start(script: &str, directory: &Path) -> Start {
    Start::sh(script).cwd(directory).with("sandbox", workspace(directory, "restricted"))
}

fn real(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().canonicalize().unwrap()
}

/// Starts a run that lasts until its input ends.
async fn begin(client: &Client, directory: &Path) -> String {
    let start = start(TRY, directory).stdin();
    client.start(&start).await;
    client.wait_output(&start.id(), "up").await;
    start.id()
}

/// Whether a run of [`begin`] is still kept from the protected names.
async fn is_refused(client: &Client, process: &str) {
    client.write(process, &format!("w-{process}"), b"try\n").await;
    client.wait_output(process, "refused").await;
    assert!(!client.so_far(process).text().contains("made"));
}

async fn finish(client: &Client, process: &str) {
    client.ok("process/closeStdin", json!({"processId": process})).await;
    client.finish(process).await;
}

#[tokio::test]
async fn nothing_stays_after_a_run() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let directory = work_dir();
    let w = real(&directory);
    let run = client.run(&start("echo run > f; mkdir .git .codex .x", &w)).await;
    assert_ne!(run.exit(), 0);
    assert_eq!(names(&w), [".x", "f"]);
}

#[test_case(0; "at once")]
#[test_case(2000; "with a grace")]
#[tokio::test]
async fn nothing_stays_after_a_terminate(grace: u64) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let directory = work_dir();
    let w = real(&directory);
    let start = start("echo up; trap '' TERM; sleep 100 & wait; sleep 100", &w);
    client.start(&start).await;
    client.wait_output(&start.id(), "up").await;
    assert_eq!(names(&w), PROTECTED);
    client.ok("process/terminate", json!({"processId": start.id(), "graceMs": grace})).await;
    client.finish(&start.id()).await;
    assert_eq!(names(&w), [""; 0]);
}

#[tokio::test]
async fn nothing_stays_when_the_session_or_the_server_ends() {
    let mut daemon = Daemon::setup().set("session.detached_ms", "100").start().await;
    let directory = work_dir();
    let w = real(&directory);
    let client = daemon.client().await;
    begin(&client, &w).await;
    client.abort().await;
    eventually("the session's placeholders are gone", LIMIT, || names(&w).is_empty()).await;
    let client = daemon.client().await;
    begin(&client, &w).await;
    daemon.signal(Signal::TERM);
    daemon.ended(LIMIT).await;
    assert_eq!(names(&w), [""; 0]);
}

#[test_case(None; "with a state directory")]
#[test_case(Some("/dev/null/none"); "without one")]
#[tokio::test]
async fn nothing_stays_when_the_server_is_killed(state_dir: Option<&str>) {
    let setup = match state_dir {
        Some(path) => Daemon::setup().set("server.state_dir", path),
        None => Daemon::setup(),
    };
    let mut daemon = setup.start().await;
    let directory = work_dir();
    let w = real(&directory);
    let client = daemon.client().await;
    begin(&client, &w).await;
    assert_eq!(names(&w), PROTECTED);
    daemon.signal(Signal::KILL);
    daemon.ended(LIMIT).await;
    eventually("the guard clears the workspace", LIMIT, || names(&w).is_empty()).await;
}

#[tokio::test]
async fn the_next_server_clears_what_server_and_guard_left() {
    let state = work_dir();
    let setup = || Daemon::setup().set("server.state_dir", state.path().to_str().unwrap());
    let mut daemon = setup().start().await;
    let (directory, marker) = (work_dir(), Marker::new());
    let w = real(&directory);
    let client = daemon.client().await;
    let start = start("echo up; sleep 301", &w).marked(&marker);
    client.start(&start).await;
    client.wait_output(&start.id(), "up").await;
    daemon.signal(Signal::STOP);
    for guard in guards_of(daemon.pid()) {
        kill(guard, Signal::KILL);
    }
    daemon.signal(Signal::KILL);
    daemon.ended(LIMIT).await;
    eventually("the sandbox ends with its server", LIMIT, || marker.pids().is_empty()).await;
    assert_eq!(names(&w), PROTECTED);
    let _next = setup().start().await;
    eventually("the next server clears the workspace", LIMIT, || names(&w).is_empty()).await;
    assert_eq!(names(&state.path().join("placeholders")).len(), 1, "its own journal");
}

#[tokio::test]
async fn the_first_run_to_end_does_not_unmask_the_second() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let (directory, temporary) = (work_dir(), work_dir());
    let w = real(&directory);
    let first = begin(&client, &w).await;
    let second = start(TRY, &w).stdin().env("TMPDIR", temporary.path().to_str().unwrap());
    client.start(&second).await;
    client.wait_output(&second.id(), "up").await;
    finish(&client, &first).await;
    is_refused(&client, &second.id()).await;
    assert_eq!(names(&w), PROTECTED);
    finish(&client, &second.id()).await;
    assert_eq!(names(&w), [""; 0]);
}

#[tokio::test]
async fn a_server_that_ends_or_is_killed_does_not_unmask_the_run_of_another() {
    let mut servers = [Daemon::start().await, Daemon::start().await, Daemon::start().await];
    let directory = work_dir();
    let w = real(&directory);
    let mut runs = Vec::new();
    for server in &servers {
        let client = server.client().await;
        let process = begin(&client, &w).await;
        runs.push((client, process));
    }
    let (first, process) = &runs[0];
    finish(first, process).await;
    servers[1].signal(Signal::KILL);
    servers[1].ended(LIMIT).await;
    let next = Daemon::start().await;
    let client = next.client().await;
    client.run(&start("true", &w)).await;
    let (third, process) = &runs[2];
    is_refused(third, process).await;
    finish(third, process).await;
    eventually("the last server clears the workspace", LIMIT, || names(&w).is_empty()).await;
}

#[tokio::test]
async fn what_the_host_makes_meanwhile_survives() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let directory = work_dir();
    let w = real(&directory);
    let (first, second) = (begin(&client, &w).await, begin(&client, &w).await);
    fs::create_dir_all(w.join(".git/hooks")).unwrap();
    fs::write(w.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    finish(&client, &first).await;
    finish(&client, &second).await;
    let third = client.run(&start("cat .git/HEAD; echo x > .git/HEAD || echo kept", &w)).await;
    assert_eq!(String::from_utf8_lossy(&third.stdout), "ref: refs/heads/main\nkept\n");
    assert_eq!(names(&w), [".git"]);
    assert_eq!(names(&w.join(".git")), ["HEAD", "hooks"]);
}
