//! Control of a running process: signals, input, the list of processes.

use std::time::{SystemTime, UNIX_EPOCH};

use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use test_case::test_case;

use super::support::client::write_params;
use super::support::machine::state;
use super::support::{Client, Daemon, LIMIT, Marker, Start, eventually, uri, work_dir};

/// The process of a start, as the list shows it.
async fn listed(client: &Client, start: &Start) -> Value {
    let list = client.ok("process/list", json!({})).await;
    let all = list["processes"].as_array().unwrap();
    all.iter().find(|process| process["processId"] == start.id()).unwrap_or(&Value::Null).clone()
}

async fn signal(client: &Client, start: &Start, name: &str, target: Option<&str>) -> Value {
    let mut params = json!({"processId": start.id(), "signal": name});
    if let Some(target) = target {
        params["target"] = json!(target);
    }
    client.ok("process/signal", params).await
}

const DELIVERED: &str = r#"{"delivered":true}"#;
const NOT_DELIVERED: &str = r#"{"delivered":false}"#;

#[test_case(false; "pipe")]
#[test_case(true; "tty")]
#[tokio::test]
async fn every_signal_arrives_by_its_name(tty: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let script = "for s in HUP INT QUIT USR1 USR2 TERM; do trap \"echo got-$s\" $s; done; \
                  echo up; while :; do sleep 0.05; done";
    let start = Start::bash(script).tty(tty);
    client.start(&start).await;
    client.wait_output(&start.id(), "up").await;
    for (name, short) in [
        ("interrupt", "INT"),
        ("hangup", "HUP"),
        ("quit", "QUIT"),
        ("user1", "USR1"),
        ("user2", "USR2"),
        ("terminate", "TERM"),
    ] {
        assert_eq!(signal(&client, &start, name, None).await.to_string(), DELIVERED);
        client.wait_output(&start.id(), &format!("got-{short}")).await;
    }
    let pid = i32::try_from(listed(&client, &start).await["pid"].as_i64().unwrap()).unwrap();
    signal(&client, &start, "stop", None).await;
    eventually("stopped", LIMIT, || state(pid) == Some('T')).await;
    signal(&client, &start, "continue", None).await;
    eventually("going on", LIMIT, || state(pid) != Some('T')).await;
    assert_eq!(signal(&client, &start, "kill", None).await.to_string(), DELIVERED);
    let run = client.finish(&start.id()).await;
    assert_eq!((run.exit(), &run.exited["reason"]), (137, &json!("signaled")));

    assert_eq!(signal(&client, &start, "interrupt", None).await.to_string(), NOT_DELIVERED);
    let unknown = json!({"processId": "unknown", "signal": "kill"});
    assert_eq!(client.ok("process/signal", unknown).await.to_string(), NOT_DELIVERED);
    for bad in ["SIGINT", "INTERRUPT", "", "winch"] {
        let params = json!({"processId": start.id(), "signal": bad});
        assert_eq!(client.error("process/signal", params).await.code, -32602, "{bad}");
    }
}

#[test_case(false; "pipe")]
#[test_case(true; "tty")]
#[tokio::test]
async fn an_interrupt_without_handler_ends_the_program(tty: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let marker = Marker::new();
    let start = Start::sh("sleep 300; echo after").tty(tty).marked(&marker);
    client.start(&start).await;
    eventually("it sleeps", LIMIT, || !marker.running("sleep 300").is_empty()).await;
    signal(&client, &start, "interrupt", None).await;
    let run = client.finish(&start.id()).await;
    assert_eq!((run.exit(), &run.exited["signal"]), (130, &json!("SIGINT")));
    assert!(!run.text().contains("after"));
}

#[test_case(None, true; "the group by default")]
#[test_case(Some("group"), true; "the group by name")]
#[test_case(Some("leader"), false; "the leader alone")]
#[tokio::test]
async fn a_target_limits_the_signal(target: Option<&str>, reaches_child: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let script = "bash -c 'trap \"echo child\" USR1; echo ready; while :; do sleep 0.05; done' & \
                  trap 'echo leader' USR1; echo up; while :; do wait; done";
    let start = Start::bash(script);
    client.start(&start).await;
    client.wait_output(&start.id(), "up").await;
    client.wait_output(&start.id(), "ready").await;
    signal(&client, &start, "user1", target).await;
    client.wait_output(&start.id(), "leader").await;
    if reaches_child {
        client.wait_output(&start.id(), "child").await;
    }
    // A second signal to all: by now a first one to the child would have been handled.
    signal(&client, &start, "user1", Some("group")).await;
    client.wait_output(&start.id(), "child").await;
    signal(&client, &start, "stop", Some("group")).await;
    let count = client.so_far(&start.id()).text().matches("child").count();
    assert_eq!(count, if reaches_child { count.max(1) } else { 1 });
    client.ok("process/terminate", json!({"processId": start.id(), "graceMs": 0})).await;
    client.finish(&start.id()).await;
}

#[tokio::test]
async fn under_job_control_the_foreground_job_gets_the_signal() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let marker = Marker::new();
    let start = Start::argv(["/bin/bash", "--norc", "--noprofile", "-i"]).tty(true).marked(&marker);
    client.start(&start).await;
    let foreground = |nap: &str| {
        let line = format!("sleep {nap}; echo \"status=$?\"\n");
        let nap = format!("sleep {nap}");
        let (client, marker, id) = (&client, &marker, start.id());
        async move {
            client.write(&id, &nap, line.as_bytes()).await;
            eventually("the job runs", LIMIT, || !marker.running(&nap).is_empty()).await;
        }
    };
    foreground("341").await;
    assert_eq!(signal(&client, &start, "interrupt", None).await.to_string(), DELIVERED);
    eventually("the job is gone", LIMIT, || marker.running("sleep 341").is_empty()).await;
    foreground("342").await;
    assert_eq!(signal(&client, &start, "kill", Some("foreground")).await.to_string(), DELIVERED);
    client.wait_output(&start.id(), "status=137").await;
    foreground("343").await;
    // The shell itself ignores it, and its job is another group.
    signal(&client, &start, "terminate", Some("leader")).await;
    signal(&client, &start, "terminate", Some("group")).await;
    assert_eq!(marker.running("sleep 343").len(), 1);
    assert_eq!(listed(&client, &start).await["state"], "running");
    client.ok("process/terminate", json!({"processId": start.id(), "graceMs": 300})).await;
    client.finish(&start.id()).await;
    eventually("the job is gone too", LIMIT, || marker.pids().is_empty()).await;
}

#[tokio::test]
async fn a_foreground_needs_a_terminal() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let start = Start::argv(["/bin/sleep", "300"]);
    client.start(&start).await;
    let params = json!({"processId": start.id(), "signal": "interrupt", "target": "foreground"});
    assert_eq!(client.error("process/signal", params).await.code, -32600);
    let params = json!({"processId": start.id(), "signal": "interrupt", "target": "everybody"});
    assert_eq!(client.error("process/signal", params).await.code, -32602);
    assert_eq!(listed(&client, &start).await["state"], "running");
}

#[test_case(&[0]; "nothing written")]
#[test_case(&[1, 1, 1]; "bytes")]
#[test_case(&[3_000_000, 17, 2_000_000]; "more than a pipe holds")]
#[tokio::test]
async fn input_ends_after_what_was_accepted(sizes: &[usize]) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let start = Start::sh("sha256sum; echo ended").stdin();
    let id = start.id();
    // Without waiting for any answer: order is the server's duty.
    let mut requests = vec![client.send("process/start", start.params()).await];
    let mut all = Vec::new();
    for (number, size) in sizes.iter().enumerate() {
        let bytes: Vec<u8> = (0..*size).map(|index| u8::try_from((index + number) % 251).unwrap()).collect();
        requests.push(client.send("process/write", write_params(&id, &format!("w{number}"), &bytes)).await);
        all.extend(bytes);
    }
    let close = client.send("process/closeStdin", json!({"processId": id})).await;
    for request in requests {
        client.answer(request).await.unwrap();
    }
    assert_eq!(client.answer(close).await.unwrap(), json!({"status": "accepted"}));
    let run = client.finish(&id).await;
    let expected: String = {
        use sha2::Digest;
        sha2::Sha256::digest(&all).iter().map(|byte| format!("{byte:02x}")).collect()
    };
    assert_eq!(run.text(), format!("{expected}  -\nended\n"));
}

#[tokio::test]
async fn answers_of_close_stdin() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let close = |id: &str| client.ok("process/closeStdin", json!({"processId": id}));
    let closed = json!({"status": "stdinClosed"});

    let open = Start::sh("cat; sleep 300").stdin();
    client.start(&open).await;
    assert_eq!(close(&open.id()).await, json!({"status": "accepted"}));
    assert_eq!(close(&open.id()).await, closed, "a repeat");
    assert_eq!(client.write(&open.id(), "late", b"x").await, "stdinClosed");
    assert_eq!(listed(&client, &open).await["stdin"], "closed");

    let without = Start::argv(["/bin/sleep", "300"]);
    client.start(&without).await;
    assert_eq!(close(&without.id()).await, closed);
    let ended = Start::argv(["/bin/true"]).stdin();
    client.run(&ended).await;
    assert_eq!(close(&ended.id()).await, closed);
    assert_eq!(close("unknown").await, json!({"status": "unknownProcess"}));

    let tty = Start::argv(["/bin/cat"]).tty(true);
    client.start(&tty).await;
    let error = client.error("process/closeStdin", json!({"processId": tty.id()})).await;
    assert!(error.code == -32600 && error.message.contains("u0004"), "{error:?}");
}

#[test_case(false; "pipe")]
#[test_case(true; "tty")]
#[tokio::test]
async fn writes_that_nobody_can_read_are_not_accepted(tty: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let by_itself = Start::sh("read line; exit 0").tty(tty).stdin();
    client.start(&by_itself).await;
    assert_eq!(client.write(&by_itself.id(), "kept", b"x\n").await, "accepted");
    client.finish(&by_itself.id()).await;
    let terminated = Start::argv(["/bin/sleep", "300"]).tty(tty).stdin();
    client.start(&terminated).await;
    client.ok("process/terminate", json!({"processId": terminated.id()})).await;
    client.finish(&terminated.id()).await;
    for start in [&by_itself, &terminated] {
        assert_eq!(client.write(&start.id(), "new", b"x\n").await, "stdinClosed");
    }
    assert_eq!(client.write(&by_itself.id(), "kept", b"x\n").await, "accepted", "an accepted one stays so");
    assert_eq!(client.write("unknown", "w", b"x").await, "unknownProcess");
    let without = Start::argv(["/bin/sleep", "300"]);
    client.start(&without).await;
    assert_eq!(client.write(&without.id(), "w", b"x").await, "stdinClosed");
}

#[tokio::test]
async fn a_program_that_closes_its_input_takes_no_more() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let start = Start::sh("exec <&-; echo closed; sleep 300").stdin();
    client.start(&start).await;
    client.wait_output(&start.id(), "closed").await;
    // The first may still be taken into the queue; the broken pipe shows when it is written.
    let mut number = 0;
    let deadline = std::time::Instant::now() + LIMIT;
    while client.write(&start.id(), &format!("w{number}"), b"x").await != "stdinClosed" {
        number += 1;
        assert!(std::time::Instant::now() < deadline, "always accepted");
    }
}

#[test_case(false; "pipe")]
#[test_case(true; "tty")]
#[tokio::test]
async fn a_write_id_writes_once(tty: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let start = Start::sh("stty -echo 2>/dev/null; echo up; cat").tty(tty).stdin();
    client.start(&start).await;
    client.wait_output(&start.id(), "up").await;
    let mut requests = Vec::new();
    for number in 0..50 {
        let text = format!("first{number}\n");
        requests.push(client.send("process/write", write_params(&start.id(), "same", text.as_bytes())).await);
    }
    for request in requests {
        assert_eq!(client.answer(request).await.unwrap()["status"], "accepted");
    }
    client.write(&start.id(), "other", b"second\n").await;
    client.wait_output(&start.id(), "second").await;
    assert_eq!(client.so_far(&start.id()).text().replace('\r', ""), "up\nfirst0\nsecond\n");
    let error = client.error("process/write", write_params(&start.id(), "", b"x")).await;
    assert_eq!(error.code, -32602);
}

#[tokio::test]
async fn the_list_tells_what_runs() {
    let daemon = Daemon::start().await;
    let (client, other) = (daemon.client().await, daemon.client().await);
    let directory = work_dir();
    other.start(&Start::argv(["/bin/sleep", "300"])).await;
    assert_eq!(client.ok("process/list", json!({})).await, json!({"processes": []}));
    let now = || u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    let before = now();

    let running = Start::argv(["/bin/cat", "-"]).stdin().cwd(directory.path());
    let exited = Start::sh("trap '' HUP; sleep 300 & kill -TERM $$").tty(true);
    let closed = Start::sh("echo 12345; echo 678 >&2; exit 6");
    client.start(&running).await;
    client.start(&exited).await;
    client.wait_event(&exited.id(), "process/exited").await;
    let run = client.run(&closed).await;

    let list = client.ok("process/list", json!({})).await;
    let processes = list["processes"].as_array().unwrap();
    let ids: Vec<_> = processes.iter().map(|process| process["processId"].as_str().unwrap()).collect();
    assert_eq!(ids, [&running.id(), &exited.id(), &closed.id()], "in order of start");
    let [first, second, third] = processes.as_slice() else { panic!("{list}") };

    assert_eq!(first["argv"], json!(["/bin/cat", "-"]));
    assert_eq!(first["cwd"], uri(directory.path()));
    assert_eq!((&first["tty"], &first["sandboxType"]), (&json!(false), &json!("none")));
    assert_eq!((&first["state"], &first["stdin"]), (&json!("running"), &json!("open")));
    assert_eq!(
        (&first["exitCode"], &first["signal"], &first["exitedAtMs"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    assert_eq!(
        (&first["nextSeq"], &first["outputBytes"], &first["retainedFromSeq"]),
        (&json!(1), &json!(0), &json!(1))
    );
    let pid = first["pid"].as_i64().unwrap();
    assert_eq!(std::fs::read(format!("/proc/{pid}/cmdline")).unwrap(), b"/bin/cat\0-\0");
    let started = first["startedAtMs"].as_u64().unwrap();
    assert!((before..=now()).contains(&started));

    assert_eq!((&second["state"], &second["tty"]), (&json!("exited"), &json!(true)));
    assert_eq!((&second["exitCode"], &second["signal"]), (&json!(143), &json!("SIGTERM")));
    assert!(second["exitedAtMs"].as_u64().unwrap() >= second["startedAtMs"].as_u64().unwrap());

    assert_eq!((&third["state"], &third["stdin"]), (&json!("closed"), &json!("closed")));
    assert_eq!((&third["exitCode"], &third["signal"]), (&json!(6), &Value::Null));
    assert_eq!(third["outputBytes"], json!(10));
    assert_eq!(third["nextSeq"], json!(run.seqs.len() + 1));
}
