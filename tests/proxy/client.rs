//! The client: it is asked about what no rule names, and told what was decided.

use std::time::{Duration, Instant};

use exec_server::protocol::network::{ClientDecision, Decision, DecisionSource, ProxySettings};

use crate::support::{Connection, Names, Run, Target, settings};

fn local(allow: &[&str]) -> ProxySettings {
    ProxySettings { allow_local_binding: true, ..settings(allow) }
}

fn deny(reason: &str) -> Option<ClientDecision> {
    Some(ClientDecision::Deny { reason: reason.to_owned() })
}

#[tokio::test]
async fn the_client_decides_about_what_no_rule_names() {
    let target = Target::ok().await;
    let names = Names::default().with("yes.test", &[&["127.0.0.1"]]);
    let answers = |request: &exec_server::protocol::network::NetworkRequest| match request.host.as_str() {
        "yes.test" => Some(ClientDecision::Allow),
        "no.test" => deny("not today"),
        "ask.test" => Some(ClientDecision::Ask { reason: "please approve".to_owned() }),
        "bare.test" => deny(""),
        _ => None,
    };
    let mut run = Run::asking(local(&[]), names, Box::new(answers));
    assert_eq!(run.get("YES.test.", target.port).await.status, 200);
    for (host, reason, kind) in [
        ("no.test", "not today", "blocked-by-policy"),
        ("ask.test", "please approve", "blocked-by-policy"),
        ("bare.test", "policy_denied", "blocked-by-policy"),
        ("odd.test", "not_allowed", "blocked-by-allowlist"),
    ] {
        let reply = run.get(host, 80).await;
        assert_eq!((reply.reason().as_str(), reply.header("x-proxy-error")), (reason, Some(kind)));
        assert_eq!(reply.json()["source"], "decider");
    }
    let asked = run.questions();
    assert_eq!((asked[0].host.as_str(), asked[0].port, asked.len()), ("yes.test", target.port, 5));
    let reports = run.reports(5).await;
    let told = reports.iter().map(|report| (report.decision, report.reason.as_str(), report.policy_override));
    let expected = [
        (Decision::Allow, "not_allowed", true),
        (Decision::Deny, "not today", false),
        (Decision::Ask, "please approve", false),
        (Decision::Deny, "policy_denied", false),
        (Decision::Deny, "not_allowed", false),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
    assert!(reports.iter().all(|report| report.source == DecisionSource::Decider));
}

#[tokio::test]
async fn answers_are_not_remembered() {
    let target = Target::ok().await;
    let run = Run::asking(local(&[]), Names::default(), Box::new(|_| Some(ClientDecision::Allow)));
    let host = format!("127.0.0.1:{}", target.port);
    let mut connection = Connection::to(run.http()).await;
    for count in 1..4 {
        connection.send(format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).await;
        assert_eq!(connection.reply().await.status, 200);
        assert_eq!(run.questions().len(), count);
    }
}

#[tokio::test]
async fn an_allow_does_not_open_what_is_local() {
    let names = Names::default().with("inner.test", &[&["10.0.0.1"]]);
    let mut run = Run::asking(settings(&[]), names, Box::new(|_| Some(ClientDecision::Allow)));
    assert_eq!(run.get("inner.test", 80).await.reason(), "not_allowed_local");
    assert_eq!(run.get("127.0.0.1", 80).await.reason(), "not_allowed_local");
    assert_eq!(run.questions().len(), 1, "about what is local by its text nobody is asked");
    assert_eq!(run.reports(2).await[0].source, DecisionSource::BaselinePolicy);
}

#[tokio::test]
async fn review_is_asked_for_even_where_a_rule_allows() {
    let mut rules = local(&["*"]);
    rules.review_domains = vec!["pay.test".to_owned()];
    let silent = Run::new(rules.clone(), Names::default());
    assert_eq!(silent.get("pay.test", 80).await.reason(), "not_allowed");
    let asked = Run::asking(rules, Names::default(), Box::new(|_| deny("no")));
    assert_eq!(asked.get("pay.test", 80).await.reason(), "no");
    assert_eq!(asked.get("other.test", 80).await.status, 502);
    assert_eq!(asked.questions().len(), 1);
}

#[tokio::test]
async fn questions_do_not_wait_for_each_other() {
    let mut run = Run::asking(local(&[]), Names::default(), Box::new(|_| deny("no")));
    let mut waiting = Connection::to(run.http()).await;
    waiting.send(b"GET http://silent.test/ HTTP/1.1\r\nHost: silent.test\r\n\r\n").await;
    run.asked(1).await;
    assert_eq!(run.get("other.test", 80).await.reason(), "no");
    let began = Instant::now();
    run.leave().await;
    assert_eq!(waiting.reply().await.reason(), "not_allowed");
    assert_eq!(run.get("other.test", 80).await.reason(), "not_allowed", "nobody is there");
    assert!(began.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn no_report_of_a_busy_process_is_lost() {
    const REQUESTS: u64 = 400;
    let mut run = Run::allowing(&[]);
    let mut connection = Connection::to(run.http()).await;
    for _ in 0..REQUESTS {
        connection.send(b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
        assert_eq!(connection.reply().await.status, 403);
    }
    // All of them are told within a second of the last.
    let mut count = 1;
    loop {
        let reports = run.reports(count).await;
        if reports.iter().map(|report| report.count.unwrap_or(1)).sum::<u64>() == REQUESTS {
            return;
        }
        count = reports.len() + 1;
    }
}
