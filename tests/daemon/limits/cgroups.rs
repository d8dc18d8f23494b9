//! What holds by cgroups: the limits that need one, and that nothing gets away. Skipped where there is no cgroup v2 to
//! be had; `.ci/cgroups` runs them where there is.

use std::time::{Duration, Instant};

use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::{Value, json};
use test_case::test_case;

use super::{ends_alone, limited, with_cgroups};
use crate::support::cgroup::Cgroup;
use crate::support::machine::{guards_of, kill};
use crate::support::sandbox::read_only;
use crate::support::{Client, Daemon, LIMIT, Marker, Start, eventually};

const BUSY: &str = "setsid bash -c 'while :; do :; done' & while :; do :; done";

/// Loses its mark, its group, its session and its parent: nothing but a cgroup has it.
const LOST: &str = "import os, resource, time\n\
    resource.setrlimit(resource.RLIMIT_RSS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n\
    if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        null = os.open('/dev/null', os.O_RDWR)\n\
    \x20       [os.dup2(null, n) for n in range(3)]\n        time.sleep(303)\n    os._exit(0)\n\
    os.wait()\n";

/// Whether the server can enforce a context, if there is one.
async fn can_confine(client: &Client, sandbox: &Value) -> bool {
    let info = client.ok("environment/info", json!({})).await;
    let can = sandbox.is_null() || !info["sandbox"]["default"].is_null();
    if !can {
        eprintln!("SKIPPED: this kernel has nothing to confine a process with");
    }
    can
}

#[test_case(false, Value::Null; "pipes")]
#[test_case(true, Value::Null; "tty")]
#[test_case(false, read_only("restricted"); "sandbox")]
#[tokio::test]
async fn processor_time_is_that_of_the_tree(tty: bool, sandbox: Value) {
    let Some((daemon, _cgroup)) = with_cgroups(&[]).await else { return };
    let client = daemon.client().await;
    if !can_confine(&client, &sandbox).await {
        return;
    }
    let culprit = limited(BUSY, json!({"cpuMs": 400})).tty(tty).with("sandbox", sandbox);
    let run = ends_alone(&client, culprit, "cpuMs").await;
    assert_eq!(run.exit(), 137);
    // Sleeping costs nothing.
    let idle = Start::sh("sleep 1; echo done").with("limits", json!({"cpuMs": 400}));
    assert_eq!(client.run(&idle).await.text(), "done\n");
}

/// By itself, as under a unit with `Delegate=yes`: the server and this test move aside.
#[tokio::test]
async fn a_delegated_cgroup_is_found() {
    if std::env::var_os("EXEC_SERVER_TEST_DELEGATED").is_none() {
        return eprintln!("SKIPPED: `.ci/cgroups` runs this test where a cgroup is delegated");
    }
    let mut daemon = Daemon::start().await;
    let client = daemon.client().await;
    let cgroup =
        |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap().trim().to_owned();
    assert!(cgroup(&daemon.pid().to_string()).ends_with("/exec-server"));
    assert!(cgroup("self").ends_with("/exec-server"), "what waits for it moves along");
    for (script, limit, value) in [
        ("python3 -c 'x = bytearray(90 << 20)'", "memoryBytes", 60 << 20),
        ("bomb() { bomb | bomb & }; bomb; sleep 301", "processes", 30),
        (BUSY, "cpuMs", 400),
    ] {
        ends_alone(&client, limited(script, json!({limit: value})), limit).await;
    }
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.ended(LIMIT).await.code(), Some(0));
}

#[test_case(false, Value::Null; "pipes")]
#[test_case(true, Value::Null; "tty")]
#[test_case(false, read_only("restricted"); "sandbox")]
#[tokio::test]
async fn memory_is_that_of_the_tree(tty: bool, sandbox: Value) {
    let Some((daemon, _cgroup)) = with_cgroups(&["memory"]).await else { return };
    let client = daemon.client().await;
    if !can_confine(&client, &sandbox).await {
        return;
    }
    // Half of it each: no process has too much alone.
    let half = "python3 -c 'x = bytearray(40 << 20); import time; time.sleep(301)'";
    let culprit = limited(&format!("setsid {half} & {half}"), json!({"memoryBytes": 60 << 20}));
    let run = ends_alone(&client, culprit.tty(tty).with("sandbox", sandbox.clone()), "memoryBytes").await;
    assert_eq!((run.exit(), &run.exited["signal"]), (137, &json!("SIGKILL")));
    let enough = Start::argv(["python3", "-c", "x = bytearray(40 << 20); print(len(x))"]);
    let enough = enough.with("limits", json!({"memoryBytes": 100 << 20})).with("sandbox", sandbox);
    assert_eq!(client.run(&enough).await.text(), "41943040\n");
}

#[test_case(Value::Null; "plain")]
#[test_case(read_only("restricted"); "sandbox")]
#[tokio::test]
async fn processes_are_those_of_the_tree(sandbox: Value) {
    let Some((daemon, _cgroup)) = with_cgroups(&["pids"]).await else { return };
    let client = daemon.client().await;
    if !can_confine(&client, &sandbox).await {
        return;
    }
    let bomb = "bomb() { bomb | bomb & }; bomb; sleep 301";
    let culprit = limited(bomb, json!({"processes": 30})).with("sandbox", sandbox.clone());
    let run = ends_alone(&client, culprit, "processes").await;
    assert_eq!(run.exit(), 137);
    // Exactly as many as allowed: the shell and two more.
    let allowed =
        Start::bash("sleep 0.2 & sleep 0.2 & wait; echo done").with("limits", json!({"processes": 3}));
    assert_eq!(client.run(&allowed.with("sandbox", sandbox)).await.text(), "done\n");
}

#[tokio::test]
async fn a_kill_by_somebody_else_is_no_breach() {
    let Some((daemon, _cgroup)) = with_cgroups(&["memory", "pids"]).await else { return };
    let client = daemon.client().await;
    let limits = json!({"memoryBytes": 1 << 30, "processes": 100, "cpuMs": 100_000});
    let run = client.run(&Start::sh("kill -KILL $$").with("limits", limits)).await;
    assert_eq!((&run.exited["reason"], run.exited.get("limit")), (&json!("signaled"), None));
}

#[tokio::test]
async fn nothing_gets_out_of_its_run() {
    let Some((daemon, cgroup)) = with_cgroups(&[]).await else { return };
    let client = daemon.client().await;
    let marker = Marker::new();
    let start =
        Start::bash("python3 -c \"$LOST\"; echo up; exec sleep 301").env("LOST", LOST).marked(&marker);
    client.start(&start).await;
    client.wait_output(&start.id(), "up").await;
    assert_eq!(marker.pids().len(), 2, "the leader and the lost one");
    client.ok("process/terminate", json!({"processId": start.id(), "graceMs": 0})).await;
    assert_eq!(client.finish(&start.id()).await.exited["reason"], "terminated");
    eventually("the lost one has ended too", LIMIT, || marker.pids().is_empty()).await;
    forgotten(&client, &cgroup).await;
}

/// Each of a chain of processes lives too short for a look at all processes to meet it twice.
#[tokio::test]
async fn what_forks_faster_than_anybody_looks_is_ended() {
    const CHAIN: &str = "import os, resource\n\
        resource.setrlimit(resource.RLIMIT_RSS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n\
        if os.fork() == 0:\n    os.setsid()\n    null = os.open('/dev/null', os.O_RDWR)\n\
        \x20   [os.dup2(null, n) for n in range(3)]\n    while True:\n        os.fork() and os._exit(0)\n\
        os.execvp('sleep', ['sleep', '301'])\n";
    let Some((daemon, cgroup)) = with_cgroups(&[]).await else { return };
    let client = daemon.client().await;
    for grace in [0, 300, 0, 300, 0, 0] {
        let start = Start::argv(["python3", "-c", CHAIN]);
        client.start(&start).await;
        eventually("it forks", LIMIT, || {
            let runs = cgroup.runs();
            runs.iter()
                .any(|run| std::fs::read_to_string(run.join("cgroup.procs")).unwrap().lines().count() > 1)
        })
        .await;
        client.ok("process/terminate", json!({"processId": start.id(), "graceMs": grace})).await;
        assert_eq!(client.finish(&start.id()).await.exited["reason"], "terminated");
        forgotten(&client, &cgroup).await;
    }
}

/// What a cgroup refuses is told as that, also where the same clone would have set the program apart.
#[test_case(Value::Null; "plain")]
#[test_case(read_only("restricted"); "sandbox")]
#[tokio::test]
async fn a_cgroup_that_takes_no_process_is_named(sandbox: Value) {
    let Some((daemon, cgroup)) = with_cgroups(&[]).await else { return };
    let client = daemon.client().await;
    if !can_confine(&client, &sandbox).await {
        return;
    }
    let first = Start::argv(["cat"]).stdin();
    client.start(&first).await;
    let session = cgroup.runs()[0].parent().unwrap().to_owned();
    client.ok("process/terminate", json!({"processId": first.id(), "graceMs": 0})).await;
    client.finish(&first.id()).await;
    forgotten(&client, &cgroup).await;
    std::fs::create_dir(session.join("threads")).unwrap();
    if let Err(error) = std::fs::write(session.join("threads/cgroup.type"), "threaded") {
        return eprintln!("SKIPPED: with these controllers there are no threaded cgroups: {error}");
    }
    let refused = Start::sh("true").with("sandbox", sandbox);
    let error = client.error("process/start", refused.params()).await;
    assert!(error.message.contains("cannot be put into its cgroup"), "{error:?}");
}

/// Waits until no run has a cgroup: one that something lived in is looked at again when another run ends.
async fn forgotten(client: &Client, cgroup: &Cgroup) {
    let deadline = Instant::now() + LIMIT;
    while !cgroup.runs().is_empty() {
        assert!(Instant::now() < deadline, "{:?}", cgroup.runs());
        client.run(&Start::sh("true")).await;
    }
}

/// What a command leaves in the background lives on in its cgroup, and only that.
#[tokio::test]
async fn what_is_over_has_no_cgroup() {
    let Some((daemon, cgroup)) = with_cgroups(&[]).await else { return };
    let marker = Marker::new();
    let client = daemon.client().await;
    let run = client.run(&Start::argv(["python3", "-c", LOST]).marked(&marker)).await;
    assert_eq!(run.exit(), 0);
    assert_eq!((marker.pids().len(), cgroup.runs().len()), (1, 1));
    for _ in 0..5 {
        client.run(&Start::sh("true")).await;
    }
    eventually("only what lives has a cgroup", LIMIT, || cgroup.runs().len() == 1).await;
    kill(marker.pids()[0], Signal::KILL);
    forgotten(&client, &cgroup).await;
}

#[tokio::test]
async fn a_session_ends_with_all_that_came_of_it() {
    let Some(cgroup) = Cgroup::with(&[]) else { return };
    let setup = Daemon::setup().set("limits.cgroup", cgroup.path());
    let daemon = setup.set("session.detached_ms", "1").start().await;
    let (ended, goes_on) = (Marker::new(), Marker::new());
    let (client, other) = (daemon.client().await, daemon.client().await);
    client.run(&Start::argv(["python3", "-c", LOST]).marked(&ended)).await;
    other.run(&Start::argv(["python3", "-c", LOST]).marked(&goes_on)).await;
    assert_eq!((ended.pids().len(), cgroup.runs().len()), (1, 2));
    client.close().await;
    eventually("the session has ended", LIMIT, || ended.pids().is_empty()).await;
    eventually("its cgroup is gone", LIMIT, || cgroup.runs().len() == 1).await;
    assert_eq!(goes_on.pids().len(), 1);
}

#[tokio::test]
async fn the_end_of_the_server_leaves_nothing() {
    let Some((mut daemon, cgroup)) = with_cgroups(&[]).await else { return };
    let marker = Marker::new();
    let client = daemon.client().await;
    client.run(&Start::argv(["python3", "-c", LOST]).marked(&marker)).await;
    client.start(&Start::sh("sleep 301").marked(&marker)).await;
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.ended(LIMIT).await.code(), Some(0));
    assert_eq!(marker.pids(), [0; 0]);
    assert_eq!(cgroup.servers(), Vec::<std::path::PathBuf>::new());
}

#[tokio::test]
async fn a_server_that_is_killed_leaves_nothing() {
    let Some((mut daemon, cgroup)) = with_cgroups(&[]).await else { return };
    let marker = Marker::new();
    let client = daemon.client().await;
    client.run(&Start::argv(["python3", "-c", LOST]).marked(&marker)).await;
    client.start(&Start::sh("sleep 301").marked(&marker)).await;
    eventually("there is a guard", LIMIT, || guards_of(daemon.pid()).len() == 1).await;
    daemon.signal(Signal::KILL);
    daemon.ended(LIMIT).await;
    eventually("the guard has ended everything", LIMIT, || marker.pids().is_empty()).await;
    eventually("the cgroups are gone", LIMIT, || cgroup.servers().is_empty()).await;
}

#[tokio::test]
async fn the_next_server_ends_what_a_dead_one_has_left() {
    let Some((mut daemon, cgroup)) = with_cgroups(&[]).await else { return };
    let marker = Marker::new();
    let client = daemon.client().await;
    client.run(&Start::argv(["python3", "-c", LOST]).marked(&marker)).await;
    eventually("there is a guard", LIMIT, || guards_of(daemon.pid()).len() == 1).await;
    let beside = Daemon::setup().set("limits.cgroup", cgroup.path()).start().await;
    assert_eq!(marker.pids().len(), 1, "the first server lives");
    // The guard first, or it would do it.
    kill(daemon.pid(), Signal::STOP);
    guards_of(daemon.pid()).into_iter().for_each(|guard| kill(guard, Signal::KILL));
    daemon.signal(Signal::KILL);
    daemon.ended(LIMIT).await;
    assert_eq!((marker.pids().len(), cgroup.servers().len()), (1, 2));
    let next = Daemon::setup().set("limits.cgroup", cgroup.path()).start().await;
    eventually("what was left has ended", LIMIT, || marker.pids().is_empty()).await;
    assert_eq!(cgroup.servers().len(), 2, "of the two that live");
    drop((beside, next));
}

/// As the filters of container engines do: they answer `ENOSYS` to `clone3`.
const NO_CLONE3: &str = "import ctypes, os, struct, sys\n\
    rules = [(0x20, 0, 0, 0), (0x15, 0, 1, 435), (0x06, 0, 0, 0x50026), (0x06, 0, 0, 0x7fff0000)]\n\
    code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *rule) for rule in rules))\n\
    program = struct.pack('HxxxxxxQ', len(rules), ctypes.addressof(code))\n\
    libc = ctypes.CDLL(None, use_errno=True)\n\
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0\n\
    os.execv(sys.argv[1], sys.argv[1:])\n";

#[test_case(Value::Null; "plain")]
#[test_case(read_only("restricted"); "sandbox")]
#[tokio::test]
async fn a_child_that_cannot_be_made_in_its_cgroup_moves_there(sandbox: Value) {
    let Some(cgroup) = Cgroup::with(&[]) else { return };
    let setup = Daemon::setup().set("limits.cgroup", cgroup.path());
    let daemon = setup.wrapper(&["python3", "-c", NO_CLONE3]).start().await;
    let client = daemon.client().await;
    if !can_confine(&client, &sandbox).await {
        return;
    }
    let start = Start::argv(["cat", "/proc/self/cgroup"]).with("sandbox", sandbox.clone());
    let text = client.run(&start).await.text();
    assert!(text.contains("/runs-"), "{text}");
    let culprit = limited(BUSY, json!({"cpuMs": 200})).with("sandbox", sandbox);
    ends_alone(&client, culprit, "cpuMs").await;
}

/// Two at once divide one cgroup without getting in each other's way.
#[tokio::test]
async fn servers_can_share_a_cgroup() {
    let Some(cgroup) = Cgroup::with(&[]) else { return };
    let setup = || Daemon::setup().set("limits.cgroup", cgroup.path());
    let (one, two) = tokio::join!(setup().start(), setup().start());
    for daemon in [&one, &two] {
        let client = daemon.client().await;
        let run = client.run(&Start::sh("while :; do :; done").with("limits", json!({"cpuMs": 200}))).await;
        assert_eq!(run.exited["limit"], "cpuMs");
    }
}

/// Coming into the cgroup by clone costs next to nothing; moving there would make the kernel wait.
#[tokio::test]
async fn starts_are_as_fast_in_a_cgroup() {
    let Some((daemon, _cgroup)) = with_cgroups(&[]).await else { return };
    let client = daemon.client().await;
    let mut took = Vec::new();
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let began = Instant::now();
        let start = Start::argv(["/bin/true"]);
        client.start(&start).await;
        took.push(began.elapsed());
        client.finish(&start.id()).await;
    }
    took.sort();
    eprintln!("starts took {took:?}");
    assert!(took[10] < Duration::from_millis(200), "{took:?}");
}
