//! `exec-server doctor` and `environmentInfo.sandbox`: what this machine can do, found out by doing it.

use std::process::{Command, Output};

use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use test_case::test_case;

use super::support::cgroup::Cgroup;
use super::support::machine::is_root;
use super::support::{Daemon, work_dir};

/// Runs words in an environment without anything of this one.
fn run(words: &[&str]) -> Output {
    let home = work_dir();
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .env_clear()
        .env("HOME", home.path())
        .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
    command.output().unwrap()
}

fn doctor(wrapper: &[&str], arguments: &[&str]) -> (Option<i32>, String) {
    let program: &[&str] = &[env!("CARGO_BIN_EXE_exec-server"), "doctor"];
    let output = run(&[wrapper, program, arguments].concat());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

fn diagnosis(wrapper: &[&str], arguments: &[&str]) -> (Option<i32>, Value) {
    let (code, text) = doctor(wrapper, &[arguments, &["--json"]].concat());
    (code, serde_json::from_str(&text).unwrap())
}

fn check<'a>(diagnosis: &'a Value, name: &str) -> &'a Value {
    let checks = diagnosis["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).unwrap()
}

/// Runs what follows where no more user namespaces can be made and nothing can be mounted.
const NO_NAMESPACES: &[&str] = &[
    "unshare",
    "-Ur",
    "sh",
    "-c",
    "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set -all --inh-caps -all \"$@\"",
    "sh",
];

#[test]
fn namespaces_have_no_gaps() {
    let (code, found) = diagnosis(&[], &[]);
    assert_eq!((code, &found["backend"], &found["gaps"]), (Some(0), &json!("namespaces"), &json!([])));
    assert_eq!(check(&found, "namespaces")["status"], "ok");
    let (code, text) = doctor(&[], &[]);
    assert_eq!(code, Some(0));
    assert!(text.contains("enforced by namespaces, without gaps"), "{text}");
}

#[test]
fn what_landlock_leaves_open_is_said() {
    let (code, found) = diagnosis(&[], &["--sandbox-backend", "landlock"]);
    assert_eq!((code, &found["backend"]), (Some(1), &json!("landlock")));
    assert!(found["gaps"].as_array().unwrap().contains(&json!("outsideMetadata")));
    let (_, text) = doctor(&[], &["--sandbox-backend", "landlock"]);
    assert!(text.contains("sandbox.accept_gaps"), "{text}");
}

#[test]
fn an_obstacle_is_named_with_its_fix() {
    let (code, found) = diagnosis(NO_NAMESPACES, &[]);
    assert_eq!((code, &found["backend"]), (Some(1), &json!("landlock")));
    let namespaces = check(&found, "namespaces");
    assert_eq!(namespaces["status"], "missing");
    assert!(
        namespaces["message"].as_str().unwrap().contains("user.max_user_namespaces is 0"),
        "{namespaces}"
    );
    assert!(namespaces["fixes"].to_string().contains("sysctl -w user.max_user_namespaces="), "{namespaces}");
    let (code, found) = diagnosis(NO_NAMESPACES, &["--sandbox-backend", "namespaces"]);
    assert_eq!((code, &found["backend"]), (Some(3), &Value::Null));
}

#[test]
fn small_limits_are_named_with_their_fix() {
    let (code, found) = diagnosis(&["prlimit", "--nofile=1024:1024", "--rss=1073741824"], &[]);
    assert_eq!(code, Some(0), "limits are no gaps");
    for (name, fix) in [("open files", "LimitNOFILE"), ("process marks", "LimitRSS")] {
        let found = check(&found, name);
        assert_eq!(found["status"], "warning");
        assert!(found["fixes"].to_string().contains(fix), "{found}");
    }
}

#[test]
fn limits_are_named_with_what_they_need() {
    let (_, found) = diagnosis(&[], &["--set", "limits.cgroup=off"]);
    let limits = check(&found, "process limits");
    let message = limits["message"].as_str().unwrap();
    assert!(
        message.contains("not to memoryBytes, processes, cpuMs") && message.contains("is off"),
        "{limits}"
    );
    let Some(cgroup) = Cgroup::with(&[]) else { return };
    let choice = format!("limits.cgroup={}", cgroup.path());
    let (_, found) = diagnosis(&[], &["--set", &choice]);
    let message = check(&found, "process limits")["message"].as_str().unwrap();
    assert!(message.contains(cgroup.path()), "{message}");
    assert!(cgroup.servers().is_empty(), "it only looks");
}

#[test]
fn an_ordinary_user_needs_no_privilege() {
    if !is_root() {
        return namespaces_have_no_gaps();
    }
    let copy = work_dir();
    let program = copy.path().join("exec-server");
    std::fs::copy(env!("CARGO_BIN_EXE_exec-server"), &program).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(copy.path(), open).unwrap();
    let words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program.to_str().unwrap()];
    let output = run(&[&words[..], &["doctor", "--json"]].concat());
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{found}");
    assert_eq!(check(&found, "state directory")["status"], "warning", "{found}");
}

#[test]
fn wrong_settings_are_no_diagnosis() {
    let program = env!("CARGO_BIN_EXE_exec-server");
    assert_eq!(run(&[program, "doctor", "--sandbox-backend", "none"]).status.code(), Some(2));
    let output = run(&[program, "doctor", "--set", "sandbox.accept_gaps=all"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
}

#[test_case(None, "namespaces"; "by itself")]
#[test_case(Some("landlock"), "landlock"; "forced")]
#[tokio::test]
async fn clients_are_told(backend: Option<&str>, default: &str) {
    let mut setup = Daemon::setup();
    if let Some(backend) = backend {
        setup = setup.argument("--sandbox-backend").argument(backend);
    }
    let daemon = setup.start().await;
    let client = daemon.client().await;
    let info = client.ok("environment/info", json!({})).await;
    let available = |name| json!({"name": name, "available": true, "reason": null});
    let expected = json!({"backends": [available("namespaces"), available("landlock")], "default": default});
    assert_eq!((&info["sandbox"], &info["capabilities"]["sandboxReport"]), (&expected, &json!(true)));
}

#[tokio::test]
async fn clients_are_told_what_is_not_there() {
    let daemon = Daemon::setup().wrapper(NO_NAMESPACES).start().await;
    let client = daemon.client().await;
    let info = client.ok("environment/info", json!({})).await;
    let sandbox = &info["sandbox"];
    assert_eq!(sandbox["default"], "landlock");
    assert_eq!(sandbox["backends"][0]["available"], false);
    assert!(!sandbox["backends"][0]["reason"].as_str().unwrap().is_empty());
}
