//! Looking on at a session of someone else.

use exec_server::client::{ClientOptions, Observer};
use exec_server::environment::Environment;
use exec_server::protocol::process::{ProcessSignal, ReadParams, SignalParams, TerminateParams};
use pretty_assertions::assert_eq;

use crate::support::events::{next, rest, stdout};
use crate::support::params::script;
use crate::support::server::ServerProcess;
use crate::support::soon;

#[tokio::test]
async fn an_observer_sees_and_ends_what_another_client_runs() {
    let server = ServerProcess::start().await;
    let environment = Environment::create_for_tests(Some(server.url().into())).unwrap();
    let backend = environment.get_exec_backend();
    let text = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.01; done";
    let process = soon(backend.start(script("p", text))).await.unwrap().process;
    let mut events = process.subscribe_events();
    assert_eq!(next(&mut events).await, stdout(1, "ready\n"));

    let observer = soon(Observer::connect(server.url(), ClientOptions::default())).await.unwrap();
    let sessions = soon(observer.sessions()).await.unwrap().sessions;
    assert_eq!(sessions.len(), 1);
    assert!(sessions[0].attached);
    let session = soon(observer.observe(&sessions[0].session_id)).await.unwrap();
    let processes = soon(session.list()).await.unwrap().processes;
    assert_eq!(processes.iter().map(|row| row.process_id.as_str()).collect::<Vec<_>>(), ["p"]);
    let params = ReadParams { process_id: "p".into(), after_seq: None, max_bytes: None, wait_ms: None };
    let read = soon(session.read(params)).await.unwrap().response;
    assert_eq!(read.chunks[0].chunk.as_slice(), b"ready\n");
    let interrupt = SignalParams { process_id: "p".into(), signal: ProcessSignal::Interrupt, target: None };
    assert!(soon(session.signal(interrupt)).await.unwrap());
    let told = rest(&mut events).await;
    assert_eq!(told[0], stdout(2, "caught\n"));
    let terminate = TerminateParams { process_id: "p".into(), grace_ms: None };
    assert!(!soon(session.terminate(terminate)).await.unwrap());
}

#[tokio::test]
async fn an_unknown_session_cannot_be_observed() {
    let server = ServerProcess::start().await;
    let observer = soon(Observer::connect(server.url(), ClientOptions::default())).await.unwrap();
    assert_eq!(soon(observer.sessions()).await.unwrap().sessions, []);
    assert!(soon(observer.observe("none")).await.is_err());
}
