//! The client is asked, and told.

use serde_json::{Value, json};

use super::target::Target;
use super::{asking, launch};
use crate::support::{Client, Daemon, Start};

/// Asks the proxy for a URL and prints the status, then the answer.
fn fetch(url: &str, times: usize) -> Start {
    let one = format!("curl -s -o - -w '[%{{http_code}}]' {url}; ");
    Start::bash(&one.repeat(times))
}

fn told(all: &[Value]) -> Vec<&Value> {
    let told = all.iter().filter(|message| message["method"] == "network/policyDecision");
    told.map(|message| &message["params"]).collect()
}

#[tokio::test]
async fn the_client_is_asked_about_hosts_without_a_rule_and_told_what_came_of_it() {
    let (daemon, target) = (Daemon::start().await, Target::at("127.0.0.1").await);
    let client = daemon.client().await;
    let rules = json!({"127.0.0.1": "allow"});
    let mut launch = asking(&rules);
    launch["proxy"]["reviewDomains"] = json!(["127.0.0.1"]);
    let start = fetch(&format!("http://127.0.0.1:{}/", target.port), 2).with("networkProxy", launch);
    client.start(&start).await;
    let question = client.question(1).await;
    assert_eq!(question["method"], "network/policyRequest");
    let request = json!({"protocol": "http", "host": "127.0.0.1", "port": target.port});
    assert_eq!(question["params"], json!({"processId": start.id(), "request": request}));
    assert_eq!(target.hits(), 0);
    client.decide(1, json!({"type": "allow"})).await;
    client.question(2).await;
    client.decide(2, json!({"type": "ask", "reason": "my user decides"})).await;
    let run = client.finish(&start.id()).await;
    let text = run.text();
    assert!(text.starts_with("HIT[200]") && text.ends_with("[403]"), "{text}");
    assert!(text.contains("my user decides"), "{text}");
    assert_eq!(target.hits(), 1);
    let told = client
        .wait_network("two decisions", |all| {
            (told(all).len() == 2).then(|| told(all).into_iter().cloned().collect::<Vec<_>>())
        })
        .await;
    let part = |of: &Value| json!([of["decision"], of["source"], of["reason"], of["policyOverride"]]);
    assert_eq!(part(&told[0]), json!(["allow", "decider", "not_allowed", true]));
    assert_eq!(part(&told[1]), json!(["ask", "decider", "my user decides", false]));
}

#[tokio::test]
async fn questions_are_answered_in_any_order_and_answers_to_none_are_ignored() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let script = "curl -s -o /dev/null -w 'one[%{http_code}]' http://one.invalid/ & \
                  curl -s -o /dev/null -w 'two[%{http_code}]' http://two.invalid/ & wait";
    let start = Start::bash(script).with("networkProxy", asking(&json!({})));
    client.start(&start).await;
    let (first, second) = (client.question(1).await, client.question(2).await);
    assert_ne!(first["params"]["request"]["host"], second["params"]["request"]["host"]);
    client.decide(77, json!({"type": "allow"})).await;
    client.text(&json!({"id": "1", "result": {"decision": {"type": "allow"}}}).to_string()).await;
    client.decide(2, json!({"type": "deny", "reason": "no"})).await;
    client.decide(2, json!({"type": "allow"})).await;
    client.text(&json!({"id": 1, "error": {"code": -32601, "message": "what?"}}).to_string()).await;
    let text = client.finish(&start.id()).await.text();
    assert!(text.contains("one[403]") && text.contains("two[403]"), "{text}");
    client.round_trip().await;
}

#[tokio::test]
async fn a_client_that_is_away_is_not_waited_for_and_the_next_one_is_asked() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let script =
        "for i in 1 2 3; do read line; curl -s -o /dev/null -w '[%{http_code}]' http://a.invalid/; done";
    let start = Start::bash(script).stdin().with("networkProxy", asking(&json!({})));
    client.start(&start).await;
    client.write(&start.id(), "1", b"\n").await;
    client.question(1).await;
    let session = client.session_id();
    client.abort().await;
    // The question that was open is denied, which is seen by its output only.
    let client = Client::resume_when_free(daemon.url(), &session).await;
    client.ok("process/read", json!({"processId": start.id(), "afterSeq": 0, "waitMs": 20_000})).await;
    client.write(&start.id(), "2", b"\n").await;
    let again = client.question(1).await;
    assert_eq!(again["params"]["request"]["host"], "a.invalid");
    client.decide(1, json!({"type": "deny", "reason": "no"})).await;
    client.write(&start.id(), "3", b"\n").await;
    client.question(2).await;
    client.ok("process/terminate", json!({"processId": start.id(), "graceMs": 0})).await;
    client.wait_event(&start.id(), "process/closed").await;
}

#[tokio::test]
async fn a_flood_of_decisions_is_joined_and_keeps_nobody_waiting() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    // One connection, so that what is measured is the proxy and not the making of connections.
    let script = "import os, socket\n\
        port = int(os.environ['HTTP_PROXY'].rpartition(':')[2])\n\
        s = socket.create_connection(('127.0.0.1', port))\n\
        one = b'GET http://a.invalid/ HTTP/1.1\\r\\nHost: a.invalid\\r\\n\\r\\n'\n\
        for i in range(20):\n    s.sendall(one * 100)\n    seen = b''\n    while seen.count(b'HTTP/1.1 403') < 100: seen += s.recv(1 << 20)\n";
    let start = Start::argv(["/usr/bin/python3", "-c", script]).with("networkProxy", launch(&json!({})));
    client.start(&start).await;
    assert_eq!(client.finish(&start.id()).await.exit(), 0);
    let count =
        |all: &[Value]| told(all).iter().map(|params| params["count"].as_u64().unwrap_or(1)).sum::<u64>();
    let messages =
        client.wait_network("2,000 decisions", |all| (count(all) == 2000).then(|| told(all).len())).await;
    assert!(messages < 1000, "{messages}");
}
