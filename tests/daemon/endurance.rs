//! What holds for a minute must hold for a year: many cuts, many processes, much output.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use test_case::test_case;

use super::support::client::{upgrade, write_params};
use super::support::machine::zombies_of;
use super::support::proxy::{Cut, CuttingProxy};
use super::support::{Client, Daemon, LIMIT, Random, Start, eventually, unbase64};

/// A client that writes without end and loses its connection all the time.
struct Persistent {
    random: Random,
    session: Option<String>,
    start: Start,
    /// What has been sent at least once and is not known to be accepted, by number, oldest first.
    unsure: BTreeMap<u64, Vec<u8>>,
    next_write: u64,
    written: Vec<u8>,
    /// Chunks by their numbers, pushed or read.
    chunks: BTreeMap<u64, Vec<u8>>,
    cuts: u32,
    /// Connections on which something was written or read before they were cut.
    useful: u32,
}

impl Persistent {
    /// Takes chunks up; one that is known already must be the same.
    fn keep(&mut self, seq: u64, bytes: Vec<u8>) {
        let known = self.chunks.entry(seq).or_insert_with(|| bytes.clone());
        assert!(*known == bytes, "chunk {seq} has changed");
    }

    fn keep_pushed(&mut self, client: &Client) {
        let id = self.start.id();
        for (seq, bytes) in client.take_chunks(&id) {
            self.keep(seq, bytes);
        }
    }

    /// The last number before the first hole.
    fn whole_until(&self) -> u64 {
        (1..).take_while(|seq| self.chunks.contains_key(seq)).last().unwrap_or(0)
    }

    fn next_payload(&mut self) -> (u64, Vec<u8>) {
        let number = self.next_write;
        self.next_write += 1;
        let size = self.random.within(1..3_000);
        let payload: Vec<u8> = (0..size).map(|_| self.random.next().to_le_bytes()[0]).collect();
        self.written.extend(&payload);
        self.unsure.insert(number, payload.clone());
        (number, payload)
    }

    /// Connects and takes the session up. `None` when the connection was cut before.
    async fn attach(&mut self, url: &str) -> Option<Client> {
        let client = Client::try_connect(url, upgrade(url)).await.ok()?;
        let params = json!({"clientName": "persistent", "resumeSessionId": self.session});
        // An error is that the server has not seen the last cut yet.
        while let Err(error) = client.try_handshake(params.clone()).await? {
            assert_eq!(error.code, -32010, "{error:?}");
        }
        Some(client)
    }

    /// Fills the holes of an outage. `None` when the connection was cut.
    async fn catch_up(&mut self, client: &Client) -> Option<()> {
        loop {
            let after = self.whole_until();
            let params =
                json!({"processId": self.start.id(), "afterSeq": after, "maxBytes": 4_096, "waitMs": 0});
            let id = client.send("process/read", params).await;
            let page = client.answer_or_end(id).await?.expect("a page");
            assert_eq!(page["lost"], Value::Null);
            let chunks = page["chunks"].as_array().expect("chunks");
            for chunk in chunks {
                let bytes = unbase64(chunk["chunk"].as_str().expect("a chunk"));
                self.keep(chunk["seq"].as_u64().expect("a seq"), bytes);
            }
            if chunks.is_empty() {
                return Some(());
            }
        }
    }

    /// Sends what is unsure again, then more, a few at a time. `None` when the connection was cut.
    async fn write_on(&mut self, client: &Client, limit: u32) -> Option<()> {
        let id = self.start.id();
        for _ in 0..limit {
            while self.unsure.len() < 4 {
                self.next_payload();
            }
            let mut requests = Vec::new();
            for (number, payload) in &self.unsure {
                let params = write_params(&id, &format!("w{number}"), payload);
                requests.push((*number, client.send("process/write", params).await));
            }
            for (number, request) in requests {
                let answer = client.answer_or_end(request).await?.expect("an accepted write");
                assert_eq!(answer["status"], "accepted");
                self.unsure.remove(&number);
            }
            self.keep_pushed(client);
        }
        Some(())
    }
}

#[test_case(false, 700; "pipe")]
#[test_case(true, 300; "tty")]
#[tokio::test]
async fn a_thousand_cuts_lose_nothing(tty: bool, cuts: u32) {
    let given = std::env::var("EXEC_SERVER_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed: u64 = given.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
    // Shown when the test fails.
    println!("EXEC_SERVER_TEST_SEED={seed}");
    let daemon = Daemon::start().await;
    let proxy = CuttingProxy::start(daemon.address()).await;
    let script = "stty raw -echo 2>/dev/null; echo up; exec cat";
    let start = Start::sh(script).tty(tty).stdin();
    let mut run = Persistent {
        random: Random::new(seed),
        session: None,
        start: start.clone(),
        unsure: BTreeMap::new(),
        next_write: 0,
        written: b"up\n".to_vec(),
        chunks: BTreeMap::new(),
        cuts: 0,
        useful: 0,
    };
    let client = run.attach(proxy.url()).await.expect("not cut yet");
    run.session = Some(client.session_id());
    client.start(&start).await;
    client.wait_output(&start.id(), "up\n").await;
    run.keep_pushed(&client);
    client.abort().await;

    while run.cuts < cuts {
        // Sometimes within the handshake, mostly within a frame of the one direction or the other.
        // One chunk of the outage may be 64 KiB, and must get through at times.
        let most = if run.random.next().is_multiple_of(3) { 20_000 } else { 300_000 };
        let cut = Cut { to_server: run.random.within(150..30_000), to_client: run.random.within(150..most) };
        proxy.cut(cut);
        if let Some(client) = run.attach(proxy.url()).await {
            let cut = match run.catch_up(&client).await {
                Some(()) => {
                    run.useful += 1;
                    run.write_on(&client, 1_000).await
                }
                None => None,
            };
            assert_eq!(cut, None, "the proxy did not cut");
            run.keep_pushed(&client);
        }
        run.cuts += 1;
    }
    assert!(run.useful > cuts / 8, "only {} connections were of use", run.useful);

    proxy.cut(Cut::NEVER);
    let client = Client::resume_when_free(proxy.url(), run.session.as_deref().expect("a session")).await;
    run.catch_up(&client).await.expect("not cut");
    run.write_on(&client, 1).await.expect("not cut");
    let expected = run.written.len();
    // Pushed from here on; what was pushed before the resume came by reading.
    let deadline = Instant::now() + LIMIT;
    while run.chunks.values().map(Vec::len).sum::<usize>() < expected {
        run.catch_up(&client).await.expect("not cut");
        run.keep_pushed(&client);
        assert!(Instant::now() < deadline, "the end is missing");
    }
    assert_eq!(run.whole_until(), run.chunks.len() as u64, "numbers without a hole");
    let received = run.chunks.values().flatten().copied().collect::<Vec<u8>>();
    assert_eq!(received.len(), expected);
    let first_difference = received.iter().zip(&run.written).position(|(one, other)| one != other);
    assert_eq!(first_difference, None, "of {expected} bytes");
    assert!(expected > 500_000, "too little was written to prove anything: {expected}");
    client.ok("process/terminate", json!({"processId": start.id()})).await;
    client.wait_event(&start.id(), "process/closed").await;
}

#[tokio::test]
async fn ten_thousand_processes_leave_nothing_behind() {
    const COUNT: u64 = 10_000;
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let one = async |number: u64| {
        let start = match number % 10 {
            0 => Start::argv(["/bin/true"]).tty(true),
            1 | 2 => Start::argv(["/bin/echo", "some output"]),
            3 => Start::argv(["/bin/false"]).stdin(),
            4 => Start::argv(["/bin/echo", "on a terminal"]).tty(true),
            _ => Start::argv(["/bin/true"]),
        };
        client.start(&start).await;
        client.wait_event(&start.id(), "process/closed").await;
        let run = client.so_far(&start.id());
        run.assert_whole();
        assert_eq!(run.exit(), i64::from(number % 10 == 3));
        assert_eq!(
            run.text().len(),
            [0, 12, 12, 0, 15].get(usize::try_from(number % 10).unwrap()).copied().unwrap_or(0)
        );
        client.forget(&start.id());
    };
    // What a server needs once is no growth.
    stream::iter(0..64).map(one).buffer_unordered(32).collect::<Vec<()>>().await;
    let (descriptors, resident) = (daemon.descriptors(), daemon.resident());
    stream::iter(0..COUNT).map(one).buffer_unordered(32).collect::<Vec<()>>().await;

    eventually("every child is reaped", Duration::from_secs(6), || zombies_of(daemon.pid()).is_empty()).await;
    daemon.descriptors_back(descriptors).await;
    // Records of closed processes are kept for a while, so some growth is right.
    let per_process = daemon.resident().saturating_sub(resident) / COUNT;
    assert!(per_process < 6 * 1024, "{per_process} bytes a process");
    assert!(client.round_trip().await < Duration::from_millis(1_500));
}

#[tokio::test]
async fn sessions_that_end_leave_nothing_behind() {
    let daemon = Daemon::setup().set("session.detached_ms", "0").start().await;
    let visit = async |number: u64| {
        let client = daemon.client().await;
        let start = Start::sh("sleep 300 & echo up; wait").tty(number.is_multiple_of(2));
        client.start(&start).await;
        client.wait_output(&start.id(), "up").await;
        if number.is_multiple_of(3) {
            client.close().await;
        } else {
            client.abort().await;
        }
    };
    stream::iter(0..8).map(visit).buffer_unordered(4).collect::<Vec<()>>().await;
    let looker = daemon.client().await;
    let alone = async || {
        let deadline = Instant::now() + LIMIT;
        loop {
            let list = looker.ok("session/list", json!({})).await;
            if list["sessions"].as_array().expect("sessions").len() == 1 {
                return;
            }
            assert!(Instant::now() < deadline, "sessions stay: {list}");
        }
    };
    alone().await;
    let (descriptors, resident) = (daemon.descriptors(), daemon.resident());
    stream::iter(0..300).map(visit).buffer_unordered(4).collect::<Vec<()>>().await;
    alone().await;
    daemon.descriptors_back(descriptors).await;
    eventually("every child is reaped", LIMIT, || zombies_of(daemon.pid()).is_empty()).await;
    let grown = daemon.resident().saturating_sub(resident);
    assert!(grown < 24 * 1024 * 1024, "grown by {grown}");
}
