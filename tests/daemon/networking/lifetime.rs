//! How long a proxy lives, and for which runs of a start.

use std::net::TcpStream;

use serde_json::{Value, json};

use super::launch;
use super::target::Target;
use crate::support::{Client, Daemon, LIMIT, Start, eventually, sandbox, work_dir};

/// Prints the port of its HTTP listener, then waits for input.
async fn port(client: &Client, start: &Start) -> u16 {
    client.start(start).await;
    client.wait_output(&start.id(), "\n").await;
    let text = client.so_far(&start.id()).text();
    text.trim().rsplit(':').next().unwrap().parse().unwrap()
}

fn is_open(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

#[tokio::test]
async fn a_proxy_lives_until_its_process_is_closed_and_leaves_nothing() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let before = daemon.descriptors();
    // The child keeps the output, and so the process from being closed.
    let script = "echo $HTTP_PROXY; read line; sleep 1000 & echo $!";
    let start = Start::bash(script).stdin().with("networkProxy", launch(&json!({})));
    let port = port(&client, &start).await;
    assert!(is_open(port));
    client.write(&start.id(), "1", b"\n").await;
    client.wait_event(&start.id(), "process/exited").await;
    assert!(is_open(port));
    client.ok("process/terminate", json!({"processId": start.id(), "graceMs": 0})).await;
    client.wait_event(&start.id(), "process/closed").await;
    eventually("the listener is gone", LIMIT, || !is_open(port)).await;
    daemon.descriptors_back(before).await;
}

#[tokio::test]
async fn starts_that_fail_leave_no_listener() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    client.error("process/start", Start::argv(["/nonexistent"]).params()).await;
    let before = daemon.descriptors();
    for context in [Value::Null, sandbox::read_only("enabled")] {
        let start = Start::argv(["/nonexistent"])
            .with("networkProxy", launch(&json!({})))
            .with("enforceManagedNetwork", json!(true))
            .with("sandbox", context);
        let error = client.error("process/start", start.params()).await;
        assert_eq!(error.code, -32603, "{error:?}");
    }
    daemon.descriptors_back(before).await;
}

/// The capture of a shell and the command meet at one proxy; the profile can use it.
#[tokio::test]
async fn the_profile_of_a_first_start_has_the_same_proxy() {
    let (daemon, target) = (Daemon::start().await, Target::at("127.0.0.1").await);
    let home = work_dir();
    let profile = format!(
        "export FROM_PROFILE=$(curl -s http://127.0.0.1:{}/); echo $HTTP_PROXY >> proxies",
        target.port
    );
    std::fs::write(home.path().join(".bash_profile"), profile).unwrap();
    let client = daemon.client().await;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let start = Start::argv(["/bin/bash", "-lc", "echo $FROM_PROFILE $HTTP_PROXY"])
            .cwd(home.path())
            .env("HOME", home.path().to_str().unwrap())
            .with("shellSnapshot", json!({"scopeId": "s", "shell": {"name": "bash", "path": "/bin/bash"}}))
            .with("networkProxy", launch(&json!({"127.0.0.1": "allow"})));
        let text = client.run(&start).await.text();
        let proxy = text.trim().strip_prefix("HIT ").unwrap_or_else(|| panic!("{text}")).to_owned();
        seen.push(proxy);
    }
    assert_ne!(seen[0], seen[1]);
    assert_eq!(std::fs::read_to_string(home.path().join("proxies")).unwrap().trim(), seen[0]);
    assert_eq!(target.hits(), 1);
}

#[tokio::test]
async fn variables_that_contradict_their_list_stop_the_program_and_those_of_no_use_the_start() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let enforced = |variable: &str, listed: u16| {
        Start::sh("echo ran")
            .env("HTTPS_PROXY", variable)
            .with("sandbox", sandbox::read_only("enabled"))
            .with("enforceManagedNetwork", json!(true))
            .with("managedNetwork", json!({"loopbackPorts": [listed]}))
    };
    let run = client.run(&enforced("http://127.0.0.1:3128", 3129)).await;
    assert_eq!((run.exit(), run.text().as_str()), (127, ""));
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(said.contains("HTTPS_PROXY") && said.contains("loopbackPorts"), "{said}");
    let url = daemon.url().replace("ws://", "http://");
    for (variable, part) in [
        ("http://10.0.0.1:3128", "HTTPS_PROXY"),
        ("", "networkProxy"),
        (url.trim_end_matches('/'), "this server"),
    ] {
        let listed = variable.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(3128);
        let error = client.error("process/start", enforced(variable, listed).params()).await;
        assert!(error.code == -32602 && error.message.contains(part), "{error:?}");
    }
}
