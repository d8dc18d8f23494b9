//! Sessions that lose their connection: rows R1 to R11 of the contract, on the real server where it can show them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use exec_server::backend::{ExecBackend, ExecProcess, ExecProcessEvent, ExecServerError, RecvError};
use exec_server::environment::{
    ClientOptions, Environment, EnvironmentConnectionState, EnvironmentObservedStatus,
};
use exec_server::protocol::process::{ExecParams, LostOutput, ProcessSignal, WriteStatus};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

use crate::support::events::{Told, complete, next, rest, stdout};
use crate::support::messages::{Fate, MessageProxy, Way};
use crate::support::params::script;
use crate::support::proxy::CutProxy;
use crate::support::scripted::{ScriptedConnection, ScriptedServer, read_result, welcome};
use crate::support::server::ServerProcess;
use crate::support::{runs, soon, until};

fn environment(url: &str) -> Environment {
    Environment::create_for_tests(Some(url.into())).unwrap()
}

async fn start(environment: &Environment, params: ExecParams) -> Arc<dyn ExecProcess> {
    soon(environment.get_exec_backend().start(params)).await.unwrap().process
}

async fn state(environment: &Environment, wanted: EnvironmentConnectionState) {
    let mut states = environment.subscribe_connection_state().unwrap();
    soon(states.wait_for(|state| *state == wanted)).await.unwrap();
}

fn with_stdin(params: ExecParams) -> ExecParams {
    ExecParams { pipe_stdin: true, ..params }
}

/// R1 to R5.
#[tokio::test]
async fn a_process_and_its_handle_survive_an_outage() {
    let server = ServerProcess::start().await;
    let proxy = CutProxy::start(server.url()).await;
    let environment = environment(&proxy.url());
    let gates = TempDir::new().unwrap();
    let (gate, passed) = (gates.path().join("gate"), gates.path().join("passed"));
    let text = format!(
        "echo ready; while [ ! -e {gate} ]; do sleep 0.01; done; echo during; : > {passed}; \
         IFS= read -r line; echo \"after $line\"; exit 7",
        gate = gate.display(),
        passed = passed.display()
    );
    let process = start(&environment, with_stdin(script("p", &text))).await;
    let mut events = process.subscribe_events();
    let mut told = vec![next(&mut events).await];
    assert_eq!(told, [stdout(1, "ready\n")]);

    proxy.pause();
    proxy.cut();
    std::fs::write(&gate, "").unwrap();
    until(|| passed.exists()).await;
    state(&environment, EnvironmentConnectionState::Disconnected).await;
    assert_eq!(
        environment.status().await,
        EnvironmentObservedStatus::Disconnected { error: "environment is recovering".into() }
    );
    let mut reading = tokio::spawn({
        let process = Arc::clone(&process);
        async move { process.read(Some(1), None, Some(0)).await }
    });
    assert!(timeout(Duration::from_millis(200), &mut reading).await.is_err());

    proxy.resume();
    let read = timeout(Duration::from_secs(5), reading).await.unwrap().unwrap().unwrap();
    assert_eq!(read.failure, None);
    let text: Vec<u8> = read.chunks.into_iter().flat_map(|chunk| chunk.chunk.into_inner()).collect();
    assert_eq!(text, b"during\n");
    let written = timeout(Duration::from_secs(5), process.write(b"hello\n".to_vec())).await.unwrap().unwrap();
    assert_eq!(written.status, WriteStatus::Accepted);
    told.extend(rest(&mut events).await);
    assert_eq!(complete(&told), ("ready\nduring\nafter hello\n".into(), 7));
    assert_eq!(environment.status().await, EnvironmentObservedStatus::Ready);
    assert_eq!(process.output_accounting().lost, None);
}

/// R6.
#[tokio::test]
async fn exit_and_close_during_an_outage_are_told_after_it() {
    let server = ServerProcess::start().await;
    let proxy = CutProxy::start(server.url()).await;
    let environment = environment(&proxy.url());
    let gates = TempDir::new().unwrap();
    let gate = gates.path().join("gate");
    let text =
        format!("echo ready; while [ ! -e {} ]; do sleep 0.01; done; echo last; exit 3", gate.display());
    let process = start(&environment, script("p", &text)).await;
    let mut events = process.subscribe_events();
    let mut wake = process.subscribe_wake();
    assert_eq!(next(&mut events).await, stdout(1, "ready\n"));
    proxy.pause();
    proxy.cut();
    std::fs::write(&gate, "").unwrap();
    state(&environment, EnvironmentConnectionState::Disconnected).await;
    proxy.resume();
    assert_eq!(rest(&mut events).await, [stdout(2, "last\n"), Told::Exited(3, 3), Told::Closed(4)]);
    soon(wake.wait_for(|seq| *seq == 4)).await.unwrap();
}

/// R7.
#[tokio::test]
async fn a_server_that_forgot_the_session_fails_its_processes_at_once() {
    let server = ServerProcess::start().await;
    let proxy = CutProxy::start(server.url()).await;
    let environment = environment(&proxy.url());
    let process = start(&environment, script("p", "sleep 60")).await;
    let mut events = process.subscribe_events();
    let successor = ServerProcess::start().await;
    proxy.retarget(successor.url());
    server.kill().await;
    let before = Instant::now();
    let Told::Failed(why) = next(&mut events).await else { panic!() };
    assert!(before.elapsed() < Duration::from_secs(5));
    assert!(
        why.contains("failed to resume exec-server session: exec-server rejected request (-32600)"),
        "{why}"
    );
    let read = soon(process.read(Some(4), None, Some(60_000))).await.unwrap();
    assert_eq!(
        (read.failure, read.closed, read.exited, read.exit_code),
        (Some(why.clone()), true, true, None)
    );
    let error = soon(process.write(b"x".to_vec())).await.unwrap_err();
    assert_eq!(error.to_string(), why);
    assert!(soon(process.signal(ProcessSignal::Interrupt)).await.is_err());
    assert!(soon(process.terminate()).await.is_err());
    assert!(
        matches!(environment.status().await, EnvironmentObservedStatus::Disconnected { error } if error == why)
    );
    // The next use opens a new session, in which the id is free.
    let process = start(&environment, script("p", "echo again")).await;
    assert_eq!(complete(&rest(&mut process.subscribe_events()).await), ("again\n".into(), 0));
}

/// R8.
#[tokio::test]
async fn an_outage_beyond_the_deadline_fails_the_processes() {
    let server = ServerProcess::start().await;
    let proxy = CutProxy::start(server.url()).await;
    let options = ClientOptions { recovery_timeout: Duration::from_millis(400), ..ClientOptions::default() };
    let environment = Environment::remote(&proxy.url(), options).unwrap();
    let process = start(&environment, script("p", "sleep 60")).await;
    let mut events = process.subscribe_events();
    let wake = process.subscribe_wake();
    proxy.pause();
    proxy.cut();
    let before = Instant::now();
    let reading = tokio::spawn({
        let process = Arc::clone(&process);
        async move { process.read(None, None, None).await }
    });
    let Told::Failed(why) = next(&mut events).await else { panic!() };
    assert!(before.elapsed() < Duration::from_millis(1400));
    assert!(why.contains("recovery timed out after 400ms"), "{why}");
    assert_eq!(soon(reading).await.unwrap().unwrap().failure, Some(why));
    assert!(wake.has_changed().unwrap());
}

/// A rule that acts once, on the first message that fits.
fn once(
    fits: impl Fn(Way, &Value) -> bool + Send + 'static,
    fate: Fate,
) -> impl FnMut(Way, &Value) -> Fate + Send {
    let mut done = false;
    move |way, message| {
        if done || !fits(way, message) {
            return Fate::Pass;
        }
        done = true;
        fate.clone()
    }
}

fn is_call(method: &'static str) -> impl Fn(Way, &Value) -> bool + Send + 'static {
    move |way, message| way == Way::ToServer && message["method"] == method
}

/// R9: lost before it arrives, and lost on the way back.
#[test_case::test_case(Fate::Cut; "the request is lost")]
#[test_case::test_case(Fate::PassAndCut; "the answer is lost")]
#[tokio::test]
async fn a_write_is_applied_once(fate: Fate) {
    let server = ServerProcess::start().await;
    let proxy = MessageProxy::start(server.url(), once(is_call("process/write"), fate)).await;
    let environment = environment(&proxy.url());
    let process = start(&environment, with_stdin(script("p", "head -n 2"))).await;
    let mut events = process.subscribe_events();
    let (first, second) =
        soon(async { tokio::join!(process.write(b"one\n".to_vec()), process.write(b"two\n".to_vec())) })
            .await;
    assert_eq!(
        (first.unwrap().status, second.unwrap().status),
        (WriteStatus::Accepted, WriteStatus::Accepted)
    );
    assert_eq!(complete(&rest(&mut events).await), ("one\ntwo\n".into(), 0));
}

/// R10.
#[tokio::test]
async fn a_start_whose_answer_is_lost_fails_and_leaves_nothing_behind() {
    let server = ServerProcess::start().await;
    let is_start_of_p = |way, message: &Value| {
        is_call("process/start")(way, message) && message["params"]["processId"] == "p"
    };
    let proxy = MessageProxy::start(server.url(), once(is_start_of_p, Fate::PassAndCut)).await;
    let environment = environment(&proxy.url());
    let backend = environment.get_exec_backend();
    let gates = TempDir::new().unwrap();
    let file = gates.path().join("pid");
    let text = format!("echo $$ > {}; exec sleep 60", file.display());
    let error = soon(backend.start(script("p", &text))).await.err().unwrap();
    assert!(matches!(error, ExecServerError::TransportDisconnected));
    assert_eq!(error.to_string(), "transport disconnected");
    // It may be ended before it has said who it is.
    let ended = || match std::fs::read_to_string(&file) {
        Ok(pid) if pid.ends_with('\n') => !runs(pid.trim().parse().unwrap()),
        _ => false,
    };
    let told = timeout(Duration::from_secs(2), until(ended)).await.is_ok();
    assert!(told || !file.exists(), "the process stays behind");
    start(&environment, script("q", "true")).await;
}

/// R11.
#[tokio::test]
async fn a_second_outage_during_the_recovery_loses_nothing() {
    let server = ServerProcess::start().await;
    let cuts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&cuts);
    let rule = move |way, message: &Value| {
        // The first write breaks the connection; the first read of the recovery breaks the next one.
        let cut_at = if counted.load(Ordering::SeqCst) == 0 { "process/write" } else { "process/read" };
        if way == Way::ToServer && message["method"] == cut_at && counted.load(Ordering::SeqCst) < 3 {
            counted.fetch_add(1, Ordering::SeqCst);
            return if counted.load(Ordering::SeqCst) == 3 { Fate::Cut } else { Fate::PassAndCut };
        }
        Fate::Pass
    };
    let proxy = MessageProxy::start(server.url(), rule).await;
    let environment = environment(&proxy.url());
    let text =
        "i=0; while [ $i -lt 400 ]; do echo line $i; i=$((i+1)); done; IFS= read -r line; echo got $line";
    let process = start(&environment, with_stdin(script("p", text))).await;
    let mut events = process.subscribe_events();
    assert_eq!(soon(process.write(b"input\n".to_vec())).await.unwrap().status, WriteStatus::Accepted);
    let (output, code) = complete(&rest(&mut events).await);
    let expected: String = (0..400).map(|i| format!("line {i}\n")).chain(["got input\n".into()]).collect();
    assert_eq!((output, code), (expected, 0));
    assert_eq!(cuts.load(Ordering::SeqCst), 3);
}

/// Many outages at random places.
#[tokio::test]
async fn random_outages_lose_and_repeat_nothing() {
    let server = ServerProcess::start().await;
    let proxy = CutProxy::start(server.url()).await;
    let environment = environment(&proxy.url());
    let process = start(&environment, with_stdin(script("p", "head -n 40"))).await;
    let mut events = process.subscribe_events();
    // The largest budget lets all of the output through in one recovery, so that there is always progress.
    proxy.cut_randomly(42, 500..12_000);
    proxy.cut();
    let mut expected = String::new();
    for number in 0..40 {
        let line = format!("line {number} {}\n", "x".repeat(number * 5));
        expected.push_str(&line);
        assert_eq!(soon(process.write(line.into_bytes())).await.unwrap().status, WriteStatus::Accepted);
    }
    proxy.stop_cutting();
    proxy.cut();
    assert_eq!(complete(&rest(&mut events).await), (expected, 0));
}

/// A consumer that falls behind pages by reading, also while connections break.
#[tokio::test]
async fn megabytes_survive_random_outages() {
    let server = ServerProcess::start().await;
    let proxy = CutProxy::start(server.url()).await;
    let environment = environment(&proxy.url());
    let lines = 400_000;
    let process = start(&environment, with_stdin(script("p", &format!("read go; seq 1 {lines}")))).await;
    proxy.cut_randomly(7, 200_000..6_000_000);
    proxy.cut();
    soon(process.write(b"\n".to_vec())).await.unwrap();
    let mut events = process.subscribe_events();
    let (mut output, mut last) = (Vec::new(), 0);
    let closed = soon(async {
        loop {
            let event = match events.recv().await {
                Ok(event) => event,
                Err(RecvError::Closed) => return false,
                Err(RecvError::Lagged(_)) => {
                    let read = process.read_accounted(Some(last), None, Some(0)).await.unwrap();
                    assert_eq!(read.lost, None);
                    for chunk in read.response.chunks {
                        last = chunk.seq;
                        output.extend(chunk.chunk.into_inner());
                    }
                    continue;
                }
            };
            match event {
                ExecProcessEvent::Output(chunk) if chunk.seq > last => {
                    last = chunk.seq;
                    output.extend(chunk.chunk.into_inner());
                }
                ExecProcessEvent::Closed { .. } => return true,
                ExecProcessEvent::Failed(why) => panic!("{why}"),
                ExecProcessEvent::Output(_) | ExecProcessEvent::Exited { .. } => {}
            }
        }
    });
    assert!(closed.await);
    let expected: String = (1..=lines).map(|line| format!("{line}\n")).collect();
    assert!(output == expected.as_bytes(), "{} of {} bytes", output.len(), expected.len());
    assert_eq!(process.output_accounting().lost, None);
}

struct Scene {
    server: ScriptedServer,
    environment: Environment,
    backend: Arc<dyn ExecBackend>,
    connection: ScriptedConnection,
}

impl Scene {
    async fn new() -> Self {
        let server = ScriptedServer::start().await;
        let environment = environment(&server.url());
        environment.start_connecting();
        let connection = server.accept_session(json!({})).await;
        let backend = environment.get_exec_backend();
        Self { server, environment, backend, connection }
    }

    async fn start(&mut self, id: &str) -> Arc<dyn ExecProcess> {
        let (started, ()) = tokio::join!(self.backend.start(script(id, "true")), self.connection.started(id));
        started.unwrap().process
    }

    /// Breaks the connection and takes the resume.
    async fn resumed(&mut self) {
        // The old connection breaks when it is replaced; the client connects after that.
        self.connection.send(tokio_tungstenite::tungstenite::Message::Close(None)).await;
        self.connection = self.server.accept_resume().await;
    }
}

#[tokio::test]
async fn recovery_reads_each_live_process_from_its_last_event() {
    let mut scene = Scene::new().await;
    let process = scene.start("p").await;
    let ended = scene.start("ended").await;
    let mut events = process.subscribe_events();
    scene.connection.exited("ended", 1, 0).await;
    scene.connection.closed("ended", 2).await;
    rest(&mut ended.subscribe_events()).await;
    scene.connection.output("p", 1, "MQ==").await;
    // A hole: 2 is missing.
    scene.connection.output("p", 3, "Mw==").await;
    assert_eq!(next(&mut events).await, stdout(1, "1"));
    scene.resumed().await;
    let read = scene.connection.expect("process/read").await;
    assert_eq!(read.params, json!({"processId": "p", "afterSeq": 1, "maxBytes": null, "waitMs": 0}));
    // The server may push before it answers.
    scene.connection.output("p", 6, "Ng==").await;
    scene
        .connection
        .reply(&read, read_result(&[(2, "Mg=="), (3, "Mw=="), (5, "NQ==")], 6, Some(7), false))
        .await;
    scene.connection.closed("p", 7).await;
    let expected =
        [stdout(2, "2"), stdout(3, "3"), Told::Exited(4, 7), stdout(5, "5"), stdout(6, "6"), Told::Closed(7)];
    assert_eq!(rest(&mut events).await, expected);
}

#[tokio::test]
async fn output_that_is_gone_is_reported_and_the_process_lives() {
    let mut scene = Scene::new().await;
    let process = scene.start("p").await;
    let mut events = process.subscribe_events();
    scene.resumed().await;
    let read = scene.connection.expect("process/read").await;
    let mut answer = read_result(&[(8, "OA==")], 9, None, false);
    answer["lost"] = json!({"bytes": 700, "firstSeq": 1, "lastSeq": 7});
    scene.connection.reply(&read, answer).await;
    scene.connection.output("p", 9, "OQ==").await;
    assert_eq!(next(&mut events).await, stdout(8, "8"));
    assert_eq!(next(&mut events).await, stdout(9, "9"));
    let lost = LostOutput { bytes: 700, first_seq: 1, last_seq: 7 };
    assert_eq!(process.output_accounting().lost, Some(lost));
    // Nobody ended it: the next call is this one.
    let signal = tokio::spawn(async move { process.signal(ProcessSignal::Interrupt).await });
    let call = scene.connection.expect("process/signal").await;
    scene.connection.reply(&call, json!({})).await;
    soon(signal).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_process_that_the_server_forgot_fails_alone() {
    let mut scene = Scene::new().await;
    let process = scene.start("p").await;
    scene.resumed().await;
    let read = scene.connection.expect("process/read").await;
    scene.connection.fail(&read, -32600, "unknown process id \"p\"").await;
    let Told::Failed(why) = next(&mut process.subscribe_events()).await else { panic!() };
    assert!(why.contains("unknown process id"), "{why}");
    assert_eq!(soon(process.read(None, None, None)).await.unwrap().failure, Some(why));
    scene.start("q").await;
}

#[tokio::test]
async fn what_becomes_of_calls_in_flight() {
    let mut scene = Scene::new().await;
    let process = scene.start("p").await;
    let calls = |process: &Arc<dyn ExecProcess>| {
        let [one, two, three, four] = std::array::from_fn(|_| Arc::clone(process));
        (
            tokio::spawn(async move { one.read(Some(3), Some(10), Some(500)).await }),
            tokio::spawn(async move { two.write(b"hi".to_vec()).await }),
            tokio::spawn(async move { three.signal(ProcessSignal::Interrupt).await }),
            tokio::spawn(async move { four.terminate().await }),
        )
    };
    let (read, write, signal, terminate) = calls(&process);
    let backend = Arc::clone(&scene.backend);
    let start = tokio::spawn(async move { backend.start(script("lost", "true")).await.map(|_| ()) });
    for _ in 0..5 {
        scene.connection.next().await.unwrap();
    }
    scene.resumed().await;
    let error = soon(start).await.unwrap().unwrap_err();
    assert!(matches!(error, ExecServerError::TransportDisconnected));
    let error = soon(signal).await.unwrap().unwrap_err();
    assert!(matches!(error, ExecServerError::TransportDisconnected));
    // What may have started is ended before anything else happens.
    let call = scene.connection.expect("process/terminate").await;
    assert_eq!(call.params, json!({"processId": "lost"}));
    scene.connection.reply(&call, json!({"running": true})).await;
    let gap = scene.connection.expect("process/read").await;
    assert_eq!(gap.params["processId"], "p");
    scene.connection.reply(&gap, read_result(&[], 1, None, false)).await;
    let mut repeated = Vec::new();
    for _ in 0..3 {
        let message = scene.connection.next().await.unwrap();
        let result = match message["method"].as_str().unwrap() {
            "process/read" => read_result(&[], 1, None, false),
            "process/write" => json!({"status": "accepted"}),
            _ => json!({"running": false}),
        };
        scene.connection.text(json!({"id": message["id"], "result": result}).to_string()).await;
        repeated.push((message["method"].as_str().unwrap().to_owned(), message["params"].clone()));
    }
    repeated.sort_by(|one, two| one.0.cmp(&two.0));
    let expected = [
        ("process/read", json!({"processId": "p", "afterSeq": 3, "maxBytes": 10, "waitMs": 500})),
        ("process/terminate", json!({"processId": "p"})),
        ("process/write", json!({"processId": "p", "chunk": "aGk=", "writeId": "1"})),
    ];
    assert_eq!(repeated, expected.map(|(method, params)| (method.to_owned(), params)));
    soon(read).await.unwrap().unwrap();
    soon(write).await.unwrap().unwrap();
    soon(terminate).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_session_that_is_still_attached_is_tried_again() {
    let mut scene = Scene::new().await;
    scene.connection.send(tokio_tungstenite::tungstenite::Message::Close(None)).await;
    for _ in 0..3 {
        let mut connection = scene.server.accept().await;
        let initialize = connection.expect("initialize").await;
        connection.fail(&initialize, -32010, "attached").await;
    }
    scene.server.accept_resume().await;
    state(&scene.environment, EnvironmentConnectionState::Connected).await;
}

#[tokio::test]
async fn another_session_than_asked_for_is_final() {
    let mut scene = Scene::new().await;
    let process = scene.start("p").await;
    scene.connection.send(tokio_tungstenite::tungstenite::Message::Close(None)).await;
    let mut connection = scene.server.accept().await;
    let initialize = connection.expect("initialize").await;
    let mut other = welcome(json!({}));
    other["sessionId"] = "another".into();
    connection.reply(&initialize, other).await;
    let Told::Failed(why) = next(&mut process.subscribe_events()).await else { panic!() };
    assert!(why.contains("another session"), "{why}");
}

#[tokio::test]
async fn a_token_that_is_refused_three_times_is_final() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut scene = Scene::new().await;
    let process = scene.start("p").await;
    scene.connection.send(tokio_tungstenite::tungstenite::Message::Close(None)).await;
    for _ in 0..3 {
        let mut stream = scene.server.accept_raw().await;
        let _ = soon(stream.read(&mut [0; 4096])).await.unwrap();
        stream.write_all(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    }
    let Told::Failed(why) = next(&mut process.subscribe_events()).await else { panic!() };
    assert!(why.contains("401"), "{why}");
}

#[tokio::test]
async fn calls_made_during_an_outage_wait_for_its_end() {
    let server = ServerProcess::start().await;
    let proxy = CutProxy::start(server.url()).await;
    let environment = environment(&proxy.url());
    soon(environment.wait_until_ready()).await.unwrap();
    proxy.pause();
    proxy.cut();
    state(&environment, EnvironmentConnectionState::Disconnected).await;
    let outcome = Arc::new(Mutex::new(None));
    let waiting = tokio::spawn({
        let (backend, outcome) = (environment.get_exec_backend(), Arc::clone(&outcome));
        async move {
            let started = backend.start(script("p", "echo hi")).await.unwrap();
            *outcome.lock().unwrap() = Some(started.process);
        }
    });
    assert!(timeout(Duration::from_millis(200), soon(environment.wait_until_ready())).await.is_err());
    assert!(outcome.lock().unwrap().is_none());
    proxy.resume();
    soon(waiting).await.unwrap();
    let process = outcome.lock().unwrap().take().unwrap();
    assert_eq!(complete(&rest(&mut process.subscribe_events()).await), ("hi\n".into(), 0));
}
