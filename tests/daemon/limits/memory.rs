//! The memory of the server's own buffers, and its limits of everything else: reached, named, and left again.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use test_case::test_case;

use crate::support::{Client, Daemon, LIMIT, Start, eventually, unbase64, uri, work_dir};

const MIB: u64 = 1 << 20;
const BUDGET: u64 = 8 * MIB;

fn budgeted() -> crate::support::daemon::Setup {
    Daemon::setup().set("limits.memory_bytes", &BUDGET.to_string())
}

/// A file of so many bytes that takes no space.
fn file(directory: &std::path::Path, bytes: u64) -> Value {
    let path = directory.join(bytes.to_string());
    std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
    json!({"path": uri(&path)})
}

fn length(answer: &Value) -> usize {
    answer["dataBase64"].as_str().unwrap().len()
}

/// A process of this client that has written so much and is over; the params of a call that reads all of it.
async fn written(client: &Client, bytes: u64) -> Value {
    let start = Start::sh(&format!("head -c {bytes} /dev/zero"));
    client.run(&start).await;
    client.forget(&start.id());
    json!({"processId": start.id(), "afterSeq": 0, "maxBytes": bytes})
}

fn output(answer: &Value) -> usize {
    answer["chunks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|chunk| unbase64(chunk["chunk"].as_str().unwrap()).len())
        .sum()
}

/// Clients that read nothing any more each ask for the same twice.
async fn ask_twice(clients: &[Client], method: &str, params: &Value) -> Vec<[i64; 2]> {
    join_all(clients.iter().map(async |client| {
        client.pause(true);
        [client.send(method, params.clone()).await, client.send(method, params.clone()).await]
    }))
    .await
}

/// Forty answers of 21 MiB, to clients that do not read, would be most of a gigabyte.
#[tokio::test]
async fn many_large_answers_at_once_take_turns() {
    const CONNECTIONS: usize = 20;
    const OUTPUT: u64 = 12 * MIB;
    let daemon = budgeted().start().await;
    let holder = daemon.client().await;
    let params = written(&holder, OUTPUT).await;
    let session = holder.session_id();
    let mut clients = join_all((0..CONNECTIONS).map(|_| Client::observe(daemon.url(), &session))).await;
    let before = daemon.resident();
    let mut asked = ask_twice(&clients, "process/read", &params).await;
    // What may be held, one reservation for a page and its answer, and what the transport has of one.
    let most = before + BUDGET + OUTPUT * 7 / 3 + 48 * MIB;
    let until = Instant::now() + Duration::from_secs(2);
    let mut highest = 0;
    while Instant::now() < until {
        highest = highest.max(daemon.resident());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(highest > before + OUTPUT, "at least one was read: {highest}");
    assert!(highest < most, "{} MiB of at most {}", highest / MIB, most / MIB);
    // Nobody else is held up, and who reads gets the answers in the end.
    assert!(daemon.client().await.round_trip().await < Duration::from_secs(1));
    for client in clients.drain(1..) {
        client.abort().await;
    }
    clients[0].pause(false);
    for id in asked.swap_remove(0) {
        assert_eq!(output(&clients[0].answer(id).await.unwrap()) as u64, OUTPUT);
    }
}

/// Forty files of 16 MiB, to clients that do not read: each in parts, of which few are in memory.
#[test_case(budgeted(); "with a limit of memory")]
#[test_case(Daemon::setup(); "without")]
#[tokio::test]
async fn large_files_are_never_in_memory(setup: crate::support::daemon::Setup) {
    const CONNECTIONS: usize = 20;
    let daemon = setup.start().await;
    let place = work_dir();
    let params = file(place.path(), 16 * MIB);
    let clients = join_all((0..CONNECTIONS).map(|_| daemon.client())).await;
    let before = daemon.resident();
    let asked = ask_twice(&clients, "fs/readFile", &params).await;
    assert!(daemon.client().await.round_trip().await < Duration::from_secs(1));
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until {
        let more = daemon.resident().saturating_sub(before);
        assert!(more < CONNECTIONS as u64 * 4 * MIB, "{} MiB", more / MIB);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    clients.iter().for_each(|client| client.pause(false));
    for (client, asked) in clients.iter().zip(asked) {
        for id in asked {
            assert_eq!(length(&client.answer(id).await.unwrap()), (16_usize << 20).div_ceil(3) * 4);
        }
    }
}

#[tokio::test]
async fn a_file_that_does_not_say_its_size_is_read_all_the_same() {
    let daemon = budgeted().start().await;
    let client = daemon.client().await;
    assert!(length(&client.ok("fs/readFile", json!({"path": "file:///proc/self/status"})).await) > 100);
    assert!(length(&client.ok("fs/readFile", json!({"path": "file:///proc/kallsyms"})).await) > 100_000);
    let error = client.error("fs/readFile", json!({"path": "file:///nowhere"})).await;
    assert_eq!(error.code, -32004);
}

/// A page of output takes what it carries, however much there was before it.
#[tokio::test]
async fn news_need_no_memory_for_what_is_old() {
    const OLD: u64 = 20_000_000;
    let daemon = Daemon::setup().set("limits.memory_bytes", &(64 * MIB).to_string()).start().await;
    let client = daemon.client().await;
    let start = Start::sh("head -c 20000000 /dev/zero; read line; echo news; sleep 301").stdin();
    client.start(&start).await;
    let (id, began) = (start.id(), Instant::now());
    while client.ok("process/list", json!({})).await["processes"][0]["outputBytes"] != OLD {
        assert!(began.elapsed() < LIMIT, "it has not written");
    }
    // Somebody who does not read holds so much that all of the old output would not fit beside it.
    let slow = daemon.client().await;
    let page = written(&slow, 24 * MIB).await;
    let before = daemon.resident();
    slow.pause(true);
    let asked = slow.send("process/read", page).await;
    eventually("it holds its answer", LIMIT, || daemon.resident() > before + 24 * MIB).await;
    let end = json!({"processId": id, "afterSeq": u32::MAX});
    let last = client.ok("process/read", end).await["nextSeq"].as_u64().unwrap() - 1;
    let params = json!({"processId": id, "afterSeq": last, "waitMs": 60_000});
    let news = client.send("process/read", params).await;
    client.write(&id, "w", b"go\n").await;
    let news = client.answer(news).await.unwrap();
    assert_eq!(news["chunks"][0]["chunk"], crate::support::base64(b"news\n"));
    slow.pause(false);
    slow.answer(asked).await.unwrap();
}

/// A client that does not read its answer of 32 MiB.
async fn filled(daemon: &Daemon, client: &Client) -> (Client, i64) {
    let slow = daemon.client().await;
    let page = written(&slow, 24 * MIB).await;
    slow.pause(true);
    let asked = slow.send("process/read", page).await;
    let before = Instant::now();
    loop {
        let probe = Start::sh("true");
        match client.call("process/start", probe.params()).await {
            Ok(_) => drop(client.finish(&probe.id()).await),
            Err(error) => {
                assert_eq!(error.code, -32603, "{error:?}");
                assert!(error.message.contains("limits.memory_bytes"), "{error:?}");
                assert!(error.message.contains(&BUDGET.to_string()), "{error:?}");
                return (slow, asked);
            }
        }
        assert!(before.elapsed() < LIMIT, "the memory was never used up");
    }
}

#[tokio::test]
async fn starts_are_refused_by_name_until_there_is_memory() {
    let daemon = budgeted().start().await;
    let client = daemon.client().await;
    let running = Start::sh("read line; head -c 3000000 /dev/zero; echo done").stdin();
    client.start(&running).await;
    let (slow, asked) = filled(&daemon, &client).await;
    // What runs goes on, and loses nothing: it goes to disk.
    client.write(&running.id(), "w", b"go\n").await;
    let run = client.finish(&running.id()).await;
    assert_eq!(run.stdout.len(), 3_000_005);
    assert_eq!(run.exit(), 0);
    slow.pause(false);
    slow.answer(asked).await.unwrap();
    let began = Instant::now();
    while let Err(error) = client.call("process/start", Start::sh("true").params()).await {
        assert!(began.elapsed() < LIMIT, "{error:?}");
    }
}

#[tokio::test]
async fn who_does_not_read_holds_up_nobodys_small_answers() {
    let daemon = budgeted().start().await;
    let client = daemon.client().await;
    let run = client.run(&Start::sh("head -c 60000 /dev/zero").named("printed")).await;
    assert_eq!(run.stdout.len(), 60_000);
    let (slow, asked) = filled(&daemon, &client).await;
    let place = work_dir();
    let read = client.ok("fs/readFile", file(place.path(), 60_000)).await;
    assert_eq!(length(&read), 80_000);
    let read = client.ok("process/read", json!({"processId": "printed", "afterSeq": 0})).await;
    assert_eq!(read["exited"], true);
    slow.pause(false);
    assert_eq!(output(&slow.answer(asked).await.unwrap()), 24 << 20);
}

/// Many processes that nobody reads the output of.
#[tokio::test]
async fn output_leaves_memory_when_all_is_used_up() {
    let daemon = budgeted().start().await;
    let client = daemon.client().await;
    let session = client.session_id();
    let before = daemon.resident();
    let starts: Vec<Start> =
        (0..40).map(|_| Start::sh("sleep 1; head -c 1000000 /dev/zero; sleep 301")).collect();
    for start in &starts {
        client.start(start).await;
    }
    client.abort().await;
    let client = Client::resume_when_free(daemon.url(), &session).await;
    let written = |list: &Value| {
        let rows = list["processes"].as_array().unwrap();
        rows.iter().filter(|row| row["outputBytes"] == 1_000_000).count()
    };
    let began = Instant::now();
    while written(&client.ok("process/list", json!({})).await) < starts.len() {
        assert!(began.elapsed() < LIMIT, "not all have written");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(daemon.resident() < before + BUDGET + 16 * MIB, "{} MiB", daemon.resident() / MIB);
    for start in &starts[..3] {
        let read = client.ok("process/read", json!({"processId": start.id(), "maxBytes": 2_000_000})).await;
        assert_eq!(read["lost"], Value::Null);
    }
}

#[tokio::test]
async fn too_little_memory_is_no_setting() {
    let (code, log) = Daemon::setup().set("limits.memory_bytes", "1000").refused().await;
    assert_eq!(code, Some(1));
    assert!(log.contains("limits.memory_bytes") && log.contains("1048576"), "{log}");
}

/// Input that nobody reads is counted too.
#[tokio::test]
async fn unread_input_is_a_part_of_it() {
    let daemon = budgeted().start().await;
    let client = daemon.client().await;
    let starts: Vec<Start> = (0..4).map(|_| Start::sh("sleep 301").stdin()).collect();
    for start in &starts {
        client.start(start).await;
    }
    let input = vec![b'x'; 3 << 20];
    for start in &starts {
        let params = crate::support::client::write_params(&start.id(), "w", &input);
        // The first one is always taken.
        assert_eq!(client.ok("process/write", params).await["status"], "accepted");
    }
    let error = client.error("process/start", Start::sh("true").params()).await;
    assert!(error.message.contains("limits.memory_bytes"), "{error:?}");
    for start in &starts {
        client.ok("process/terminate", json!({"processId": start.id(), "graceMs": 0})).await;
        client.finish(&start.id()).await;
    }
    client.run(&Start::sh("true")).await;
    eventually("it is given back", LIMIT, || daemon.resident() < 200 * MIB).await;
}
