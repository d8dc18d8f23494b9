//! Shell snapshots as the contract has them, in this program and on a server.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use exec_server::path_uri::PathUri;
use exec_server::protocol::process::ExecParams;
use exec_server::protocol::sandbox::{FileSystemSandboxContext, PermissionProfile};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tempfile::TempDir;
use test_case::test_case;

use crate::support::events::read_to_close;
use crate::support::place::Place;

/// A shell of the contract: its name, its program, what it is shown as, and the file that it reads.
struct Case {
    name: &'static str,
    path: &'static str,
    arg0: Option<&'static str>,
    profile: &'static str,
}

fn case(kind: &str) -> Case {
    let (name, path, arg0, profile) = match kind {
        "bash" | "bash in a sandbox" => ("bash", "/bin/bash", None, ".bashrc"),
        "bash-env" => ("bash", "/bin/bash", None, ".bash-env"),
        "sh" => ("sh", "/bin/sh", None, ".snapshot-env"),
        "bash-sh" => ("sh", "/bin/bash", Some("sh"), ".snapshot-env"),
        "zsh" => ("zsh", "/bin/zsh", None, ".zshrc"),
        _ => ("zsh", "/bin/zsh", None, ".zshenv"),
    };
    Case { name, path, arg0, profile }
}

fn login(id: &str, case: &Case, home: &Path, command: &str, policy: &Value, tty: bool) -> ExecParams {
    serde_json::from_value(json!({
        "processId": id, "argv": [case.path, "-lc", command], "cwd": PathUri::from_native_path(home).unwrap(),
        "env": {}, "envPolicy": policy, "tty": tty, "arg0": case.arg0,
        "shellSnapshot": {"scopeId": "attachment-1", "shell": {"name": case.name, "path": case.path}},
    }))
    .unwrap()
}

fn context(permissions: PermissionProfile, cwd: &Path) -> FileSystemSandboxContext {
    FileSystemSandboxContext::from_permission_profile_with_cwd(
        permissions,
        PathUri::from_native_path(cwd).unwrap(),
    )
}

async fn output(place: &Place, params: ExecParams) -> (String, Option<i32>) {
    let process = place.process(params).await;
    let mut wake = process.subscribe_wake();
    read_to_close(&process, &mut wake).await
}

fn executable(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Exports that are allowed, secret and denied; a function that needs an option to be read; strict variables; builtins
/// of the profile's own; a tool in its PATH that counts its runs.
fn write_profile(home: &Path, case: &Case) {
    std::fs::create_dir(home.join("profile-bin")).unwrap();
    let tool = "#!/bin/sh\nprintf x >> \"$HOME/tool-captures\"\nexec /usr/bin/wc \"$@\"\n";
    executable(&home.join("profile-bin/wc"), tool);
    let padding = format!("padding() {{ printf '%s' '{}'; }}\n", "🦀".repeat(20_000));
    let own_builtins = if case.name == "sh" { "" } else { "unset() { exit 41; }\nbuiltin() { :; }\n" };
    let text = format!(
        "printf x >> \"$HOME/captures\"\nexport PATH=\"$HOME/profile-bin:/usr/bin:/bin\"\n\
         export PROFILE_ALLOWED=profile PROFILE_SECRET=secret PROFILE_DENIED=denied\n\
         helper() {{ printf helper; }}\nif [ -n \"${{BASH_VERSION-}}\" ]; then\n  shopt -s extglob nocasematch\n  \
         eval 'helper() {{ case $1 in @(foo|bar)*) printf helper ;; *) return 1 ;; esac; }}'\nfi\n\
         set -u\n{own_builtins}{}",
        if case.name == "bash" { padding.as_str() } else { "" }
    );
    std::fs::write(home.join(case.profile), text).unwrap();
    if case.profile == ".zshenv" {
        std::fs::write(home.join(".zshrc"), "export PATH=\"$HOME/profile-bin:/usr/bin:/bin\"\n").unwrap();
    }
}

fn policy(home: &Path, case: &Case) -> Value {
    let mut set = json!({"HOME": home});
    for index in 0..1_000 {
        set[format!("PROFILE_ENTRY_{index}")] = json!(format!("value-{index}"));
    }
    if case.name == "sh" {
        set["ENV"] = json!("${XDG_CONFIG_HOME:-$HOME}/.snapshot-env");
        for index in 0..3 {
            set[format!("PROFILE_SDK_{index}")] = json!("x".repeat(60 << 10));
        }
    }
    if case.profile == ".bash-env" {
        set["BASH_ENV"] = json!(home.join(case.profile));
    }
    let include = ["BASH_ENV", "ENV", "HOME", "PATH", "PROFILE_*"];
    json!({"inherit": "all", "ignoreDefaultExcludes": false, "exclude": ["PROFILE_DENIED"], "set": set, "includeOnly": include})
}

#[test_case(false, false, "bash"; "local pipe")]
#[test_case(false, true, "bash"; "local tty")]
#[test_case(false, false, "bash-env"; "local bash env")]
#[test_case(false, false, "sh"; "local sh")]
#[test_case(false, false, "bash-sh"; "local bash backed sh")]
#[test_case(false, false, "zsh"; "local zsh")]
#[test_case(false, false, "zshenv"; "local zshenv")]
#[test_case(true, false, "bash"; "remote pipe")]
#[test_case(true, true, "bash"; "remote tty")]
#[test_case(true, false, "bash in a sandbox"; "remote sandbox")]
#[test_case(false, false, "bash in a sandbox"; "local sandbox")]
#[test_case(true, false, "bash-env"; "remote bash env")]
#[test_case(true, false, "sh"; "remote sh")]
#[test_case(true, false, "bash-sh"; "remote bash backed sh")]
#[test_case(true, false, "zsh"; "remote zsh")]
#[test_case(true, false, "zshenv"; "remote zshenv")]
#[tokio::test]
async fn profile_exports_are_filtered_and_stay_in_memory(remote: bool, tty: bool, kind: &str) {
    let place = Place::new(remote).await;
    let (home, case) = (TempDir::new().unwrap(), case(kind));
    let home = home.path();
    write_profile(home, &case);
    let policy = policy(home, &case);
    let runtime = home.join("runtime-bin").display().to_string();
    // dash cannot list functions.
    let (call, called) = if kind == "sh" { ("", "") } else { ("helper FOObar; ", "helper") };
    let command = format!(
        "case $- in *u*) ;; *) exit 42 ;; esac; [ \"${{PROFILE_ENTRY_999-missing}}\" = value-999 ] || exit 43; \
         export PATH='{runtime}':\"$PATH\"; {call}printf '|%s' \"$PROFILE_ALLOWED\" \"${{PROFILE_SECRET-missing}}\" \
         \"${{PROFILE_DENIED-missing}}\" \"$PATH\""
    );
    let path = format!("{runtime}:{}/profile-bin:/usr/bin:/bin", home.display());
    for attempt in ["one", "two"] {
        let mut params = login(attempt, &case, home, &command, &policy, tty);
        // What is remembered does not depend on who is confined.
        let confines = kind == "bash in a sandbox" && attempt == "one";
        params.sandbox = confines.then(|| context(PermissionProfile::read_only(), home));
        let ran = output(&place, params).await;
        assert_eq!(ran, (format!("{called}|profile|missing|missing|{path}"), Some(0)));
    }
    assert_eq!(std::fs::read_to_string(home.join("captures")).unwrap(), "x");
    assert!(!std::fs::read(home.join("tool-captures")).unwrap().is_empty());
    let left: Vec<_> = std::fs::read_dir(home).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("snapshots")), "{left:?}");
}

#[test_case(false, false, "bash", 1; "local pipe recovery")]
#[test_case(false, true, "bash", 1; "local tty recovery")]
#[test_case(false, false, "zsh", 1; "local zsh recovery")]
#[test_case(false, false, "bash", 3; "local retry budget exhausted")]
#[test_case(true, false, "bash", 1; "remote pipe recovery")]
#[test_case(true, true, "bash", 1; "remote tty recovery")]
#[test_case(true, false, "zsh", 1; "remote zsh recovery")]
#[test_case(true, false, "bash", 3; "remote retry budget exhausted")]
#[tokio::test]
async fn a_failed_capture_falls_back_and_is_retried(remote: bool, tty: bool, kind: &str, failures: usize) {
    let place = Place::new(remote).await;
    let (home, case) = (TempDir::new().unwrap(), case(kind));
    let home = home.path();
    let profile = |text: &str| {
        std::fs::write(home.join(case.profile), format!("printf x >> \"$HOME/captures\"\n{text}\n")).unwrap();
    };
    let captures = || std::fs::read_to_string(home.join("captures")).unwrap().len();
    let policy = json!({
        "inherit": "all", "ignoreDefaultExcludes": false, "exclude": [], "set": {"HOME": home},
        "includeOnly": ["HOME", "PATH"],
    });
    let command = "if command -v helper >/dev/null; then helper; else printf original; fi";
    let start = |id: String| {
        let mut params = login(&id, &case, home, command, &policy, tty);
        params.sandbox = remote.then(|| context(PermissionProfile::workspace_write(), home));
        output(&place, params)
    };
    profile("exit 7");
    for attempt in 1..=failures {
        assert_eq!(start(format!("fallback-{attempt}")).await, ("original".to_owned(), Some(0)));
        assert_eq!(captures(), attempt);
        // The contract's own time between attempts, on the server's clock.
        tokio::time::sleep(Duration::from_millis(1_100)).await;
    }
    profile("helper() { printf recovered; }");
    let (expected, expected_captures) =
        if failures == 3 { ("original", 3) } else { ("recovered", failures + 1) };
    for attempt in 0..2 {
        assert_eq!(start(format!("repaired-{attempt}")).await, (expected.to_owned(), Some(0)));
    }
    assert_eq!(captures(), expected_captures);
}
