//! Terminals.

use std::time::{Duration, Instant};

use pretty_assertions::assert_eq;
use serde_json::json;
use test_case::test_case;

use super::support::client::write_params;
use super::support::{Daemon, Start, work_dir};

#[test_case(400_000, 65_536; "in blocks")]
#[test_case(100_003, 997; "in small pieces")]
#[test_case(1_500_000, 1_500_000; "in one write")]
#[tokio::test]
async fn a_large_paste_comes_back_whole(size: usize, piece: usize) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let start = Start::bash("stty raw -echo; echo up; exec cat").tty(true);
    client.start(&start).await;
    client.wait_output(&start.id(), "up\n").await;
    let bytes: Vec<u8> = (0..size).map(|index| u8::try_from(index % 251).unwrap()).collect();
    let began = Instant::now();
    let mut requests = Vec::new();
    for (number, piece) in bytes.chunks(piece).enumerate() {
        requests.push(
            client.send("process/write", write_params(&start.id(), &format!("w{number}"), piece)).await,
        );
    }
    for request in requests {
        assert_eq!(client.answer(request).await.unwrap()["status"], "accepted");
    }
    client
        .wait_events(&start.id(), "all of the paste", |events| {
            let outputs = events.iter().filter_map(|event| event["params"]["chunk"].as_str());
            // Four characters for three bytes, so this is cheap and never too small.
            let at_most: usize = outputs.map(|chunk| chunk.len() / 4 * 3).sum();
            (at_most >= size + 3).then_some(())
        })
        .await;
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    client.ok("process/terminate", json!({"processId": start.id()})).await;
    let run = client.finish(&start.id()).await;
    assert_eq!(run.pty.len(), size + 3);
    assert!(run.pty[3..] == bytes, "altered");
}

#[tokio::test]
async fn a_terminal_has_the_size_that_was_asked_for() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let size = Start::argv(["/bin/stty", "size"]).tty(true);
    assert_eq!(client.run(&size).await.text(), "24 80\r\n");
    for (rows, cols) in [(1, 1), (50, 132), (65_535, 65_535)] {
        let start =
            Start::argv(["/bin/stty", "size"]).tty(true).with("size", json!({"rows": rows, "cols": cols}));
        assert_eq!(client.run(&start).await.text(), format!("{rows} {cols}\r\n"));
    }
    let start = Start::argv(["/bin/stty", "size"]).tty(true).with("size", json!(null));
    assert_eq!(client.run(&start).await.text(), "24 80\r\n");
    for bad in
        [json!({"rows": 0, "cols": 80}), json!({"rows": 24, "cols": 65_536}), json!({"rows": 24}), json!(80)]
    {
        let start = Start::argv(["/bin/true"]).tty(true).with("size", bad);
        assert_eq!(client.error("process/start", start.params()).await.code, -32602);
    }
    let start = Start::argv(["/bin/true"]).with("size", json!({"rows": 24, "cols": 80}));
    assert_eq!(client.error("process/start", start.params()).await.code, -32602, "no terminal, no size");
}

#[tokio::test]
async fn a_resize_is_told_to_the_program() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let start =
        Start::bash("trap 'echo told' WINCH; echo up; while :; do stty size; sleep 0.05; done").tty(true);
    client.start(&start).await;
    client.wait_output(&start.id(), "24 80\r\n").await;
    let resize = |rows: u32, cols: u32| json!({"processId": start.id(), "rows": rows, "cols": cols});
    for (rows, cols) in [(40, 100), (5, 200), (40, 101)] {
        assert_eq!(client.ok("process/resize", resize(rows, cols)).await, json!({}));
        client.wait_output(&start.id(), &format!("{rows} {cols}\r\n")).await;
    }
    client.wait_output(&start.id(), "told").await;
    for (rows, cols) in [(0, 80), (24, 0), (65_536, 80)] {
        assert_eq!(client.error("process/resize", resize(rows, cols)).await.code, -32602);
    }
    client.ok("process/terminate", json!({"processId": start.id()})).await;
    client.finish(&start.id()).await;
    assert_eq!(client.ok("process/resize", resize(10, 10)).await, json!({}), "an ended one");

    let pipe = Start::argv(["/bin/sleep", "300"]);
    client.start(&pipe).await;
    for id in [pipe.id(), "unknown".into()] {
        let params = json!({"processId": id, "rows": 10, "cols": 10});
        assert_eq!(client.error("process/resize", params).await.code, -32600);
    }
}

#[tokio::test]
async fn only_a_terminal_controls() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let script = "(exec </dev/tty) 2>/dev/null && echo ctty || echo noctty";
    assert_eq!(client.run(&Start::bash(script)).await.text(), "noctty\n");
    assert_eq!(client.run(&Start::bash(script).tty(true)).await.text(), "ctty\r\n");
    // Leader of its session and group, in the foreground of its terminal.
    let ids = "set -- $(cut -d')' -f2 /proc/$$/stat); echo $(($3 == $$)) $(($4 == $$)) $(($6 == $$))";
    assert_eq!(client.run(&Start::sh(ids)).await.text(), "1 1 0\n");
    assert_eq!(client.run(&Start::sh(ids).tty(true)).await.text(), "1 1 1\r\n");
}

#[tokio::test]
async fn a_terminal_begins_with_the_usual_modes() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let run = client.run(&Start::sh("stty -a; echo \"TERM=${TERM-unset}\"").tty(true)).await;
    let words: Vec<String> = run.text().split([' ', ';', '\r', '\n']).map(str::to_owned).collect();
    for mode in ["icanon", "echo", "isig", "icrnl", "onlcr", "ixon", "TERM=unset"] {
        assert!(words.iter().any(|word| word == mode), "no {mode} in {}", run.text());
    }
}

#[test_case("file:///no/such", &["/bin/sh", "-c", "touch ran"]; "missing directory")]
#[test_case("file:///etc/passwd", &["/bin/sh", "-c", "touch ran"]; "no directory")]
#[tokio::test]
async fn a_terminal_never_runs_elsewhere(cwd: &str, argv: &[&str]) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    for tty in [false, true] {
        let start =
            Start::argv(argv).tty(tty).with("cwd", json!(cwd)).env("HOME", daemon.home().to_str().unwrap());
        let error = client.error("process/start", start.params()).await;
        let path = cwd.trim_start_matches("file://");
        assert!(error.code == -32603 && error.message.contains(path), "{error:?}");
        assert!(!daemon.home().join("ran").exists());
    }
}

#[tokio::test]
async fn a_failed_exec_is_no_output() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let long = "x".repeat(131_072);
    for tty in [false, true] {
        let start = Start::argv(["/bin/echo", &long]).tty(tty);
        let error = client.error("process/start", start.params()).await;
        assert_eq!((error.code, error.kind()), (-32603, "spawnFailed"));
        assert!(client.so_far(&start.id()).methods.is_empty());
        let again = Start::argv(["/bin/echo", "fine"]).tty(tty).named(&start.id());
        assert_eq!(client.run(&again).await.text().trim(), "fine");
    }
}

#[tokio::test]
async fn end_of_input_by_its_key() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let start = Start::argv(["/bin/cat"]).tty(true);
    client.start(&start).await;
    client.write(&start.id(), "1", b"x\n").await;
    client.wait_output(&start.id(), "x\r\nx\r\n").await;
    client.write(&start.id(), "2", b"\x04").await;
    let run = client.finish(&start.id()).await;
    assert_eq!((run.text().as_str(), run.exit()), ("x\r\nx\r\n", 0));
}

#[tokio::test]
async fn full_terminals_hold_nobody_up() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let directory = work_dir();
    for number in 0..6 {
        let start = Start::sh("stty raw -echo; echo up; exec sleep 300").tty(true).cwd(directory.path());
        client.start(&start).await;
        client.wait_output(&start.id(), "up").await;
        client.send("process/write", write_params(&start.id(), &format!("{number}"), &[b'z'; 300_000])).await;
    }
    let began = Instant::now();
    for _ in 0..5 {
        assert_eq!(client.run(&Start::argv(["/bin/echo", "served"]).tty(true)).await.text(), "served\r\n");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

/// The kernel calls a terminal ready from the moment at which its last program begins to close it, and refuses input
/// only when that is done. Whoever tries again and again meanwhile keeps it from being done.
#[tokio::test]
async fn input_in_the_queue_does_not_keep_a_terminal_from_closing() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let input = vec![b'i'; 300_000];
    for _ in 0..150 {
        let start = Start::sh("stty raw -echo; echo up; exec sleep 301").tty(true);
        client.start(&start).await;
        client.wait_output(&start.id(), "up\n").await;
        assert_eq!(client.write(&start.id(), "w", &input).await, "accepted");
        client.ok("process/terminate", json!({"processId": start.id(), "graceMs": 0})).await;
        assert_eq!(client.finish(&start.id()).await.exit(), 137);
    }
}
