//! The end of processes: signals, exit codes, whole trees, and the end of the server itself.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::json;
use test_case::test_case;

use super::support::machine::{state, succeeds, zombies_of};
use super::support::{Client, Daemon, End, LIMIT, Marker, Start, eventually, work_dir};

/// Three times what the contract gives a tree of the default grace.
const TREE_GONE: Duration = Duration::from_secs(9);

/// Terminal lines end in CR LF.
fn plain(text: &str) -> String {
    text.replace('\r', "")
}

#[test_case("sleep 303 & echo up; sleep 301"; "child")]
#[test_case("sh -c 'sh -c \"sleep 303 & wait\" & wait' & echo up; wait"; "grandchildren")]
#[test_case("setsid sleep 303 & echo up; sleep 301"; "own session")]
#[test_case("setsid sh -c 'setsid sleep 303 & wait' & echo up; sleep 301"; "sessions in a session")]
#[test_case("(setsid sh -c 'sleep 303 & exit' &); echo up; sleep 301"; "daemon by two forks")]
#[test_case("nohup sleep 303 >/dev/null 2>&1 </dev/null & echo up; sleep 301"; "nohup")]
#[test_case("(trap '' TERM HUP INT; sleep 303; sleep 303) & echo up; sleep 301"; "ignores what is polite")]
#[test_case("setsid sh -c \"trap '' TERM HUP; sleep 303; sleep 303\" & echo up; sleep 301"; "ignores it elsewhere")]
#[test_case("bash -c 'exec -a \"sleep 303\" sh -c \"kill -STOP \\$\\$\"' & echo up; sleep 301 & wait"; "stopped child")]
#[test_case("set -m; sleep 303 & echo up; sleep 301"; "a job with a group of its own")]
#[test_case("env -i /usr/bin/setsid /bin/bash -c 'exec -a \"sleep 303 MARK\" sleep 301' & echo up; sleep 301"; "bare environment")]
#[tokio::test]
async fn terminate_ends_the_whole_tree(script: &str) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    for tty in [false, true] {
        let marker = Marker::new();
        let script = script.replace("MARK", marker.value());
        let start = Start::bash(&script).tty(tty).marked(&marker);
        client.start(&start).await;
        client.wait_output(&start.id(), "up").await;
        eventually("the tree is complete", LIMIT, || !marker.running("sleep 303").is_empty()).await;
        let params = json!({"processId": start.id(), "graceMs": 700});
        let answer = client.ok("process/terminate", params).await;
        assert_eq!(answer, json!({"running": true}));
        let run = client.finish(&start.id()).await;
        run.assert_whole();
        assert_eq!(run.exited["reason"], "terminated");
        eventually("nothing of the tree is left", TREE_GONE, || marker.pids().is_empty()).await;
    }
}

#[test_case("trap 'echo cleaned; exit 7' TERM", 7; "builtin")]
#[test_case("trap '/bin/echo cleaned; exit 23' TERM", 23; "runs a program")]
#[test_case("trap 'trap - TERM; echo cleaned; kill -TERM $$' TERM", 143; "dies of it in the end")]
#[tokio::test]
async fn a_handler_has_its_time(handler: &str, exit: i64) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    for tty in [false, true] {
        let script = format!("trap '' HUP; {handler}; echo up; while :; do sleep 0.05; done");
        let start = Start::bash(&script).tty(tty);
        client.start(&start).await;
        client.wait_output(&start.id(), "up").await;
        client.ok("process/terminate", json!({"processId": start.id(), "graceMs": 20_000})).await;
        let run = client.finish(&start.id()).await;
        // On a terminal the shell itself may add that its `sleep` was terminated.
        let text = plain(&run.text());
        assert!(text.starts_with("up\n") && text.ends_with("cleaned\n"), "{text:?}");
        assert_eq!(run.exit(), exit);
        assert_eq!(run.exited["reason"], "terminated");
    }
}

#[test_case(false; "pipe")]
#[test_case(true; "tty")]
#[tokio::test]
async fn who_ignores_the_signal_is_killed_after_the_grace(tty: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let script = "trap '' TERM HUP INT QUIT; echo up; while :; do sleep 0.05; done";
    // The default, one of one's own, none, and one that a repeat makes shorter.
    for (graces, at_least) in [
        (vec![None], 2_000),
        (vec![Some(600)], 600),
        (vec![Some(0)], 0),
        (vec![Some(3_600_000), Some(200)], 200),
        (vec![Some(u64::MAX), Some(0)], 0),
        (vec![Some(300), Some(3_600_000)], 300),
    ] {
        let start = Start::bash(script).tty(tty);
        client.start(&start).await;
        client.wait_output(&start.id(), "up").await;
        let began = Instant::now();
        for grace in graces {
            let answer =
                client.ok("process/terminate", json!({"processId": start.id(), "graceMs": grace})).await;
            assert_eq!(answer, json!({"running": true}));
        }
        let run = client.finish(&start.id()).await;
        assert_eq!((run.exit(), &run.exited["signal"]), (137, &json!("SIGKILL")));
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(at_least) && took < TREE_GONE, "{took:?} for {at_least}");
    }
}

#[tokio::test]
async fn the_grace_is_a_setting() {
    let daemon = Daemon::setup().set("process.grace_ms", "150").start().await;
    let client = daemon.client().await;
    let start = Start::sh("trap '' TERM; echo up; sleep 300; sleep 300");
    client.start(&start).await;
    client.wait_output(&start.id(), "up").await;
    let began = Instant::now();
    client.ok("process/terminate", json!({"processId": start.id()})).await;
    assert_eq!(client.finish(&start.id()).await.exit(), 137);
    assert!(began.elapsed() < Duration::from_millis(1_900), "the default grace was taken");
}

#[tokio::test]
async fn answers_of_terminate() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let terminate = |process: String| client.ok("process/terminate", json!({"processId": process}));
    for tty in [false, true] {
        let start = Start::sh("trap '' TERM HUP; echo up; sleep 300; sleep 300").tty(tty);
        client.start(&start).await;
        client.wait_output(&start.id(), "up").await;
        for _ in 0..3 {
            assert_eq!(terminate(start.id()).await, json!({"running": true}), "during the grace");
        }
        client.ok("process/terminate", json!({"processId": start.id(), "graceMs": 0})).await;
        client.finish(&start.id()).await;
        assert_eq!(terminate(start.id()).await, json!({"running": false}), "after the end");

        let start = Start::argv(["/bin/true"]).tty(tty);
        client.run(&start).await;
        assert_eq!(terminate(start.id()).await, json!({"running": false}), "ended by itself");
    }
    assert_eq!(terminate("never heard of".into()).await, json!({"running": false}));
}

#[test_case(false, false; "running, pipe")]
#[test_case(true, false; "running, tty")]
#[test_case(false, true; "exited, pipe")]
#[tokio::test]
async fn streams_held_by_a_stranger_are_given_up(tty: bool, exited: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let start = Start::sh("echo up; read line; exit 5").tty(tty).stdin();
    client.start(&start).await;
    client.wait_output(&start.id(), "up").await;
    let list = client.ok("process/list", json!({})).await;
    let pid = list["processes"][0]["pid"].as_i64().unwrap();
    // This process belongs to no tree of the server's, so nothing ends its hold on the stream.
    let held = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open(format!("/proc/{pid}/fd/1"))
        .unwrap();
    if exited {
        client.write(&start.id(), "w", b"\n").await;
        client.wait_event(&start.id(), "process/exited").await;
    }
    let answer = client.ok("process/terminate", json!({"processId": start.id(), "graceMs": 300})).await;
    assert_eq!(answer, json!({"running": true}));
    let run = client.finish(&start.id()).await;
    run.assert_whole();
    assert_eq!(run.exited["reason"], if exited { "exited" } else { "terminated" });
    drop(held);
}

#[test_case(false; "pipe")]
#[test_case(true; "tty")]
#[tokio::test]
async fn output_before_a_terminate_is_not_thrown_away(tty: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let directory = work_dir();
    for grace in [0, 2_000] {
        let written = directory.path().join(format!("written{grace}"));
        let script =
            format!("head -c 60000 /dev/zero | tr '\\0' y; : >{}; exec sleep 300", written.display());
        let start = Start::sh(&script).tty(tty);
        client.start(&start).await;
        eventually("it is written", LIMIT, || written.exists()).await;
        client.ok("process/terminate", json!({"processId": start.id(), "graceMs": grace})).await;
        let run = client.finish(&start.id()).await;
        assert_eq!(run.text(), "y".repeat(60_000));
    }
}

#[test_case(false; "pipe")]
#[test_case(true; "tty")]
#[tokio::test]
async fn a_stopped_program_can_be_ended(tty: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    for grace in [json!(null), json!(0)] {
        let start = Start::sh("kill -STOP $$; echo resumed; sleep 300").tty(tty);
        client.start(&start).await;
        let list = client.ok("process/list", json!({})).await;
        let pid = list["processes"].as_array().unwrap().last().unwrap()["pid"].as_i64().unwrap();
        let pid = i32::try_from(pid).unwrap();
        eventually("it has stopped", LIMIT, || state(pid) == Some('T')).await;
        let read = client.ok("process/read", json!({"processId": start.id(), "waitMs": 0})).await;
        assert_eq!((&read["exited"], &read["closed"]), (&json!(false), &json!(false)));
        client.ok("process/terminate", json!({"processId": start.id(), "graceMs": grace})).await;
        let run = client.finish(&start.id()).await;
        assert_eq!(run.exited["reason"], "terminated");
        assert!(run.exit() > 128);
    }
}

#[test_case(false; "pipe")]
#[test_case(true; "tty")]
#[tokio::test]
async fn death_by_a_signal_is_told_by_its_number(tty: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    for (name, number) in [
        ("HUP", 1),
        ("INT", 2),
        ("QUIT", 3),
        ("ILL", 4),
        ("ABRT", 6),
        ("FPE", 8),
        ("KILL", 9),
        ("USR1", 10),
        ("SEGV", 11),
        ("PIPE", 13),
        ("ALRM", 14),
        ("TERM", 15),
    ] {
        let run = client.run(&Start::sh(&format!("ulimit -c 0; kill -{name} $$")).tty(tty)).await;
        run.assert_whole();
        assert_eq!(run.exit(), 128 + number, "{name}");
        assert_eq!(run.exited["signal"], format!("SIG{name}"));
        assert_eq!(run.exited["reason"], "signaled");
    }
    for (word, code) in [("0", 0), ("1", 1), ("127", 127), ("255", 255), ("256", 0), ("300", 44), ("-1", 255)]
    {
        let run = client.run(&Start::bash(&format!("exit {word}")).tty(tty)).await;
        assert_eq!((run.exit(), &run.exited["signal"]), (code, &json!(null)), "exit {word}");
        assert_eq!(run.exited["reason"], "exited");
    }
}

#[test_case("\x03", 130; "interrupt")]
#[test_case("\x1c", 131; "quit")]
#[tokio::test]
async fn keys_of_a_terminal_are_signals(key: &str, exit: i64) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let marker = Marker::new();
    let start = Start::sh("ulimit -c 0; sleep 300; echo after").tty(true).marked(&marker);
    client.start(&start).await;
    eventually("it sleeps", LIMIT, || !marker.running("sleep 300").is_empty()).await;
    client.write(&start.id(), "key", key.as_bytes()).await;
    let run = client.finish(&start.id()).await;
    assert_eq!(run.exit(), exit);
    assert!(!run.text().contains("after"));

    let script = "trap 'echo got; exit 9' INT QUIT; echo up; while :; do sleep 0.05; done";
    let start = Start::bash(script).tty(true);
    client.start(&start).await;
    client.wait_output(&start.id(), "up").await;
    client.write(&start.id(), "key", key.as_bytes()).await;
    let run = client.finish(&start.id()).await;
    assert!(run.exit() == 9 && run.text().contains("got"), "{:?}", run.text());
}

#[tokio::test]
async fn nobody_stays_a_zombie() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    for round in 0..10 {
        let starts: Vec<Start> = (0..20)
            .map(|number| match number % 4 {
                0 => Start::argv(["/bin/true"]),
                1 => Start::argv(["/bin/true"]).tty(true),
                2 => Start::sh("(sleep 0.01; exit 3) >/dev/null 2>&1 & exit 1"),
                _ => Start::sh("setsid sh -c '(sleep 0.01) & exit 2' >/dev/null 2>&1 &").tty(round % 2 == 0),
            })
            .collect();
        join_all(starts.iter().map(|start| client.run(start))).await;
    }
    eventually("every child is reaped", Duration::from_secs(6), || zombies_of(daemon.pid()).is_empty()).await;
}

#[tokio::test]
async fn as_process_one_the_server_reaps_orphans() {
    let wrapper = ["unshare", "-pf", "--mount-proc", "--kill-child"];
    if !succeeds(&[&wrapper[..], &["true"]].concat()) {
        return eprintln!("skipped: no PID namespace can be made here");
    }
    let daemon = Daemon::setup().wrapper(&wrapper).start().await;
    let client = daemon.client().await;
    let own = client.run(&Start::sh("ps -o comm= -p 1")).await;
    assert_eq!(own.text().trim(), "exec-server", "the server is process 1");
    let orphans = [
        "(sleep 0.1; exit 3) & setsid sh -c 'sleep 0.2 & exec true' & exit 5",
        "setsid sh -c '(setsid sleep 0.1 &) ; kill -KILL $$' & exit 5",
    ];
    for script in orphans {
        assert_eq!(client.run(&Start::sh(script)).await.exit(), 5);
    }
    let deadline = Instant::now() + LIMIT;
    loop {
        let left = client.run(&Start::sh("ps -eo stat=,args= | grep -E '^Z|sleep 0' | grep -v grep")).await;
        if left.text().is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "still there: {}", left.text());
    }
}

/// Starts one of everything that could outlive a server, and waits until all of it runs.
async fn start_a_zoo(client: &Client, marker: &Marker, handled: &std::path::Path) {
    let handler = format!("trap ': >{}; exit' TERM; sleep 411 & wait", handled.display());
    let starts = [
        (Start::bash(&handler), "sleep 411"),
        (Start::sh("sleep 412; echo").stdin(), "sleep 412"),
        (Start::sh("sleep 413; echo").tty(true), "sleep 413"),
        (Start::sh("sleep 414 & wait"), "sleep 414"),
        (Start::sh("setsid sleep 415 & sleep 400"), "sleep 415"),
        (Start::sh("setsid sh -c 'setsid sleep 416 & wait' & sleep 400").tty(true), "sleep 416"),
        (Start::sh("trap '' TERM HUP INT; sleep 417; sleep 417"), "sleep 417"),
        (Start::sh("trap '' TERM HUP INT; sleep 418; sleep 418").tty(true), "sleep 418"),
        (Start::sh("setsid sleep 419 >/dev/null 2>&1 </dev/null &"), "sleep 419"),
        (Start::sh("(setsid sh -c 'nohup sleep 420 & exit' >/dev/null 2>&1 &)"), "sleep 420"),
        (Start::sh("bash -c 'exec -a \"sleep 421\" sh -c \"kill -STOP \\$\\$\"' & wait"), "sleep 421"),
    ];
    for (start, needle) in starts {
        client.start(&start.marked(marker)).await;
        eventually(needle, LIMIT, || !marker.running(needle).is_empty()).await;
    }
}

#[test_case(Signal::TERM; "term")]
#[test_case(Signal::INT; "int")]
#[test_case(Signal::HUP; "hup")]
#[tokio::test]
async fn a_server_that_is_asked_to_end_leaves_nothing(signal: Signal) {
    let mut daemon = Daemon::start().await;
    let (client, other) = (daemon.client().await, daemon.client().await);
    let bare = Client::connect(daemon.url()).await;
    let marker = Marker::new();
    let handled = daemon.home().join("handled");
    start_a_zoo(&client, &marker, &handled).await;
    daemon.signal(signal);
    let status = daemon.ended(Duration::from_secs(15)).await;
    assert_eq!(status.code(), Some(0));
    assert_eq!(marker.pids(), Vec::<i32>::new());
    for client in [client, other, bare] {
        assert_eq!(client.end().await, End::Closed(1001));
    }
    assert!(handled.exists(), "the handler of a program has run");
}

#[tokio::test]
async fn a_second_signal_changes_nothing() {
    let mut daemon = Daemon::start().await;
    let client = daemon.client().await;
    let marker = Marker::new();
    client.start(&Start::sh("trap '' TERM; sleep 300; sleep 300").marked(&marker)).await;
    eventually("it runs", LIMIT, || !marker.running("sleep 300").is_empty()).await;
    for signal in [Signal::TERM, Signal::INT, Signal::TERM] {
        daemon.signal(signal);
    }
    assert_eq!(daemon.ended(Duration::from_secs(15)).await.code(), Some(0));
    assert_eq!(marker.pids(), Vec::<i32>::new());
}

#[tokio::test]
async fn a_killed_server_leaves_nothing() {
    let mut daemon = Daemon::start().await;
    let client = daemon.client().await;
    let marker = Marker::new();
    start_a_zoo(&client, &marker, &daemon.home().join("handled")).await;
    daemon.signal(Signal::KILL);
    eventually("nothing is left", Duration::from_secs(6), || marker.pids().is_empty()).await;
    daemon.ended(LIMIT).await;
}

#[test_case(false; "pipe")]
#[test_case(true; "tty")]
#[tokio::test]
async fn children_begin_with_a_clean_signal_state(tty: bool) {
    let wrapper = [
        "env",
        "--ignore-signal=HUP,INT,QUIT,PIPE,TERM,USR1,USR2,ALRM,TTOU,TTIN,TSTP,WINCH",
        "--block-signal=TERM,INT,USR2,ALRM,CHLD",
    ];
    if !succeeds(&[&wrapper[..], &["true"]].concat()) {
        return eprintln!("skipped: this env cannot set signals");
    }
    let daemon = Daemon::setup().wrapper(&wrapper).start().await;
    let client = daemon.client().await;
    let state = Start::argv(["/bin/grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status"]).tty(tty);
    let run = client.run(&state).await;
    assert_eq!(plain(&run.text()), "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
}

#[tokio::test]
async fn a_server_started_deaf_can_still_be_ended() {
    let wrapper = ["sh", "-c", "trap '' HUP INT QUIT PIPE TERM; exec \"$@\"", "sh"];
    let mut daemon = Daemon::setup().wrapper(&wrapper).start().await;
    let client = daemon.client().await;
    let start = Start::sh("echo up; sleep 300");
    client.start(&start).await;
    client.wait_output(&start.id(), "up").await;
    client.ok("process/terminate", json!({"processId": start.id(), "graceMs": 60_000})).await;
    assert_eq!(client.finish(&start.id()).await.exit(), 143);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.ended(LIMIT).await.code(), Some(0));
}

#[test_case(false; "pipe")]
#[test_case(true; "tty")]
#[tokio::test]
async fn a_broken_pipe_ends_its_writer(tty: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let run = client.run(&Start::bash("yes | head -n1; echo ${PIPESTATUS[*]}").tty(tty)).await;
    assert_eq!(plain(&run.text()), "y\n141 0\n");
}

#[test_case(false; "pipe")]
#[test_case(true; "tty")]
#[tokio::test]
async fn children_get_three_descriptors(tty: bool) {
    let wrapper = ["bash", "-c", "exec 7<>/dev/null 9</dev/null 15>/dev/null; exec \"$@\"", "bash"];
    let daemon = Daemon::setup().wrapper(&wrapper).start().await;
    let client = daemon.client().await;
    let others: Vec<Start> =
        (0..20).map(|number| Start::argv(["/bin/sleep", "300"]).tty(number % 2 == 0).stdin()).collect();
    for other in &others {
        client.start(other).await;
    }
    let run = client.run(&Start::argv(["/bin/ls", "/proc/self/fd"]).tty(tty)).await;
    // The fourth is the directory that the program itself reads.
    assert_eq!(run.text().split_whitespace().collect::<Vec<_>>(), ["0", "1", "2", "3"]);
    // Also while many are being started at once.
    let starts: Vec<Start> = (0..24).map(|_| Start::argv(["/bin/ls", "/proc/self/fd"]).tty(tty)).collect();
    for run in join_all(starts.iter().map(|start| client.run(start))).await {
        assert_eq!(run.text().split_whitespace().collect::<Vec<_>>(), ["0", "1", "2", "3"]);
    }
}

#[tokio::test]
async fn descriptors_of_ended_processes_are_given_back() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    client.run(&Start::argv(["/bin/true"]).tty(true)).await;
    let before = daemon.descriptors();
    for number in 0..60 {
        client.run(&Start::argv(["/bin/true"]).tty(number % 2 == 0).stdin()).await;
    }
    daemon.descriptors_back(before).await;
}

#[test_case("sleep 330 >/dev/null 2>&1 </dev/null & echo started"; "same group")]
#[test_case("setsid sleep 330 >/dev/null 2>&1 </dev/null & echo started"; "own session")]
#[tokio::test]
async fn what_a_closed_command_left_lives_until_its_session_ends(script: &str) {
    let daemon = Daemon::setup().set("session.detached_ms", "400").start().await;
    let (client, other) = (daemon.client().await, daemon.client().await);
    let (marker, of_other) = (Marker::new(), Marker::new());
    let start = Start::sh(script).marked(&marker);
    assert_eq!(client.run(&start).await.text(), "started\n");
    other.run(&Start::sh(script).marked(&of_other)).await;
    let running = || marker.running("sleep 330").len() == 1;
    eventually("it runs", LIMIT, running).await;

    let answer = client.ok("process/terminate", json!({"processId": start.id(), "graceMs": 0})).await;
    assert_eq!(answer, json!({"running": false}));
    // Later trees of the same session end without it.
    let later = Start::sh("setsid sleep 331 & sleep 332").marked(&marker);
    client.start(&later).await;
    eventually("the later tree runs", LIMIT, || !marker.running("sleep 331").is_empty()).await;
    client.ok("process/terminate", json!({"processId": later.id(), "graceMs": 0})).await;
    client.finish(&later.id()).await;
    eventually("the later tree is gone", TREE_GONE, || marker.pids().len() == 1).await;
    assert!(running());

    let session = client.session_id();
    client.close().await;
    eventually("it ends with its session", TREE_GONE, || marker.pids().is_empty()).await;
    assert_eq!(of_other.running("sleep 330").len(), 1, "another session's lives on");
    assert_eq!(Client::resume(daemon.url(), &session).await.unwrap_err().code, -32600);
}

#[tokio::test]
async fn a_detached_session_ends_with_everything_in_it() {
    let daemon = Daemon::setup().set("session.detached_ms", "300").start().await;
    let client = daemon.client().await;
    let marker = Marker::new();
    start_a_zoo(&client, &marker, &daemon.home().join("handled")).await;
    client.abort().await;
    eventually("nothing is left", TREE_GONE, || marker.pids().is_empty()).await;
    eventually("nor unreaped", LIMIT, || zombies_of(daemon.pid()).is_empty()).await;
}
