//! Sessions: what outlives a connection, who may hold one, who may look on.

use std::time::{Duration, Instant};

use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use test_case::test_case;

use super::support::client::write_params;
use super::support::{Client, Daemon, End, LIMIT, Marker, Run, Start, eventually, unbase64, work_dir};

/// The chunks behind a number, as seq and bytes.
async fn chunks(client: &Client, process: &str, after: u64) -> Vec<(u64, Vec<u8>)> {
    let page = client.ok("process/read", json!({"processId": process, "afterSeq": after})).await;
    assert_eq!(page["lost"], Value::Null);
    let bytes = |chunk: &Value| unbase64(chunk["chunk"].as_str().unwrap());
    page["chunks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|chunk| (chunk["seq"].as_u64().unwrap(), bytes(chunk)))
        .collect()
}

#[test_case(false, true; "pipe, cut")]
#[test_case(true, true; "tty, cut")]
#[test_case(false, false; "pipe, closed")]
#[tokio::test]
async fn output_of_an_outage_is_there_once(tty: bool, cut: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let directory = work_dir();
    // Ticks by command of the test, so that it knows what falls into the outage.
    let script = "for i in 1 2 3 4 5 6; do echo tick$i; while [ ! -e $i ]; do sleep 0.02; done; done";
    let start = Start::sh(script).tty(tty).cwd(directory.path());
    client.start(&start).await;
    client.wait_output(&start.id(), "tick1").await;
    let allow = |number: u32| std::fs::write(directory.path().join(number.to_string()), "").unwrap();
    let session = client.session_id();
    let before: Run = client.so_far(&start.id());
    if cut {
        client.abort().await;
    } else {
        client.close().await;
    }
    allow(1);
    allow(2);
    let client = Client::resume_when_free(daemon.url(), &session).await;
    assert_eq!(client.session_id(), session);
    let deadline = Instant::now() + LIMIT;
    let text = |chunks: Vec<(u64, Vec<u8>)>| {
        let bytes = chunks.into_iter().flat_map(|(_, bytes)| bytes).collect();
        String::from_utf8(bytes).unwrap().replace('\r', "")
    };
    while !text(chunks(&client, &start.id(), 0).await).contains("tick3") {
        assert!(Instant::now() < deadline);
    }
    (3..=6).for_each(allow);
    let run = client.finish(&start.id()).await;
    let all = chunks(&client, &start.id(), 0).await;
    let count = all.len() as u64;
    assert_eq!(text(all), "tick1\ntick2\ntick3\ntick4\ntick5\ntick6\n");
    // What was pushed continues the numbers, without a repeat of what was pushed before.
    assert!(run.seqs.windows(2).all(|pair| pair[1] == pair[0] + 1));
    assert!(run.seqs[0] > *before.seqs.last().unwrap());
    assert_eq!(*run.seqs.last().unwrap(), count + 2);
}

#[tokio::test]
async fn a_process_that_closed_during_the_outage_is_still_answered() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let marker = Marker::new();
    let start = Start::sh("echo before; sleep 0.2; echo after; exit 9").marked(&marker);
    client.start(&start).await;
    client.wait_output(&start.id(), "before").await;
    let session = client.session_id();
    client.abort().await;
    eventually("it has ended", LIMIT, || marker.pids().is_empty()).await;
    let client = Client::resume_when_free(daemon.url(), &session).await;
    let params = json!({"processId": start.id(), "afterSeq": 1, "waitMs": 30_000});
    let deadline = Instant::now() + LIMIT;
    let page = loop {
        let page = client.ok("process/read", params.clone()).await;
        if page["closed"] == true {
            break page;
        }
        assert!(Instant::now() < deadline);
    };
    assert_eq!((&page["exitCode"], &page["nextSeq"]), (&json!(9), &json!(5)));
    assert_eq!(page["chunks"][0]["seq"], 2);
}

#[tokio::test]
async fn a_session_is_held_once() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let session = client.session_id();
    let error = Client::resume(daemon.url(), &session).await.unwrap_err();
    assert!(error.code == -32010 && error.message.contains(&session), "{error:?}");
    client.round_trip().await;
    for unknown in ["", "unknown", &session.to_uppercase(), &session.replace('-', "")] {
        assert_eq!(Client::resume(daemon.url(), unknown).await.unwrap_err().code, -32600, "{unknown:?}");
    }
    // A refused attempt may be followed by a good one on the same connection.
    let second = Client::connect(daemon.url()).await;
    let resume = json!({"clientName": "x", "resumeSessionId": session});
    assert_eq!(second.handshake(resume.clone()).await.unwrap_err().code, -32010);
    client.close().await;
    let deadline = Instant::now() + LIMIT;
    while second.handshake(resume.clone()).await.is_err() {
        assert!(Instant::now() < deadline);
    }
    assert_eq!(second.session_id(), session);
}

#[tokio::test]
async fn sessions_do_not_see_each_other() {
    let daemon = Daemon::start().await;
    let (one, two) = (daemon.client().await, daemon.client().await);
    let (mine, yours) = (Start::sh("echo mine; read x; echo $x").stdin(), Start::sh("echo yours"));
    let yours = yours.named(&mine.id());
    one.start(&mine).await;
    one.wait_output(&mine.id(), "mine").await;
    assert_eq!(two.error("process/read", json!({"processId": mine.id()})).await.code, -32600);
    assert_eq!(two.write(&mine.id(), "w", b"intruder\n").await, "unknownProcess");
    assert_eq!(two.ok("process/terminate", json!({"processId": mine.id()})).await, json!({"running": false}));
    assert_eq!(two.run(&yours).await.text(), "yours\n");
    one.write(&mine.id(), "w", b"owner\n").await;
    assert_eq!(one.finish(&mine.id()).await.text(), "mine\nowner\n");
}

#[tokio::test]
async fn a_silent_holder_is_given_up_when_somebody_asks() {
    let daemon = Daemon::start().await;
    let (alive, dead) = (daemon.client().await, daemon.client().await);
    dead.pause(true);
    assert_eq!(Client::resume(daemon.url(), &dead.session_id()).await.unwrap_err().code, -32010);
    assert_eq!(Client::resume(daemon.url(), &alive.session_id()).await.unwrap_err().code, -32010);
    // 10 s for the silent one; three times that for a slow machine.
    Client::resume_when_free(daemon.url(), &dead.session_id()).await.round_trip().await;
    assert!(alive.pings() > 0, "the holder was asked");
    alive.round_trip().await;
    assert_eq!(Client::resume(daemon.url(), &alive.session_id()).await.unwrap_err().code, -32010);
}

#[tokio::test]
async fn a_peer_that_answers_no_ping_is_cut_off() {
    let daemon = Daemon::setup()
        .set("session.ping_interval_ms", "100")
        .set("session.ping_timeout_ms", "900")
        .start()
        .await;
    let (alive, dead) = (daemon.client().await, daemon.client().await);
    let uninitialized = Client::connect(daemon.url()).await;
    let start = Start::argv(["/bin/cat"]).stdin();
    dead.start(&start).await;
    dead.pause(true);
    let session = dead.session_id();
    let detached = || async {
        let list = alive.ok("session/list", json!({})).await;
        let sessions = list["sessions"].as_array().unwrap().clone();
        sessions.iter().any(|entry| entry["sessionId"] == session && entry["attached"] == false)
    };
    let deadline = Instant::now() + LIMIT;
    while !detached().await {
        assert!(Instant::now() < deadline, "still attached");
    }
    let again = Client::resume(daemon.url(), &session).await.unwrap();
    assert_eq!(again.write(&start.id(), "w", b"x").await, "accepted");
    eventually("more pings", LIMIT, || alive.pings() > 15 && uninitialized.pings() > 15).await;
    alive.round_trip().await;
    assert_eq!((alive.ended(), uninitialized.ended()), (None, None));
}

#[tokio::test]
async fn traffic_does_not_hide_a_peer_that_reads_nothing() {
    let daemon = Daemon::setup()
        .set("session.ping_interval_ms", "100")
        .set("session.ping_timeout_ms", "900")
        .start()
        .await;
    let client = daemon.client().await;
    let start = Start::argv(["/usr/bin/yes"]);
    client.start(&start).await;
    client.wait_output(&start.id(), "y").await;
    client.pause(true);
    let session = client.session_id();
    Client::resume_when_free(daemon.url(), &session).await.round_trip().await;
}

#[test_case(false; "pipe")]
#[test_case(true; "tty")]
#[tokio::test]
async fn a_write_is_repeated_safely_on_a_later_connection(tty: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let start = Start::sh("stty -echo 2>/dev/null; echo up; cat").tty(tty).stdin();
    client.start(&start).await;
    client.wait_output(&start.id(), "up").await;
    let session = client.session_id();
    assert_eq!(client.write(&start.id(), "a", b"a\n").await, "accepted");
    // Whether this one arrives is not known.
    client.send("process/write", write_params(&start.id(), "b", b"b\n")).await;
    client.abort().await;
    let client = Client::resume_when_free(daemon.url(), &session).await;
    for (id, bytes) in [("a", b"x\n"), ("b", b"b\n"), ("c", b"c\n"), ("b", b"y\n")] {
        assert_eq!(client.write(&start.id(), id, bytes).await, "accepted");
    }
    let deadline = Instant::now() + LIMIT;
    loop {
        let all = chunks(&client, &start.id(), 0).await.into_iter().flat_map(|(_, bytes)| bytes).collect();
        let text = String::from_utf8(all).unwrap().replace('\r', "");
        if text.contains('c') {
            assert_eq!(text, "up\na\nb\nc\n");
            break;
        }
        assert!(Instant::now() < deadline);
    }
}

#[tokio::test]
async fn write_ids_are_remembered_for_long_but_not_for_ever() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let start = Start::sh("cat | wc -c").stdin();
    client.start(&start).await;
    for number in 0..4_096 {
        client.send("process/write", write_params(&start.id(), &format!("{number}"), b"x")).await;
    }
    client.write(&start.id(), "0", b"repeated").await;
    client.write(&start.id(), "4095", b"repeated").await;
    client.write(&start.id(), "one more", b"x").await;
    // Now the oldest is forgotten, and counts as new.
    client.write(&start.id(), "0", b"again").await;
    client.ok("process/closeStdin", json!({"processId": start.id()})).await;
    assert_eq!(client.finish(&start.id()).await.text().trim(), (4_096 + 1 + 5).to_string());
}

#[test_case(false; "pipe")]
#[test_case(true; "tty")]
#[tokio::test]
async fn a_start_is_repeated_safely_on_a_later_connection(tty: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let directory = work_dir();
    let start = Start::sh("echo run >>runs; sleep 300").tty(tty).cwd(directory.path());
    let first = client.start(&start).await;
    assert!(first.get("alreadyStarted").is_none());
    assert_eq!(client.error("process/start", start.params()).await.code, -32600, "the same connection");
    let session = client.session_id();
    client.abort().await;
    let client = Client::resume_when_free(daemon.url(), &session).await;

    for other in [
        start.clone().with("tty", json!(!tty)),
        start.clone().with("argv", json!(["/bin/sh", "-c", "echo other"])),
        start.clone().env("MORE", "1"),
        start.clone().with("arg0", json!("sh")),
        start.clone().with("cwd", json!("file:///")),
    ] {
        assert_eq!(client.error("process/start", other.params()).await.code, -32600);
    }
    // Absent and default are equal; metadata does not count.
    for same in [
        start.clone(),
        start.clone().with("pipeStdin", json!(false)).with("arg0", Value::Null),
        start.clone().with("envPolicy", Value::Null).with("sandbox", Value::Null).with("size", Value::Null),
        start.clone().with("metadata", json!({"toolCallId": "another"})),
    ] {
        let mut expected = first.clone();
        expected["alreadyStarted"] = json!(true);
        assert_eq!(client.start(&same).await, expected);
    }
    eventually("it has run", LIMIT, || directory.path().join("runs").exists()).await;
    client.ok("process/terminate", json!({"processId": start.id()})).await;
    client.finish(&start.id()).await;
    assert_eq!(client.start(&start).await["alreadyStarted"], true, "also after its end");
    assert_eq!(std::fs::read_to_string(directory.path().join("runs")).unwrap(), "run\n");
}

#[tokio::test]
async fn a_start_cut_off_from_its_answer_runs_exactly_once() {
    let daemon = Daemon::start().await;
    let directory = work_dir();
    let mut client = daemon.client().await;
    for number in 0..30 {
        let script = format!("echo run >>runs{number}");
        let start = Start::sh(&script).tty(number % 3 == 0).cwd(directory.path());
        client.send("process/start", start.params()).await;
        let session = client.session_id();
        client.abort().await;
        client = Client::resume_when_free(daemon.url(), &session).await;
        client.start(&start).await;
        let params = json!({"processId": start.id(), "afterSeq": 0, "waitMs": 30_000});
        let deadline = Instant::now() + LIMIT;
        while client.ok("process/read", params.clone()).await["closed"] != true {
            assert!(Instant::now() < deadline);
        }
        let runs = std::fs::read_to_string(directory.path().join(format!("runs{number}"))).unwrap();
        assert_eq!(runs, "run\n", "round {number}");
    }
}

#[tokio::test]
async fn sessions_are_listed_for_everybody() {
    let daemon = Daemon::start().await;
    let client = Client::connect(daemon.url()).await;
    client.handshake(json!({"clientName": "holder"})).await.unwrap();
    client.start(&Start::argv(["/bin/sleep", "300"])).await;
    let session = client.session_id();
    let stranger = Client::connect(daemon.url()).await;
    stranger.ok("session/list", json!({})).await;
    let entry = async |client: &Client| {
        let list = client.ok("session/list", json!({})).await;
        let all = list["sessions"].as_array().unwrap().clone();
        all.into_iter().find(|entry| entry["sessionId"] == session).expect("the session is listed")
    };
    let first = entry(&stranger).await;
    assert_eq!((&first["clientName"], &first["attached"]), (&json!("holder"), &json!(true)));
    assert_eq!((&first["observers"], &first["processes"]), (&json!(0), &json!(1)));
    assert!(first["createdAtMs"].is_u64() && first["detachedAtMs"].is_null());
    let observers =
        [Client::observe(daemon.url(), &session).await, Client::observe(daemon.url(), &session).await];
    assert_eq!(entry(&observers[0]).await["observers"], 2);
    client.abort().await;
    let deadline = Instant::now() + LIMIT;
    let detached = loop {
        let entry = entry(&stranger).await;
        if entry["attached"] == false {
            break entry;
        }
        assert!(Instant::now() < deadline);
    };
    assert!(detached["detachedAtMs"].as_u64() >= detached["createdAtMs"].as_u64());
    assert_eq!(detached["observers"], 2);
}

#[tokio::test]
async fn observers_look_on() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let start =
        Start::bash("trap 'echo got' USR1; echo up; while read -t 0.05 x || [ $? -gt 128 ]; do :; done")
            .stdin();
    client.start(&start).await;
    client.wait_output(&start.id(), "up").await;
    let observers = [
        Client::observe(daemon.url(), &client.session_id()).await,
        Client::observe(daemon.url(), &client.session_id()).await,
    ];
    for observer in &observers {
        assert_eq!(observer.ok("process/list", json!({})).await["processes"][0]["processId"], start.id());
        assert_eq!(chunks(observer, &start.id(), 0).await[0].1, b"up\n");
        observer.ok("session/list", json!({})).await;
        observer.ok("environment/status", json!({})).await;
        for (method, params) in [
            ("process/start", Start::argv(["/bin/true"]).params()),
            ("process/write", write_params(&start.id(), "w", b"x")),
            ("process/closeStdin", json!({"processId": start.id()})),
            ("process/resize", json!({"processId": start.id(), "rows": 1, "cols": 1})),
            ("fs/readFile", json!({"path": "file:///etc/passwd", "sandbox": null})),
        ] {
            let error = observer.error(method, params).await;
            assert!(error.code == -32600 && error.message.contains("observes"), "{method}: {error:?}");
        }
    }
    let signal = json!({"processId": start.id(), "signal": "user1"});
    assert_eq!(observers[0].ok("process/signal", signal).await, json!({"delivered": true}));
    for everybody in [&client, &observers[0], &observers[1]] {
        everybody.wait_output(&start.id(), "got").await;
    }
    let terminate = json!({"processId": start.id(), "graceMs": 0});
    assert_eq!(observers[1].ok("process/terminate", terminate).await, json!({"running": true}));
    let holder = client.finish(&start.id()).await;
    for observer in observers {
        let run = observer.finish(&start.id()).await;
        // From its beginning on, and the same numbers.
        assert!(holder.seqs.ends_with(&run.seqs) && run.seqs.len() < holder.seqs.len());
    }
    let unknown = json!({"clientName": "o", "observeSessionId": "unknown"});
    let error = Client::connect(daemon.url()).await.handshake(unknown).await.unwrap_err();
    assert_eq!(error.code, -32600);
    let both = json!({"clientName": "o", "observeSessionId": client.session_id(), "resumeSessionId": client.session_id()});
    assert!(Client::connect(daemon.url()).await.handshake(both).await.is_err());
}

#[tokio::test]
async fn an_observer_does_not_keep_a_session_alive_or_held() {
    let daemon = Daemon::setup().set("session.detached_ms", "500").start().await;
    let client = daemon.client().await;
    let session = client.session_id();
    let marker = Marker::new();
    client.start(&Start::argv(["/bin/sleep", "300"]).marked(&marker)).await;
    let observer = Client::observe(daemon.url(), &session).await;
    client.abort().await;
    let client = Client::resume_when_free(daemon.url(), &session).await;
    client.abort().await;
    eventually("the session ends", LIMIT, || marker.pids().is_empty()).await;
    let deadline = Instant::now() + LIMIT;
    while Client::resume(daemon.url(), &session).await.map_err(|error| error.code).err() != Some(-32600) {
        assert!(Instant::now() < deadline);
    }
    drop(observer);
}

#[tokio::test]
async fn a_slow_observer_is_dropped_and_nobody_waits_for_it() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let (slow, quick) = (
        Client::observe(daemon.url(), &client.session_id()).await,
        Client::observe(daemon.url(), &client.session_id()).await,
    );
    slow.pause(true);
    let began = Instant::now();
    let size = 80_000_000;
    let start = Start::sh(&format!("head -c {size} /dev/zero"));
    let run = client.run(&start).await;
    run.assert_whole();
    assert_eq!(run.stdout.len(), size);
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    slow.pause(false);
    assert_eq!(slow.end().await, End::Closed(1013));
    // One that reads is either up to date or was dropped in the same way, never left with a hole.
    if quick.ended().is_none() {
        let observed = quick.finish(&start.id()).await;
        assert_eq!(observed.stdout.len(), size);
    }
    client.round_trip().await;
}
