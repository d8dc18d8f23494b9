//! Rows P1 to P13 of the contract: the same for a process of this program and for one on a server.

use std::time::Duration;

use exec_server::backend::{ExecServerError, RecvError};
use exec_server::environment::Environment;
use exec_server::protocol::process::{
    ExecOutputStream, ExecParams, ProcessSignal, SandboxType, StartOptions, TerminalSize, WriteStatus,
};
use pretty_assertions::assert_eq;
use tempfile::TempDir;
use test_case::test_case;
use tokio::time::timeout;

use crate::support::events::{Told, complete, next, read_to_close, rest, stdout};
use crate::support::messages::{Fate, MessageProxy, Way};
use crate::support::params::{exec, script};
use crate::support::place::Place;
use crate::support::server::ServerProcess;
use crate::support::soon;

/// P1, P2, P11.
#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn a_process_is_read_to_its_close(remote: bool) {
    let place = Place::new(remote).await;
    assert_eq!(place.environment.is_remote(), remote);
    assert!(place.environment.subscribe_connection_state().is_some() == remote);
    let started = place.start(exec("p", &["true"])).await;
    assert_eq!(started.sandbox_type, Some(SandboxType::None));
    assert_eq!(started.process.process_id().as_str(), "p");
    let mut wake = started.process.subscribe_wake();
    assert_eq!(read_to_close(&started.process, &mut wake).await, (String::new(), Some(0)));
    let process = place.process(script("q", "sleep 0.05; echo late")).await;
    let mut wake = process.subscribe_wake();
    assert_eq!(read_to_close(&process, &mut wake).await, ("late\n".into(), Some(0)));
}

/// P3, P4, P13.
#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn events_are_pushed_and_kept(remote: bool) {
    let place = Place::new(remote).await;
    let process = place.process(script("p", "echo out; sleep 0.1; echo err >&2; sleep 0.1; exit 7")).await;
    let expected = [
        stdout(1, "out\n"),
        Told::Output(2, ExecOutputStream::Stderr, "err\n".into()),
        Told::Exited(3, 7),
        Told::Closed(4),
    ];
    let mut events = process.subscribe_events();
    for event in &expected {
        let told = timeout(Duration::from_secs(2), events.recv()).await.unwrap().unwrap();
        assert_eq!(&Told::from(told), event);
    }
    assert_eq!(events.recv().await, Err(RecvError::Closed));
    let mut wake = process.subscribe_wake();
    assert_eq!(read_to_close(&process, &mut wake).await, ("out\nerr\n".into(), Some(7)));
    assert_eq!(rest(&mut process.subscribe_events()).await, expected);
    let totals = process.output_accounting().totals.unwrap();
    assert_eq!((totals.stdout, totals.stderr), (4, 4));
}

/// P5.
#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn output_after_the_exit_still_comes(remote: bool) {
    let place = Place::new(remote).await;
    let gates = TempDir::new().unwrap();
    let gate = gates.path().join("gate");
    let child = format!("(while [ ! -e {} ]; do sleep 0.01; done; echo late) &", gate.display());
    let process = place.process(script("p", &child)).await;
    let read = soon(process.read(None, None, Some(2000))).await.unwrap();
    assert_eq!((read.chunks.len(), read.exited, read.exit_code, read.closed), (0, true, Some(0), false));
    std::fs::write(&gate, "").unwrap();
    let after = read.next_seq - 1;
    let read = soon(process.read(Some(after), None, Some(5000))).await.unwrap();
    assert_eq!(read.chunks[0].stream, ExecOutputStream::Stdout);
    assert_eq!(read.chunks[0].chunk.as_slice(), b"late\n");
    assert_eq!(
        rest(&mut process.subscribe_events()).await,
        [Told::Exited(1, 0), stdout(2, "late\n"), Told::Closed(3)]
    );
}

/// P6.
#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn a_terminal_is_written_and_resized(remote: bool) {
    let place = Place::new(remote).await;
    let params = ExecParams { tty: true, ..script("p", "read line; stty size; echo \"got $line\"") };
    let options = StartOptions { size: Some(TerminalSize { rows: 10, cols: 20 }), limits: None };
    let backend = place.environment.get_exec_backend();
    let process = soon(backend.start_with(params, options)).await.unwrap().process;
    soon(process.resize(TerminalSize { rows: 33, cols: 44 })).await.unwrap();
    assert_eq!(soon(process.write(b"hello\n".to_vec())).await.unwrap().status, WriteStatus::Accepted);
    let (output, code) = complete(&rest(&mut process.subscribe_events()).await);
    assert!(output.contains("got hello") && output.contains("33 44"), "{output}");
    assert_eq!(code, 0);
}

/// P7, P8.
#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn input_reaches_a_pipe_or_is_known_to_be_closed(remote: bool) {
    let place = Place::new(remote).await;
    let text = "read line; echo \"got $line\"";
    let process = place.process(ExecParams { pipe_stdin: true, ..script("p", text) }).await;
    assert_eq!(soon(process.write(b"hello\n".to_vec())).await.unwrap().status, WriteStatus::Accepted);
    assert_eq!(complete(&rest(&mut process.subscribe_events()).await), ("got hello\n".into(), 0));
    let process = place.process(script("q", "sleep 0.3; read line; echo \"got $line $?\"")).await;
    assert_eq!(soon(process.write(b"hello\n".to_vec())).await.unwrap().status, WriteStatus::StdinClosed);
    assert_eq!(complete(&rest(&mut process.subscribe_events()).await), ("got  1\n".into(), 0));
    let process = place.process(ExecParams { pipe_stdin: true, ..script("r", "cat") }).await;
    assert_eq!(soon(process.write(b"all\n".to_vec())).await.unwrap().status, WriteStatus::Accepted);
    assert_eq!(soon(process.close_stdin()).await.unwrap().status, WriteStatus::Accepted);
    assert_eq!(complete(&rest(&mut process.subscribe_events()).await), ("all\n".into(), 0));
}

/// P9.
#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn an_interrupt_runs_the_trap(remote: bool) {
    let place = Place::new(remote).await;
    let text = "trap 'echo caught; exit 7' INT; echo ready; while :; do sleep 0.01; done";
    let process = place.process(script("p", text)).await;
    let mut events = process.subscribe_events();
    assert_eq!(next(&mut events).await, stdout(1, "ready\n"));
    soon(process.signal(ProcessSignal::Interrupt)).await.unwrap();
    assert_eq!(rest(&mut events).await, [stdout(2, "caught\n"), Told::Exited(3, 7), Told::Closed(4)]);
    assert!(!soon(process.signal_to(ProcessSignal::Kill, None)).await.unwrap());
}

/// P10.
#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn output_before_anybody_looks_is_kept(remote: bool) {
    let place = Place::new(remote).await;
    let process = place.process(script("p", "echo early")).await;
    let mut wake = process.subscribe_wake();
    soon(wake.wait_for(|seq| *seq == 3)).await.unwrap();
    assert_eq!(read_to_close(&process, &mut process.subscribe_wake()).await, ("early\n".into(), Some(0)));
    assert_eq!(complete(&rest(&mut process.subscribe_events()).await), ("early\n".into(), 0));
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn a_process_is_listed_and_ended(remote: bool) {
    let place = Place::new(remote).await;
    let process = place.process(script("p", "echo ready; sleep 60")).await;
    let mut events = process.subscribe_events();
    assert_eq!(next(&mut events).await, stdout(1, "ready\n"));
    let rows = soon(place.environment.get_exec_backend().list()).await.unwrap().processes;
    assert_eq!(rows.iter().map(|row| row.process_id.as_str()).collect::<Vec<_>>(), ["p"]);
    assert!(soon(process.terminate_with(Some(Duration::ZERO))).await.unwrap());
    assert_eq!(rest(&mut events).await, [Told::Exited(2, 137), Told::Closed(3)]);
    soon(process.terminate()).await.unwrap();
    assert_eq!(serde_json::to_value(process.output_accounting().reason).unwrap(), "terminated");
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn an_environment_describes_itself(remote: bool) {
    let place = Place::new(remote).await;
    let info = soon(place.environment.info()).await.unwrap();
    assert!(info.capabilities.process_control);
    soon(place.environment.wait_until_ready()).await.unwrap();
    assert!(place.environment.startup_finished());
    assert_eq!(place.environment.status().await, exec_server::environment::EnvironmentObservedStatus::Ready);
}

#[tokio::test]
async fn a_server_with_fewer_capabilities_is_asked_for_less() {
    let server = ServerProcess::start().await;
    let proxy = MessageProxy::start(server.url(), |way, message| {
        assert!(message["method"] != "process/resize");
        let mut changed = message.clone();
        match changed.pointer_mut("/result/environmentInfo/capabilities") {
            Some(capabilities) if way == Way::ToClient => *capabilities = serde_json::json!({}),
            _ => return Fate::Pass,
        }
        Fate::Change(changed)
    })
    .await;
    let environment = Environment::create_for_tests(Some(proxy.url())).unwrap();
    let params = ExecParams { tty: true, ..script("p", "read line") };
    let process = soon(environment.get_exec_backend().start(params)).await.unwrap().process;
    let error = soon(process.resize(TerminalSize::default())).await.unwrap_err();
    assert!(matches!(error, ExecServerError::Unsupported(_)));
    soon(process.terminate()).await.unwrap();
    assert!(matches!(rest(&mut process.subscribe_events()).await.last(), Some(Told::Closed(_))));
}

#[tokio::test]
async fn a_socket_in_the_file_system_serves_as_well() {
    let directory = TempDir::new().unwrap();
    let url = format!("unix:{}", directory.path().join("s").display());
    let server = ServerProcess::start_with(&["--listen", &url]).await;
    let environment = Environment::create_for_tests(Some(url)).unwrap();
    let process = soon(environment.get_exec_backend().start(script("p", "echo hi"))).await.unwrap().process;
    assert_eq!(complete(&rest(&mut process.subscribe_events()).await), ("hi\n".into(), 0));
    drop(server);
}
