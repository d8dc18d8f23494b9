//! Limits of runs: each is used up by real processes. Only the culprit ends, whole, and the report names the limit.

mod cgroups;
mod memory;
mod settings;

use std::time::{Duration, Instant};

use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use test_case::test_case;

use super::support::cgroup::Cgroup;
use super::support::machine::{guards_of, oom_score_adj};
use super::support::sandbox::read_only;
use super::support::{Client, Daemon, LIMIT, Marker, Run, Start, eventually, work_dir};

/// Members of a tree that nothing but its mark or its cgroup links to it.
const STRAYS: &str = "setsid sleep 303 >/dev/null 2>&1 & (setsid sleep 303 >/dev/null 2>&1 &); ";

/// A run that others go on beside.
async fn bystander(client: &Client) -> Start {
    let bystander = Start::argv(["cat"]).stdin();
    client.start(&bystander).await;
    bystander
}

/// The culprit, with strays, ends whole by the limit; the bystander goes on.
async fn ends_alone(client: &Client, culprit: Start, limit: &str) -> Run {
    let marker = Marker::new();
    let bystander = bystander(client).await;
    let run = client.run(&culprit.marked(&marker)).await;
    run.assert_whole();
    assert_eq!((&run.exited["reason"], &run.exited["limit"]), (&json!("limit"), &json!(limit)), "{run:?}");
    eventually("nothing of the culprit is left", LIMIT, || marker.pids().is_empty()).await;
    client.write(&bystander.id(), "w", b"still here\n").await;
    client.wait_output(&bystander.id(), "still here").await;
    client.ok("process/terminate", json!({"processId": bystander.id(), "graceMs": 0})).await;
    assert_eq!(client.finish(&bystander.id()).await.exited["reason"], "terminated");
    run
}

fn limited(script: &str, limits: Value) -> Start {
    Start::bash(&format!("{STRAYS}{script}")).with("limits", limits)
}

/// A server whose runs have cgroups with these controllers; `None`, and said so, where there is none to be had.
async fn with_cgroups(controllers: &[&str]) -> Option<(Daemon, Cgroup)> {
    let cgroup = Cgroup::with(controllers)?;
    Some((Daemon::setup().set("limits.cgroup", cgroup.path()).start().await, cgroup))
}

#[test_case(false; "pipes")]
#[test_case(true; "tty")]
#[tokio::test]
async fn a_run_has_its_time(tty: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let began = Instant::now();
    let culprit = limited("trap '' TERM HUP; echo up; while :; do sleep 0.05; done", json!({"wallMs": 600}));
    let run = ends_alone(&client, culprit.tty(tty), "wallMs").await;
    assert_eq!((run.exit(), &run.exited["signal"]), (137, &json!("SIGKILL")));
    assert!(began.elapsed() >= Duration::from_millis(600));
    assert!(run.text().starts_with("up"), "{run:?}");
}

#[tokio::test]
async fn who_is_done_in_time_has_no_report() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let limits = json!({"wallMs": u64::MAX, "outputBytes": 3, "openFiles": 64});
    let run = client.run(&Start::sh("echo hi; exit 7").with("limits", limits)).await;
    assert_eq!((run.exit(), &run.exited["reason"], run.exited.get("limit")), (7, &json!("exited"), None));
    assert_eq!(run.text(), "hi\n");
}

/// The leader has ended and been reported; what holds its streams has no more time than it had.
#[tokio::test]
async fn time_goes_on_behind_the_leader() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let marker = Marker::new();
    let start = Start::bash("setsid sleep 303 & echo up").with("limits", json!({"wallMs": 500}));
    let run = client.run(&start.marked(&marker)).await;
    assert_eq!((run.exit(), &run.exited["reason"]), (0, &json!("exited")));
    eventually("what held the streams has ended", LIMIT, || marker.pids().is_empty()).await;
}

#[test_case(false, "head -c 5000000 /dev/zero; sleep 301", "stdout"; "one stream")]
#[test_case(false, "for ((i = 0; i < 100000; i++)); do echo out; echo err >&2; done; sleep 301", "both"; "both streams")]
#[test_case(false, "head -c 5000000 /dev/zero", "stdout"; "a program that ends by itself")]
#[test_case(true, "yes", "pty"; "terminal")]
#[tokio::test]
async fn output_ends_at_the_byte(tty: bool, script: &str, stream: &str) {
    const BYTES: u64 = 100_001;
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let culprit = limited(script, json!({"outputBytes": BYTES})).tty(tty);
    let run = ends_alone(&client, culprit, "outputBytes").await;
    let given = run.stdout.len() + run.stderr.len() + run.pty.len();
    assert_eq!(given as u64, BYTES);
    let totals = &run.closed["outputBytes"];
    let sum: u64 = ["stdout", "stderr", "pty"].iter().filter_map(|name| totals[name].as_u64()).sum();
    assert_eq!(sum, BYTES);
    if stream != "both" {
        assert_eq!(totals[stream], BYTES);
    }
}

#[tokio::test]
async fn output_of_exactly_the_limit_is_no_breach() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let start = Start::sh("head -c 70000 /dev/zero").with("limits", json!({"outputBytes": 70_000}));
    let run = client.run(&start).await;
    assert_eq!((run.exit(), &run.exited["reason"], run.stdout.len()), (0, &json!("exited"), 70_000));
}

const OPENS: &str = "import os, resource\n\
    print(resource.getrlimit(resource.RLIMIT_NOFILE))\n\
    files = []\n\
    try:\n    while True: files.append(os.open('/dev/null', os.O_RDONLY))\n\
    except OSError as error: print(error.errno, max(files))\n";

/// Nobody can have more, so there is no breach to end for: the call fails as programs know it.
#[test_case(None, false; "plain")]
#[test_case(None, true; "tty")]
#[test_case(Some("restricted"), false; "sandbox")]
#[tokio::test]
async fn files_beyond_the_limit_cannot_be_opened(network: Option<&str>, tty: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let start = Start::argv(["python3", "-c", OPENS]).with("limits", json!({"openFiles": 20})).tty(tty);
    let start = start.with("sandbox", network.map(read_only).into());
    let run = client.run(&start).await;
    assert_eq!(run.text().replace('\r', ""), "(20, 20)\n24 19\n", "{run:?}");
    assert_eq!(run.exited["reason"], "exited");
}

#[test_case("namespaces"; "namespaces")]
#[test_case("landlock"; "landlock")]
#[tokio::test]
async fn limits_hold_in_sandboxes(backend: &str) {
    let daemon = Daemon::setup().argument("--sandbox-backend").argument(backend).start().await;
    let client = daemon.client().await;
    for (script, limits, limit) in [
        ("trap '' TERM; echo up; while :; do sleep 0.05; done", json!({"wallMs": 500}), "wallMs"),
        ("yes", json!({"outputBytes": 9_999}), "outputBytes"),
    ] {
        let culprit = limited(script, limits).with("sandbox", read_only("restricted"));
        let run = ends_alone(&client, culprit, limit).await;
        assert_eq!(run.exited["sandboxDenied"], false);
    }
}

#[test_case(json!({"memoryBytes": 1 << 30}), "memoryBytes"; "memory")]
#[test_case(json!({"processes": 9}), "processes"; "processes")]
#[test_case(json!({"cpuMs": 9}), "cpuMs"; "processor time")]
#[tokio::test]
async fn what_needs_a_cgroup_is_refused_without(limits: Value, limit: &str) {
    let daemon = Daemon::setup().set("limits.cgroup", "off").start().await;
    let client = daemon.client().await;
    let place = work_dir();
    let start = Start::sh(&format!("touch {}/ran", place.path().display())).with("limits", limits);
    let error = client.error("process/start", start.params()).await;
    assert_eq!(error.code, -32602);
    let expected = format!("`limits.{limit}` cannot be enforced: limits.cgroup is off");
    assert_eq!(error.message, expected);
    // The id is free.
    client.run(&start.with("limits", json!({}))).await;
}

#[test_case(json!({"wallMs": 0}), "`limits.wallMs` must be 1 or more"; "nothing at all")]
#[test_case(json!({"openFiles": 0}), "`limits.openFiles` must be 1 or more"; "no files")]
#[test_case(json!({"wallMs": -1}), "wallMs"; "negative")]
#[test_case(json!({"outputBytes": "9"}), "outputBytes"; "text")]
#[test_case(json!({"outputBytes": 1.5}), "outputBytes"; "a fraction")]
#[test_case(json!([]), "limits"; "a list")]
#[tokio::test]
async fn values_that_make_no_sense_are_refused_by_name(limits: Value, expected: &str) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let error = client.error("process/start", Start::sh("true").with("limits", limits).params()).await;
    assert_eq!(error.code, -32602);
    assert!(error.message.contains(expected), "{error:?}");
}

/// The kernel takes memory from the processes first, whatever they are started by.
#[test_case("500"; "by default")]
#[test_case("0"; "as the server")]
#[tokio::test]
async fn processes_are_killed_before_the_server(score: &str) {
    let daemon = Daemon::setup().set("limits.child_oom_score_adj", score).start().await;
    let client = daemon.client().await;
    assert_eq!(oom_score_adj(daemon.pid()), "0");
    for sandbox in [Value::Null, read_only("restricted"), read_only("enabled")] {
        for tty in [false, true] {
            let start =
                Start::argv(["cat", "/proc/self/oom_score_adj"]).tty(tty).with("sandbox", sandbox.clone());
            assert_eq!(client.run(&start).await.text().trim(), score);
        }
    }
    for guard in guards_of(daemon.pid()) {
        assert_eq!(oom_score_adj(guard), "0");
    }
}
