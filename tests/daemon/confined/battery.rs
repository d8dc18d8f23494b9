//! Every attempt under every policy: whatever is answered, nothing that the policy keeps is read or changed.

use serde_json::{Value, json};
use test_case::test_case;

use super::{DAEMON, Policy, Room};
use crate::support::{Client, Daemon, unbase64};

/// What an answer tells, with what it carries in base64.
fn told(answer: &Value) -> String {
    let carried = ["dataBase64", "chunk"].iter().filter_map(|name| answer[*name].as_str());
    let carried: String = carried.map(|text| String::from_utf8_lossy(&unbase64(text)).into_owned()).collect();
    format!("{answer} {carried}")
}

/// One call; a file that it opens is read, written and closed.
async fn tell(client: &Client, method: &str, params: &Value, context: &Value) -> String {
    let mut params = params.clone();
    params["sandbox"] = context.clone();
    let mut text = match client.call(method, params.clone()).await {
        Ok(answer) => told(&answer),
        // Errors repeat the path that was asked for.
        Err(error) => format!("{} {}", error.code, error.data),
    };
    if method == "fs/open" {
        let read = json!({"handleId": "h", "offset": 0, "len": 4096});
        text +=
            &client.call("fs/readBlock", read).await.map_or_else(|error| error.message, |block| told(&block));
        let write = json!({"handleId": "h", "offset": 0, "chunk": "cGxhbnRlZA=="});
        client.call("fs/writeBlock", write).await.ok();
        client.ok("fs/close", json!({"handleId": "h"})).await;
    }
    text
}

#[test_case(Policy::ReadOnly)]
#[test_case(Policy::WorkspaceWrite)]
#[test_case(Policy::RestrictedRead)]
#[test_case(Policy::Denials)]
#[tokio::test]
async fn no_attempt_gets_out(policy: Policy) {
    let daemon = Daemon::setup().variable("TEST_SECRET", DAEMON).start().await;
    let client = daemon.client().await;
    let room = Room::new();
    let (context, kept) = room.policy(policy);
    let attempts = room.attempts(daemon.pid());
    assert!(attempts.len() > 300, "{}", attempts.len());
    let (secrets, mut failures) = (policy.secrets(&room), Vec::new());
    let mut before = (room.picture(&["w"]), room.picture(&kept));
    for attempt in attempts {
        for (method, params) in &attempt.calls {
            let text = tell(&client, method, params, &context).await;
            if let Some(secret) = secrets.iter().find(|secret| text.contains(*secret)) {
                failures.push(format!("{} tells {secret}", attempt.what));
            }
        }
        let after = (room.picture(&["w"]), room.picture(&kept));
        if after.1 != before.1 {
            failures.push(format!("{} changes {:#?}\nto {:#?}", attempt.what, before.1, after.1));
        }
        if after != before {
            room.refurnish();
            before = (room.picture(&["w"]), room.picture(&kept));
        }
    }
    assert!(failures.is_empty(), "{policy:?}:\n{}", failures.join("\n"));
    assert!(!std::path::Path::new("/dev/shm/exec-server-test-new").exists());
    let comm = std::fs::read_to_string(format!("/proc/{}/comm", daemon.pid())).unwrap();
    assert_eq!(comm.trim(), "exec-server");
}

/// The battery would notice: without a context the same calls do read and change what must be kept.
#[tokio::test]
async fn without_a_context_the_attempts_succeed() {
    let daemon = Daemon::setup().variable("TEST_SECRET", DAEMON).start().await;
    let client = daemon.client().await;
    let (mut told_some, mut changed_some) = (0, 0);
    for method in ["fs/readFile", "fs/writeFile", "fs/createDirectory"] {
        let room = Room::new();
        for attempt in room.attempts(daemon.pid()) {
            let (first, params) = &attempt.calls[0];
            let path = params["path"].as_str().unwrap_or_default();
            let is_own = path.starts_with(&room.uri("")) || path.ends_with("/environ");
            if *first != method
                || !is_own
                || !attempt.what.contains("environ") && !attempt.what.contains("w/")
            {
                continue;
            }
            let before = room.picture(&["out", "w"]);
            let text = tell(&client, first, params, &Value::Null).await;
            told_some += u32::from(text.contains("SECRET"));
            changed_some += u32::from(room.picture(&["out", "w"]) != before);
        }
    }
    assert!(told_some >= 15 && changed_some >= 15, "{told_some} {changed_some}");
}
