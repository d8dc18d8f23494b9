//! Handles of remote processes, against a scripted server.

use std::sync::Arc;

use exec_server::backend::{ExecBackend, ExecProcess, ExecServerError};
use exec_server::environment::Environment;
use exec_server::protocol::process::{ProcessSignal, StartOptions, TerminalSize, WriteStatus};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::support::events::{Told, next, rest, stdout};
use crate::support::params::script;
use crate::support::scripted::{ScriptedConnection, ScriptedServer};
use crate::support::until;

struct Scene {
    server: ScriptedServer,
    backend: Arc<dyn ExecBackend>,
    connection: ScriptedConnection,
}

impl Scene {
    async fn new(capabilities: Value) -> Self {
        let server = ScriptedServer::start().await;
        let environment = Environment::create_for_tests(Some(server.url())).unwrap();
        environment.start_connecting();
        let connection = server.accept_session(capabilities).await;
        Self { server, backend: environment.get_exec_backend(), connection }
    }

    async fn start(&mut self, id: &str) -> Arc<dyn ExecProcess> {
        let (started, ()) = tokio::join!(self.backend.start(script(id, "true")), self.connection.started(id));
        started.unwrap().process
    }
}

#[tokio::test]
async fn events_come_in_order_once_however_they_are_sent() {
    let mut scene = Scene::new(json!({})).await;
    let process = scene.start("p").await;
    let mut early = process.subscribe_events();
    let wake = process.subscribe_wake();
    scene.connection.closed("p", 5).await;
    scene.connection.output("p", 2, "Mg==").await;
    scene.connection.exited("p", 4, 7).await;
    scene.connection.output("p", 1, "MQ==").await;
    scene.connection.output("p", 1, "MQ==").await;
    scene.connection.output("p", 3, "Mw==").await;
    let expected = [stdout(1, "1"), stdout(2, "2"), stdout(3, "3"), Told::Exited(4, 7), Told::Closed(5)];
    assert_eq!(rest(&mut early).await, expected);
    assert_eq!(rest(&mut process.subscribe_events()).await, expected);
    assert_eq!(*wake.borrow(), 5);
}

#[tokio::test]
async fn accounts_are_kept() {
    let mut scene = Scene::new(json!({})).await;
    let process = scene.start("p").await;
    let totals = json!({"stdout": 3, "stderr": 0, "pty": 0});
    let exit = json!({"processId": "p", "seq": 1, "exitCode": 137, "signal": "SIGKILL", "reason": "limit", "limit": "wallMs"});
    scene.connection.notify("process/exited", exit).await;
    scene
        .connection
        .notify("process/closed", json!({"processId": "p", "seq": 2, "outputBytes": totals}))
        .await;
    rest(&mut process.subscribe_events()).await;
    let accounting = process.output_accounting();
    assert_eq!(accounting.totals.unwrap().stdout, 3);
    assert_eq!(serde_json::to_value(accounting.reason).unwrap(), "limit");
    assert_eq!(accounting.lost, None);
}

#[tokio::test]
async fn a_live_id_cannot_be_started_again() {
    let mut scene = Scene::new(json!({})).await;
    let process = scene.start("p").await;
    let error = scene.backend.start(script("p", "true")).await.err().unwrap();
    assert!(matches!(error, ExecServerError::Protocol(why) if why.contains("already in use")));
    // The refused start sent nothing: the next call is this one.
    let (signalled, call) = tokio::join!(process.signal(ProcessSignal::Interrupt), async {
        let call = scene.connection.expect("process/signal").await;
        scene.connection.reply(&call, json!({})).await;
        call
    });
    signalled.unwrap();
    assert_eq!(call.params, json!({"processId": "p", "signal": "interrupt"}));
}

#[tokio::test]
async fn server_errors_come_through_unchanged_and_free_the_id() {
    let mut scene = Scene::new(json!({})).await;
    let (outcome, ()) = tokio::join!(scene.backend.start(script("p", "true")), async {
        let call = scene.connection.expect("process/start").await;
        let error = json!({"code": -32603, "message": "no", "data": {"kind": "spawnNotFound"}});
        scene.connection.text(json!({"id": call.id, "error": error}).to_string()).await;
    });
    let Err(ExecServerError::Server { code, message, data }) = outcome.map(|_| ()) else { panic!() };
    assert_eq!((code, message.as_str(), data), (-32603, "no", Some(json!({"kind": "spawnNotFound"}))));
    scene.start("p").await;
}

#[tokio::test]
async fn writes_are_numbered_and_in_order() {
    let mut scene = Scene::new(json!({})).await;
    let process = scene.start("p").await;
    for (id, status) in [("1", "accepted"), ("2", "stdinClosed"), ("3", "unknownProcess")] {
        let (written, call) = tokio::join!(process.write(b"hi".to_vec()), async {
            let call = scene.connection.expect("process/write").await;
            scene.connection.reply(&call, json!({"status": status})).await;
            call
        });
        assert_eq!(call.params, json!({"processId": "p", "chunk": "aGk=", "writeId": id}));
        assert_eq!(serde_json::to_value(written.unwrap().status).unwrap(), status);
    }
}

#[tokio::test]
async fn a_write_refused_for_lack_of_room_keeps_its_number() {
    let mut scene = Scene::new(json!({})).await;
    let process = scene.start("p").await;
    let (refused, ()) = tokio::join!(process.write(b"a".to_vec()), async {
        let call = scene.connection.expect("process/write").await;
        let error = json!({"code": -32603, "message": "full", "data": {"kind": "stdinFull"}});
        scene.connection.text(json!({"id": call.id, "error": error}).to_string()).await;
    });
    assert!(refused.is_err());
    let (_, call) = tokio::join!(process.write(b"a".to_vec()), async {
        let call = scene.connection.expect("process/write").await;
        scene.connection.reply(&call, json!({"status": "accepted"})).await;
        call
    });
    assert_eq!(call.params["writeId"], "1");
}

#[tokio::test]
async fn a_start_that_nobody_waits_for_is_ended() {
    let mut scene = Scene::new(json!({})).await;
    let backend = Arc::clone(&scene.backend);
    let start = tokio::spawn(async move { backend.start(script("p", "sleep 60")).await });
    let call = scene.connection.expect("process/start").await;
    start.abort();
    assert!(start.await.err().unwrap().is_cancelled());
    scene.connection.reply(&call, json!({"processId": "p"})).await;
    let terminate = scene.connection.expect("process/terminate").await;
    assert_eq!(terminate.params, json!({"processId": "p"}));
}

#[tokio::test]
async fn a_dropped_handle_ends_routing_not_the_process() {
    let mut scene = Scene::new(json!({})).await;
    let process = scene.start("p").await;
    let mut events = process.subscribe_events();
    drop(process);
    scene.connection.output("p", 1, "MQ==").await;
    assert_eq!(next(&mut events).await, stdout(1, "1"));
    scene.connection.exited("p", 2, 0).await;
    scene.connection.closed("p", 3).await;
    assert_eq!(rest(&mut events).await.last(), Some(&Told::Closed(3)));
    drop(scene.start("q").await);
    // No call was made for "p", and its id is free here.
    scene.start("p").await;
}

#[tokio::test]
async fn what_the_server_lacks_is_refused_or_dropped_before_anything_is_sent() {
    let mut scene = Scene::new(json!({})).await;
    let size = StartOptions { size: Some(TerminalSize::default()), limits: None };
    let error = scene.backend.start_with(script("p", "true"), size).await.err().unwrap();
    assert!(matches!(&error, ExecServerError::Unsupported(why) if why.contains("processControl")), "{error}");
    let proxied = exec_server::protocol::process::ExecParams {
        network_proxy: Some(
            serde_json::from_value(json!({"proxy": {
                "enabled": true, "enableSocks5": true, "enableSocks5Udp": true, "allowUpstreamProxy": true,
                "dangerouslyAllowAllUnixSockets": false, "mode": "full", "allowLocalBinding": false
            }}))
            .unwrap(),
        ),
        ..script("p", "true")
    };
    let error = scene.backend.start(proxied).await.err().unwrap();
    assert!(error.to_string().contains("does not support executor-local network proxy launches"));
    assert!(matches!(scene.backend.list().await, Err(ExecServerError::Unsupported(_))));
    let snapshot =
        serde_json::from_value(json!({"scopeId": "s", "shell": {"name": "sh", "path": "/bin/sh"}}));
    let with_snapshot = exec_server::protocol::process::ExecParams {
        shell_snapshot: Some(snapshot.unwrap()),
        ..script("p", "true")
    };
    let (started, call) = tokio::join!(scene.backend.start(with_snapshot), async {
        let call = scene.connection.expect("process/start").await;
        scene.connection.reply(&call, json!({"processId": "p"})).await;
        call
    });
    assert_eq!(call.params.get("shellSnapshot"), None);
    let process = started.unwrap().process;
    assert!(process.resize(TerminalSize::default()).await.is_err());
    assert!(process.close_stdin().await.is_err());
    assert!(process.terminate_with(Some(std::time::Duration::ZERO)).await.is_err());
    assert!(process.signal(ProcessSignal::Kill).await.is_err());
    assert!(process.signal_to(ProcessSignal::Interrupt, None).await.is_err());
}

#[tokio::test]
async fn what_the_server_has_is_sent() {
    let mut scene =
        Scene::new(json!({"processControl": true, "processLimits": true, "processList": true})).await;
    let options = StartOptions {
        size: Some(TerminalSize { rows: 3, cols: 4 }),
        limits: serde_json::from_value(json!({"wallMs": 5})).unwrap(),
    };
    let (started, call) = tokio::join!(scene.backend.start_with(script("p", "true"), options), async {
        let call = scene.connection.expect("process/start").await;
        scene.connection.reply(&call, json!({"processId": "p", "sandboxType": "linuxSeccomp"})).await;
        call
    });
    assert_eq!(call.params["size"], json!({"rows": 3, "cols": 4}));
    assert_eq!(call.params["limits"], json!({"wallMs": 5}));
    let started = started.unwrap();
    assert_eq!(serde_json::to_value(started.sandbox_type).unwrap(), "linuxSeccomp");
    let process = started.process;
    let (ended, call) =
        tokio::join!(process.terminate_with(Some(std::time::Duration::from_secs(1))), async {
            let call = scene.connection.expect("process/terminate").await;
            scene.connection.reply(&call, json!({"running": true})).await;
            call
        });
    assert!(ended.unwrap());
    assert_eq!(call.params, json!({"processId": "p", "graceMs": 1000}));
    let (closed, ()) = tokio::join!(process.close_stdin(), async {
        let call = scene.connection.expect("process/closeStdin").await;
        scene.connection.reply(&call, json!({"status": "accepted"})).await;
    });
    assert_eq!(closed.unwrap().status, WriteStatus::Accepted);
}

/// P14.
#[tokio::test]
async fn params_are_carried_unchanged() {
    let mut scene = Scene::new(json!({"networkProxyLaunch": true, "shellSnapshotV2": true})).await;
    let sandbox = json!({
        "permissions": {"type": "managed", "network": "restricted", "file_system": {"type": "restricted",
            "entries": [{"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"}]}},
        "cwd": "file:///work", "workspaceRoots": [], "windowsSandboxLevel": "disabled", "useLegacyLandlock": false
    });
    let params = json!({
        "processId": "p", "metadata": {"toolCallId": "c"}, "argv": ["a", ""], "cwd": "file:///my%20repo",
        "envPolicy": {"inherit": "core", "ignoreDefaultExcludes": true, "exclude": ["A*"], "set": {"B": "1"},
            "includeOnly": []},
        "env": {"C": "2"}, "tty": true, "pipeStdin": false, "arg0": "zero", "sandbox": sandbox,
        "enforceManagedNetwork": true, "managedNetwork": null, "networkProxy": {"proxy": {"mode": "full"}},
        "shellSnapshot": {"scopeId": "s", "shell": {"name": "sh", "path": "/bin/sh"}}
    });
    let exec = serde_json::from_value(params.clone()).unwrap();
    let (_, call) = tokio::join!(scene.backend.start(exec), async {
        let call = scene.connection.expect("process/start").await;
        scene.connection.reply(&call, json!({"processId": "p"})).await;
        call
    });
    assert_eq!(call.params, params);
}

#[tokio::test]
async fn the_last_holder_closes_the_connection() {
    let mut scene = Scene::new(json!({})).await;
    let process = scene.start("p").await;
    drop(scene.backend);
    let reading = {
        let process = Arc::clone(&process);
        tokio::spawn(async move { process.read(None, None, None).await })
    };
    scene.connection.expect("process/read").await;
    reading.abort();
    let _ = reading.await;
    let weak = Arc::downgrade(&process);
    drop(process);
    until(|| weak.upgrade().is_none()).await;
    assert_eq!(scene.connection.next().await, None);
    drop(scene.server);
}
