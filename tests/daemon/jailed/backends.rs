//! Which backend a policy goes to, and what is said of it.

use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use test_case::test_case;

use super::{Area, entry, forced, special};
use crate::support::{Daemon, Start};

fn unlimited(permissions: &Value) -> Value {
    json!({"permissions": permissions, "windowsSandboxLevel": "disabled"})
}

async fn answer(client: &crate::support::Client, start: Start) -> Value {
    let answer = client.start(&start).await;
    client.finish(&start.id()).await;
    answer
}

#[tokio::test]
async fn every_start_says_what_enforces_it() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let area = Area::new();
    let cases = [
        (Value::Null, "none", json!(null)),
        (unlimited(&json!({"type": "disabled"})), "linuxSeccomp", json!(null)),
        (unlimited(&json!({"type": "external", "network": "enabled"})), "linuxSeccomp", json!(null)),
        (unlimited(&json!({"type": "external", "network": "restricted"})), "linuxSeccomp", json!("seccomp")),
        (area.context(&[special("root", "write")], "enabled"), "linuxSeccomp", json!(null)),
        (area.context(&[special("root", "write")], "restricted"), "linuxSeccomp", json!("seccomp")),
        (area.read_only(), "linuxSeccomp", json!("namespaces")),
        (area.restricted_read(), "linuxSeccomp", json!("namespaces")),
        (area.networked(), "linuxSeccomp", json!("namespaces")),
    ];
    for (sandbox, kind, backend) in cases {
        let answer = answer(&client, area.sh("true", sandbox.clone())).await;
        let said = (&answer["sandboxType"], &answer["sandboxBackend"], &answer["sandboxGaps"]);
        assert_eq!(said, (&json!(kind), &backend, &json!([])), "{sandbox}");
    }
}

/// Files are free where only the network is restricted; a server without namespaces can do that as well.
#[test_case("namespaces")]
#[test_case("landlock")]
#[tokio::test]
async fn a_network_filter_needs_no_backend(backend: &str) {
    let (_daemon, client) = forced(backend).await;
    let area = Area::new();
    let script = format!(
        "touch {0}/made && rm {0}/made; grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status; \
        python3 -c 'import socket; socket.socket()' 2>&1 | tail -n 1",
        area.out.display()
    );
    let sandbox = unlimited(
        &json!({"type": "managed", "file_system": {"type": "unrestricted"}, "network": "restricted"}),
    );
    let run = client.run(&area.sh(&script, sandbox)).await;
    assert_eq!(
        run.text(),
        "NoNewPrivs:\t1\nSeccomp:\t2\nPermissionError: [Errno 1] Operation not permitted\n"
    );
}

#[test_case(json!({"type": "path", "path": "file://host/x"}), -32602, "sandboxPreparation"; "foreign path")]
#[test_case(json!({"type": "glob_pattern", "pattern": "/**/*.env"}), -32603, "sandboxPreparation"; "glob without a root")]
#[test_case(json!({"type": "glob_pattern", "pattern": "{a"}), -32603, "sandboxPreparation"; "malformed glob")]
#[tokio::test]
async fn what_cannot_be_built_is_refused(path: Value, code: i64, kind: &str) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let area = Area::new();
    let policy = area.workspace_and(&[json!({"path": path, "access": "deny"})]);
    let error = client.error("process/start", area.sh("touch ran", policy).params()).await;
    assert_eq!((error.code, error.kind()), (code, kind), "{error:?}");
    assert_eq!(area.names(), ["f"]);
}

#[tokio::test]
async fn mechanisms_that_cannot_be_had_are_refused() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let area = Area::new();
    let mut legacy = area.read_only();
    legacy["useLegacyLandlock"] = json!(true);
    let error = client.error("process/start", area.sh("true", legacy).params()).await;
    assert_eq!((error.code, error.kind(), &error.data["gaps"]), (-32603, "sandboxUnavailable", &json!([])));
    let mut other = area.read_only();
    other["windowsSandboxLevel"] = json!("mxc");
    let error = client.error("process/start", area.sh("true", other).params()).await;
    assert_eq!((error.code, error.kind()), (-32602, "sandboxUnavailable"));
}

/// What takes user namespaces from a server, and its capabilities too.
const NO_NAMESPACES: [&str; 9] = [
    "bwrap",
    "--die-with-parent",
    "--unshare-user",
    "--disable-userns",
    "--cap-drop",
    "ALL",
    "--dev-bind",
    "/",
    "/",
];

/// Without user namespaces a server that has the capabilities itself makes the other ones.
#[tokio::test]
async fn capabilities_stand_in_for_user_namespaces() {
    let area = Area::new();
    let wrapper = [
        "bwrap",
        "--die-with-parent",
        "--unshare-user",
        "--disable-userns",
        "--cap-add",
        "ALL",
        "--dev-bind",
        "/",
        "/",
    ];
    let daemon = Daemon::setup().wrapper(&wrapper).start().await;
    let client = daemon.client().await;
    let script = "readlink /proc/self/ns/user; grep -E '^Cap(Eff|Bnd):' /proc/self/status; touch n; touch /usr/n 2>/dev/null; \
                  (: >> /proc/sys/kernel/hostname) 2>/dev/null; ls /proc | grep -c '^[0-9]'";
    let start = area.bash(script, area.workspace_write());
    let answer = client.start(&start).await;
    assert_eq!(answer["sandboxBackend"], "namespaces");
    let inside = client.finish(&start.id()).await.text();
    let outside = client.run(&area.bash("readlink /proc/self/ns/user", Value::Null)).await.text();
    let lines: Vec<_> = inside.lines().collect();
    assert_eq!(lines[..3], [outside.trim_end(), "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000"]);
    assert!(lines[3].parse::<u32>().unwrap() < 10);
    assert_eq!(area.names(), ["f", "n"]);
}

/// Without either it falls to Landlock, and refuses what that cannot do.
#[tokio::test]
async fn a_server_without_namespaces() {
    let area = Area::new();
    let daemon = Daemon::setup().wrapper(&NO_NAMESPACES).start().await;
    let client = daemon.client().await;
    let read_only = answer(&client, area.sh("true", area.read_only())).await;
    assert_eq!(read_only["sandboxBackend"], "landlock");
    let error = client.error("process/start", area.sh("true", area.workspace_write()).params()).await;
    assert_eq!(error.kind(), "sandboxUnavailable");
    assert_eq!(error.data["gaps"], json!(["outsideMetadata", "protectedMetadata"]));
    assert!(error.message.contains("sandbox.accept_gaps"), "{error:?}");
    let denied = area.workspace_and(&[entry(&area.out, "deny")]);
    let error = client.error("process/start", area.sh("true", denied).params()).await;
    assert_eq!((error.kind(), &error.data["gaps"]), ("sandboxUnavailable", &json!([])));
}

/// A backend that was named and cannot be had refuses; nothing else is taken in its place.
#[tokio::test]
async fn a_named_backend_has_no_substitute() {
    let area = Area::new();
    let setup = Daemon::setup().wrapper(&NO_NAMESPACES);
    let daemon = setup.argument("--sandbox-backend").argument("namespaces").start().await;
    let client = daemon.client().await;
    let error = client.error("process/start", area.sh("true", area.read_only()).params()).await;
    assert_eq!((error.code, error.kind()), (-32603, "sandboxUnavailable"), "{error:?}");
}
