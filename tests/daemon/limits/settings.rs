//! Defaults and ceilings of the settings, and the server's own limits.

use std::time::Duration;

use pretty_assertions::assert_eq;
use serde_json::json;
use test_case::test_case;

use crate::support::{Daemon, Start};

#[tokio::test]
async fn a_start_is_held_to_default_and_ceiling() {
    let daemon = Daemon::setup()
        .set("limits.default.output_bytes", "10")
        .set("limits.max.output_bytes", "1000")
        .set("limits.max.open_files", "32")
        .start()
        .await;
    let client = daemon.client().await;
    let start = |limits| Start::sh("head -c 5000 /dev/zero; sleep 301").with("limits", limits);
    for (limits, bytes) in [(json!(null), 10), (json!({}), 10), (json!({"outputBytes": 1000}), 1000)] {
        let run = client.run(&start(limits)).await;
        assert_eq!((run.stdout.len(), &run.exited["limit"]), (bytes, &json!("outputBytes")));
    }
    let error = client.error("process/start", start(json!({"outputBytes": 1001})).params()).await;
    assert_eq!(error.code, -32602);
    assert_eq!(error.message, "`limits.outputBytes` must be at most 1000 here (limits.max.output_bytes)");
    // Not to ask is no way around a ceiling.
    assert_eq!(client.run(&Start::bash("ulimit -Hn")).await.text(), "32\n");
}

#[test_case("limits.default.memory_bytes=1000000", "limits.default.memory_bytes cannot be enforced: limits.cgroup is off"; "default")]
#[test_case("limits.max.processes=10", "limits.max.processes cannot be enforced: limits.cgroup is off"; "ceiling")]
#[tokio::test]
async fn a_setting_that_cannot_be_enforced_stops_the_start(setting: &str, expected: &str) {
    let (key, value) = setting.split_once('=').unwrap();
    let (code, log) = Daemon::setup().set("limits.cgroup", "off").set(key, value).refused().await;
    assert_eq!(code, Some(1));
    assert!(log.contains(expected), "{log}");
}

#[tokio::test]
async fn settings_that_contradict_each_other_stop_the_start() {
    let setup = Daemon::setup().set("limits.default.wall_ms", "9").set("limits.max.wall_ms", "8");
    let (code, log) = setup.refused().await;
    assert_eq!(code, Some(1));
    assert!(log.contains("limits.default.wall_ms is 9, above limits.max.wall_ms, 8"), "{log}");
    let (code, log) = Daemon::setup().set("limits.cgroup", "/tmp").refused().await;
    assert_eq!(code, Some(1));
    assert!(log.contains("limits.cgroup: /tmp is no cgroup v2 directory"), "{log}");
}

/// A repeated start is the same start only with the same limits.
#[tokio::test]
async fn limits_are_a_part_of_what_was_started() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let start = Start::sh("sleep 301").with("limits", json!({"wallMs": 3_600_000}));
    client.start(&start).await;
    let session = client.session_id();
    client.abort().await;
    let client = crate::support::Client::resume_when_free(daemon.url(), &session).await;
    assert_eq!(client.start(&start).await["alreadyStarted"], true);
    let other = start.clone().with("limits", json!({"wallMs": 3_600_001}));
    assert_eq!(client.error("process/start", other.params()).await.code, -32600);
    client.ok("process/terminate", json!({"processId": start.id(), "graceMs": 0})).await;
    client.finish(&start.id()).await;
}

/// Time is looked at by the clock, not by the work: an idle server with many limits uses no processor.
#[tokio::test]
async fn waiting_for_limits_costs_nothing() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    for _ in 0..50 {
        client
            .start(&Start::sh("sleep 301").with("limits", json!({"wallMs": 3_600_000, "outputBytes": 9})))
            .await;
    }
    let before = crate::support::machine::cpu_ticks(daemon.pid());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let used = crate::support::machine::cpu_ticks(daemon.pid()) - before;
    assert!(used <= 5, "{used} ticks in an idle second");
}
