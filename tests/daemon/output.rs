//! Output: every byte once, in order, on its own stream, for as long as it is kept; and input that nobody reads.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use test_case::test_case;

use super::support::client::write_params;
use super::support::{Client, Daemon, LIMIT, Marker, Start, eventually, machine, unbase64, work_dir};

fn stream(tty: bool) -> &'static str {
    if tty { "pty" } else { "stdout" }
}

/// Reads everything that is kept behind a number, page by page.
async fn read_all(
    client: &Client,
    process: &str,
    mut after: u64,
    max_bytes: Option<u64>,
) -> (Vec<u8>, Vec<Value>) {
    let (mut bytes, mut lost) = (Vec::new(), Vec::new());
    loop {
        let params = json!({"processId": process, "afterSeq": after, "maxBytes": max_bytes, "waitMs": 0});
        let page = client.ok("process/read", params).await;
        if !page["lost"].is_null() {
            lost.push(page["lost"].clone());
        }
        let chunks = page["chunks"].as_array().expect("chunks");
        let Some(last) = chunks.last() else { return (bytes, lost) };
        for chunk in chunks {
            bytes.extend(unbase64(chunk["chunk"].as_str().expect("a chunk")));
        }
        after = last["seq"].as_u64().expect("a seq");
    }
}

/// What `seq 1 COUNT` prints.
fn counted(count: u32) -> Vec<u8> {
    (1..=count).flat_map(|number| format!("{number}\n").into_bytes()).collect()
}

#[test_case(false, 160; "pipe")]
#[test_case(true, 96; "tty")]
#[tokio::test]
async fn output_of_programs_that_exit_at_once(tty: bool, count: usize) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let sizes = [1, 2, 12, 511, 4_095, 4_096, 4_097, 9_000, 40_000];
    let starts: Vec<(Start, String)> = (0..count)
        .map(|number| {
            let text = format!("{number}:").repeat(sizes[number % sizes.len()]);
            let text = text[..sizes[number % sizes.len()]].to_owned();
            let start = match number % 3 {
                0 => Start::argv(["/usr/bin/printf", "%s", &text]),
                1 => Start::sh("printf %s \"$0\"")
                    .with("argv", json!(["/bin/sh", "-c", "printf %s \"$0\"", text])),
                _ => Start::argv(["/bin/bash", "-c", "exec printf %s \"$1\"", "bash", &text]),
            };
            (start.tty(tty), text)
        })
        .collect();
    for some in starts.chunks(8) {
        join_all(some.iter().map(async |(start, text)| {
            let run = client.run(start).await;
            run.assert_whole();
            assert_eq!((run.exit(), run.text()), (0, text.clone()));
        }))
        .await;
    }
}

/// Floods of small writes, with a pause for an answer between them.
const FLOODS: &str = r"
import os
def flood(name):
    for number in range(20000):
        os.write(1, b'%s %06d %s\n' % (name, number, b'.' * 60))
flood(b'first')
os.write(1, b'name? ')
name = os.read(0, 100)
os.write(1, b'hello ' + name)
flood(b'second')
";

#[tokio::test]
async fn floods_of_small_writes_are_whole_and_hide_no_prompt() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let start = Start::argv(["python3", "-c", FLOODS]).stdin();
    client.start(&start).await;
    client.wait_output(&start.id(), "name? ").await;
    client.write(&start.id(), "w1", b"you\n").await;
    let run = client.finish(&start.id()).await;
    run.assert_whole();
    let flood = |name: &str| -> String {
        (0..20000).map(|number| format!("{name} {number:06} {}\n", ".".repeat(60))).collect()
    };
    assert!(run.text() == format!("{}name? hello you\n{}", flood("first"), flood("second")));
}

#[test_case(false, 23_456_789; "pipe")]
#[test_case(true, 3_000_001; "tty")]
#[tokio::test]
async fn large_output_is_whole(tty: bool, size: usize) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    // No newline in it: a reader that waits for lines would stall.
    let start = Start::sh(&format!("head -c {size} /dev/zero | tr '\\0' x; printf END")).tty(tty);
    let run = client.run(&start).await;
    run.assert_whole();
    let bytes = if tty { &run.pty } else { &run.stdout };
    assert_eq!((bytes.len(), run.exit()), (size + 3, 0));
    assert!(bytes[..size].iter().all(|byte| *byte == b'x') && bytes.ends_with(b"END"));
    assert_eq!(run.closed["outputBytes"][stream(tty)], json!(size + 3));
}

#[test_case(false; "pipe")]
#[test_case(true; "tty")]
#[tokio::test]
async fn bytes_are_not_altered(tty: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let directory = work_dir();
    let up: Vec<u8> = (0..=255_u8).cycle().take(256 * 41 + 7).collect();
    let down: Vec<u8> = up.iter().rev().copied().collect();
    std::fs::write(directory.path().join("up"), &up).unwrap();
    std::fs::write(directory.path().join("down"), &down).unwrap();
    let script = if tty { "stty raw; cat up down" } else { "cat up; cat down >&2" };
    let run = client.run(&Start::sh(script).tty(tty).cwd(directory.path())).await;
    run.assert_whole();
    if tty {
        assert!(run.pty == [up, down].concat(), "altered");
    } else {
        assert!(run.stdout == up && run.stderr == down, "altered");
    }
}

#[tokio::test]
async fn two_streams_are_kept_apart() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let run = client.run(&Start::sh("for i in $(seq 1 50); do echo o$i; echo e$i >&2; done")).await;
    run.assert_whole();
    let lines = |letter: char| (1..=50).map(|number| format!("{letter}{number}\n")).collect::<String>();
    assert_eq!(String::from_utf8(run.stdout).unwrap(), lines('o'));
    assert_eq!(String::from_utf8(run.stderr).unwrap(), lines('e'));
    let size = lines('o').len();
    assert_eq!(run.closed["outputBytes"], json!({"stdout": size, "stderr": size, "pty": 0}));
}

#[test_case(false; "pipe")]
#[test_case(true; "tty")]
#[tokio::test]
async fn a_prompt_without_newline_is_pushed_while_the_program_waits(tty: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let start = Start::sh("printf 'name? '; read name; printf 'hello %s' \"$name\"").tty(tty).stdin();
    client.start(&start).await;
    client.wait_output(&start.id(), "name? ").await;
    assert_eq!(client.write(&start.id(), "w", b"you\n").await, "accepted");
    let run = client.finish(&start.id()).await;
    assert!(run.text().ends_with("hello you"), "{:?}", run.text());
}

#[test_case("sleep 301 & echo hi", false; "pipe")]
#[test_case("setsid sleep 301 & echo hi", false; "own session")]
#[test_case("(trap '' TERM HUP INT; sleep 301; sleep 301) & echo hi", false; "ignores the signal")]
#[test_case("sh -c 'sleep 301 >&2' >/dev/null & echo hi", false; "only the error stream")]
#[test_case("trap '' HUP; sleep 301 & echo hi", true; "tty")]
#[test_case("trap '' HUP; setsid sleep 301 & echo hi", true; "own session on a terminal")]
#[tokio::test]
async fn terminate_reaches_whoever_holds_the_output_of_an_exited_program(script: &str, tty: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let marker = Marker::new();
    let start = Start::sh(&format!("{script}; exit 3")).tty(tty).marked(&marker);
    client.start(&start).await;
    let exited = client.wait_event(&start.id(), "process/exited").await;
    assert_eq!((&exited["exitCode"], &exited["reason"]), (&json!(3), &json!("exited")));
    eventually("the child runs", LIMIT, || !marker.running("sleep 301").is_empty()).await;
    let read = client.ok("process/read", json!({"processId": start.id(), "waitMs": 0})).await;
    assert_eq!((&read["exited"], &read["closed"]), (&json!(true), &json!(false)));

    let params = json!({"processId": start.id(), "graceMs": 300});
    assert_eq!(client.ok("process/terminate", params.clone()).await, json!({"running": true}));
    let run = client.finish(&start.id()).await;
    run.assert_whole();
    assert_eq!(run.exit(), 3);
    eventually("the child is gone", Duration::from_secs(6), || marker.pids().is_empty()).await;
    assert_eq!(client.ok("process/terminate", params).await, json!({"running": false}));
}

#[test_case("exec >&- 2>&-"; "closed")]
#[test_case("exec >/dev/null 2>&1"; "pointed elsewhere")]
#[tokio::test]
async fn a_program_may_close_its_output_and_live_on(redirect: &str) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let directory = work_dir();
    let script = format!("echo first; {redirect}; : >closed; read line; exit 4");
    let start = Start::sh(&script).stdin().cwd(directory.path());
    client.start(&start).await;
    eventually("the output is closed", LIMIT, || directory.path().join("closed").exists()).await;
    // A wait that ends without news: the process is neither exited nor closed.
    let params = json!({"processId": start.id(), "afterSeq": 1, "waitMs": 500});
    let read = client.ok("process/read", params).await;
    assert_eq!(
        (&read["exited"], &read["closed"], &read["chunks"]),
        (&json!(false), &json!(false), &json!([]))
    );
    client.write(&start.id(), "w", b"\n").await;
    let run = client.finish(&start.id()).await;
    run.assert_whole();
    assert_eq!((run.exit(), run.text().as_str()), (4, "first\n"));
    assert_eq!(run.methods, ["process/output", "process/exited", "process/closed"]);
}

#[test_case(None; "in one answer")]
#[test_case(Some(1_000_000); "in pages")]
#[test_case(Some(7_654_321); "in large pages")]
#[tokio::test]
async fn history_is_read_back_through_the_spool(max_bytes: Option<u64>) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let start = Start::argv(["/usr/bin/seq", "1", "4000000"]);
    client.start(&start).await;
    client.wait_event(&start.id(), "process/closed").await;
    let (bytes, lost) = read_all(&client, &start.id(), 0, max_bytes).await;
    assert_eq!(lost, Vec::<Value>::new());
    let expected = counted(4_000_000);
    assert_eq!(bytes.len(), expected.len());
    assert!(bytes == expected, "altered");
}

#[test_case(&["process.spool_bytes=0"], 3_000_000; "no spool")]
#[test_case(&["process.spool_total_bytes=0"], 400_000; "no spool for anybody")]
#[test_case(&["process.spool_bytes=4000000"], 1_500_000; "a small spool")]
#[test_case(&["process.spool_dir=/proc/no-such-directory"], 400_000; "a spool that cannot be written")]
#[tokio::test]
async fn what_is_gone_is_counted(settings: &[&str], count: u32) {
    let mut setup = Daemon::setup();
    for setting in settings {
        let (key, value) = setting.split_once('=').unwrap();
        setup = setup.set(key, value);
    }
    let daemon = setup.start().await;
    let client = daemon.client().await;
    let start = Start::argv(["/usr/bin/seq", "1", &count.to_string()]);
    let run = client.run(&start).await;
    let expected = counted(count);
    assert!(run.stdout == expected, "the pushed output is whole in any case");

    let (bytes, lost) = read_all(&client, &start.id(), 0, Some(65_536)).await;
    let [lost] = lost.as_slice() else { panic!("not one hole: {lost:?}") };
    let gone = usize::try_from(lost["bytes"].as_u64().unwrap()).unwrap();
    assert!(gone > 0 && bytes.len() >= 900_000, "{gone} gone, {} there", bytes.len());
    assert_eq!(gone + bytes.len(), expected.len());
    assert!(bytes == expected[gone..], "the newest is what stays");

    let read = |after: u64| client.ok("process/read", json!({"processId": start.id(), "afterSeq": after}));
    let page = read(0).await;
    let first = page["chunks"][0]["seq"].as_u64().unwrap();
    assert_eq!((lost["firstSeq"].as_u64(), lost["lastSeq"].as_u64()), (Some(1), Some(first - 1)));
    let half = first / 2;
    let page = read(half).await;
    assert_eq!(page["lost"]["firstSeq"], json!(half + 1));
    assert!(page["lost"]["bytes"].as_u64().unwrap() < lost["bytes"].as_u64().unwrap());
    assert_eq!(read(first - 1).await["lost"], Value::Null);
}

#[test_case(0; "zero")]
#[test_case(1; "one")]
#[test_case(5; "less than a chunk")]
#[tokio::test]
async fn tiny_pages_make_progress(max_bytes: u64) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    // Three chunks: each is asked for before the next is written.
    let start = Start::sh("printf abcdef; read x; printf ghijkl; read x; printf mnopqr").stdin();
    client.start(&start).await;
    client.wait_output(&start.id(), "abcdef").await;
    client.write(&start.id(), "1", b"\n").await;
    client.wait_output(&start.id(), "ghijkl").await;
    client.write(&start.id(), "2", b"\n").await;
    client.finish(&start.id()).await;
    for (number, text) in [(1, "abcdef"), (2, "ghijkl"), (3, "mnopqr")] {
        let params = json!({"processId": start.id(), "afterSeq": number - 1, "maxBytes": max_bytes});
        let page = client.ok("process/read", params).await;
        let chunks = page["chunks"].as_array().unwrap();
        assert_eq!(chunks.len(), 1);
        assert_eq!(unbase64(chunks[0]["chunk"].as_str().unwrap()), text.as_bytes());
        assert_eq!(page["nextSeq"], json!(number + 1));
    }
}

const WRITE: usize = 2 * 1024 * 1024;

/// Sends so many writes of 2 MiB at once; their ids are `w0`, `w1`, ….
async fn flood(client: &Client, process: &str, count: usize) -> Vec<i64> {
    let chunk = vec![b'i'; WRITE];
    let mut ids = Vec::new();
    for number in 0..count {
        ids.push(client.send("process/write", write_params(process, &format!("w{number}"), &chunk)).await);
    }
    ids
}

#[test_case(false; "pipe")]
#[test_case(true; "tty")]
#[tokio::test]
async fn input_that_nobody_reads_is_bounded(tty: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let start = Start::sh("stty raw -echo 2>/dev/null; echo up; exec sleep 300").tty(tty).stdin();
    client.start(&start).await;
    client.wait_output(&start.id(), "up").await;
    let before = daemon.resident();
    let ids = flood(&client, &start.id(), 60).await;
    let last = client.answer(ids[59]).await.unwrap_err();
    assert_eq!((last.code, last.kind()), (-32603, "stdinFull"));
    let grown = daemon.resident().saturating_sub(before);
    assert!(grown < 96 * 1024 * 1024, "grown by {grown}");

    // Accepted at once, then waiting, then refused.
    let answered = |id: &i64| client.answered(*id).map(|answer| answer.is_ok());
    let states: Vec<Option<bool>> = ids.iter().map(answered).collect();
    let accepted = states.iter().take_while(|state| **state == Some(true)).count();
    let waiting = states[accepted..].iter().take_while(|state| state.is_none()).count();
    assert!((3..=6).contains(&accepted) && (6..=9).contains(&waiting), "{states:?}");
    assert!(states[accepted + waiting..].iter().all(|state| *state == Some(false)), "{states:?}");

    assert!(client.round_trip().await < Duration::from_millis(1_500));
    let began = Instant::now();
    client.run(&Start::argv(["/bin/true"])).await;
    assert!(began.elapsed() < Duration::from_secs(2));
    let answer = client.ok("process/terminate", json!({"processId": start.id(), "graceMs": 0})).await;
    assert_eq!(answer, json!({"running": true}));
    assert_eq!(client.finish(&start.id()).await.exit(), 137);
    for id in &ids[accepted..accepted + waiting] {
        assert_eq!(client.answer(*id).await.unwrap()["status"], "stdinClosed");
    }
}

#[tokio::test]
async fn refused_input_goes_through_later_and_in_order() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let directory = work_dir();
    let script = "while [ ! -e go ]; do sleep 0.02; done; exec cat >all";
    let start = Start::sh(script).stdin().cwd(directory.path());
    client.start(&start).await;
    let id = start.id();
    let ids = flood(&client, &id, 20).await;
    client.answer(ids[19]).await.unwrap_err();
    std::fs::write(directory.path().join("go"), "").unwrap();
    let mut first_refused = None;
    for (number, request) in ids.iter().enumerate() {
        let answer = client.answer(*request).await;
        match (&answer, first_refused) {
            (Ok(answer), None) => assert_eq!(answer["status"], "accepted"),
            (Err(error), _) => {
                assert_eq!(error.kind(), "stdinFull");
                first_refused.get_or_insert(number);
            }
            (Ok(_), Some(_)) => panic!("{number} overtook a refused write"),
        }
    }
    let first_refused = first_refused.unwrap();

    // There is room now, but what comes after a refused write may not overtake it.
    let late = client.error("process/write", write_params(&id, "late", b"late")).await;
    assert_eq!(late.kind(), "stdinFull");
    assert_eq!(client.write(&id, &format!("w{first_refused}"), b"refused").await, "accepted");
    assert_eq!(client.write(&id, "late", b"late").await, "accepted");
    client.ok("process/closeStdin", json!({"processId": id})).await;
    assert_eq!(client.finish(&id).await.exit(), 0);
    let all = std::fs::read(directory.path().join("all")).unwrap();
    assert_eq!(all.len(), first_refused * WRITE + "refusedlate".len());
    assert!(all.ends_with(b"irefusedlate"));
}

#[tokio::test]
async fn one_large_write_needs_only_an_empty_queue() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let start = Start::argv(["/usr/bin/wc", "-c"]).stdin();
    client.start(&start).await;
    let chunk = vec![7; 20 * 1024 * 1024 + 1];
    assert_eq!(client.write(&start.id(), "large", &chunk).await, "accepted");
    client.ok("process/closeStdin", json!({"processId": start.id()})).await;
    let run = client.finish(&start.id()).await;
    assert_eq!(run.text().trim(), (20 * 1024 * 1024 + 1).to_string());
}

#[test_case(false; "pipe")]
#[test_case(true; "tty")]
#[tokio::test]
async fn a_stalled_reader_stalls_the_writer_and_nobody_else(tty: bool) {
    let daemon = Daemon::start().await;
    let (stalled, other) = (daemon.client().await, daemon.client().await);
    let start = Start::argv(["/usr/bin/yes", "0123456789"]).tty(tty);
    stalled.start(&start).await;
    stalled.wait_output(&start.id(), "0123456789").await;
    stalled.pause(true);
    let before = daemon.resident();
    let observer = Client::observe(daemon.url(), &stalled.session_id()).await;
    let pid =
        i32::try_from(observer.ok("process/list", json!({})).await["processes"][0]["pid"].as_i64().unwrap());
    let pid = pid.unwrap();
    drop(observer);
    // Blocked for good: a second in which the writer used no processor time.
    let (mut ticks, mut since) = (0, Instant::now());
    eventually("the writer is blocked", LIMIT, || {
        let now = machine::cpu_ticks(pid);
        if now != ticks {
            (ticks, since) = (now, Instant::now());
        }
        since.elapsed() > Duration::from_secs(1)
    })
    .await;
    let grown = daemon.resident().saturating_sub(before);
    assert!(grown < 48 * 1024 * 1024, "grown by {grown}");
    let began = Instant::now();
    for _ in 0..20 {
        assert_eq!(other.run(&Start::argv(["/bin/echo", "x"])).await.text(), "x\n");
    }
    assert!(began.elapsed() < Duration::from_secs(6), "others waited: {:?}", began.elapsed());

    stalled.pause(false);
    stalled.ok("process/terminate", json!({"processId": start.id()})).await;
    let run = stalled.finish(&start.id()).await;
    run.assert_whole();
    let text = run.text().replace('\r', "");
    assert!(text.len() > 100_000 && text.lines().rev().skip(1).all(|line| line == "0123456789"));
    assert_eq!(
        run.closed["outputBytes"][stream(tty)].as_u64().unwrap(),
        (run.stdout.len() + run.pty.len()) as u64
    );
}
