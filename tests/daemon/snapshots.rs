//! Shell snapshots: who gets one, what runs for it, and what hostile start-up files can do.

use std::path::Path;
use std::time::{Duration, Instant};

use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use test_case::test_case;

use super::support::sandbox::{read_only, workspace};
use super::support::{Client, Daemon, LIMIT, Marker, Run, Start, eventually, machine, work_dir};

/// A home whose start-up file counts how often it runs.
pub(super) struct Home(tempfile::TempDir);

const HELPER: &str = "helper() { printf helper; }\n";
const PROBE: &str = "if command -v helper >/dev/null; then helper; else printf plain; fi";

impl Home {
    pub(super) fn new(shell: &str, profile: &str) -> Self {
        let home = Self(work_dir());
        home.write(shell, profile);
        home
    }

    fn write(&self, shell: &str, profile: &str) {
        let name = match shell {
            "bash" => ".bashrc",
            "zsh" => ".zshrc",
            _ => ".env",
        };
        std::fs::write(self.path().join(name), format!("printf x >> \"$HOME/runs\"\n{profile}")).unwrap();
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn runs(&self) -> usize {
        std::fs::read(self.path().join("runs")).map_or(0, |runs| runs.len())
    }

    pub(super) fn start(&self, shell: &str, command: &str) -> Start {
        let path = if shell == "bash as sh" { "/bin/bash".to_owned() } else { format!("/bin/{shell}") };
        let name = if shell == "bash as sh" { "sh" } else { shell };
        let start = Start::argv([path.as_str(), "-lc", command])
            .no_env()
            .with("envPolicy", self.policy(json!({})))
            .with("shellSnapshot", json!({"scopeId": "s", "shell": {"name": name, "path": path}}))
            .cwd(self.path());
        if shell == "bash as sh" { start.with("arg0", json!("sh")) } else { start }
    }

    fn policy(&self, change: Value) -> Value {
        let mut policy = json!({
            "inherit": "none", "ignoreDefaultExcludes": false, "exclude": [], "includeOnly": [],
            "set": {"HOME": self.path(), "ENV": "$HOME/.env"},
        });
        for (member, value) in change.as_object().unwrap() {
            policy[member] = value.clone();
        }
        policy
    }
}

/// The state that the answer tells, and what the command did.
pub(super) async fn run(client: &Client, start: &Start) -> (String, Run) {
    let answer = client.start(start).await;
    let told = &answer["shellSnapshot"];
    let state = told["state"].as_str().unwrap_or("none").to_owned();
    assert_eq!(told["reason"].is_string(), state == "fallback", "{told}");
    (state, client.finish(&start.id()).await)
}

/// Runs and asserts what is told and printed, on standard output alone.
#[track_caller]
fn told<'a>(
    client: &'a Client,
    start: &'a Start,
    state: &'a str,
    output: &'a str,
) -> impl Future<Output = ()> + 'a {
    let place = std::panic::Location::caller();
    async move {
        let (told, run) = run(client, start).await;
        let errors = String::from_utf8_lossy(&run.stderr).into_owned();
        let expected = (state.to_owned(), output.to_owned(), String::new());
        assert_eq!((told, String::from_utf8_lossy(&run.stdout).into_owned(), errors), expected, "{place}");
    }
}

fn reason(answer: &Value) -> &str {
    answer["shellSnapshot"]["reason"].as_str().unwrap_or_default()
}

#[test_case("bash"; "bash")]
#[test_case("zsh"; "zsh")]
#[test_case("sh"; "sh")]
#[test_case("bash as sh"; "bash as sh")]
#[tokio::test]
async fn start_up_files_run_once(shell: &str) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let home = Home::new(shell, "export SEEN=1\nalias mi='printf ALIAS-%s'\necho noise; echo noise >&2\n");
    let command = "printf $SEEN; mi x; (mi y)\nmi z; printf '|%s' \"$0\" \"$@\"";
    let shown = match shell {
        "bash as sh" => "sh".to_owned(),
        shell => format!("/bin/{shell}"),
    };
    for state in ["captured", "restored", "restored"] {
        told(&client, &home.start(shell, command), state, &format!("1ALIAS-xALIAS-yALIAS-z|{shown}")).await;
    }
    let mut argv = home.start(shell, command).params()["argv"].clone();
    argv.as_array_mut().unwrap().extend([json!("zero"), json!("one"), json!("two words")]);
    let start = home.start(shell, command).with("argv", argv);
    told(&client, &start, "restored", "1ALIAS-xALIAS-yALIAS-z|zero|one|two words").await;
    let (state, run) = run(&client, &home.start(shell, "exit 7").tty(true)).await;
    assert_eq!((state.as_str(), run.exit()), ("restored", 7));
    assert_eq!(home.runs(), 1);
}

#[tokio::test]
async fn who_asks_for_none_is_told_nothing() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let info = client.ok("environment/info", json!({})).await;
    assert_eq!(info["capabilities"]["shellSnapshotV2"], true);
    assert_eq!(info["capabilities"]["shellSnapshotReport"], true);
    let home = Home::new("bash", HELPER);
    let other_shape = home.start("bash", PROBE).with("argv", json!(["/bin/bash", "-c", PROBE]));
    told(&client, &other_shape, "none", "plain").await;
    told(&client, &home.start("bash", PROBE).with("shellSnapshot", Value::Null), "none", "plain").await;
    assert_eq!(home.runs(), 0);
}

#[tokio::test]
async fn turned_off_it_is_neither_announced_nor_done() {
    let daemon = Daemon::setup().set("snapshot.enabled", "false").start().await;
    let client = daemon.client().await;
    let info = client.ok("environment/info", json!({})).await;
    assert_eq!(info["capabilities"]["shellSnapshotV2"], false);
    let home = Home::new("bash", HELPER);
    let answer = client.start(&home.start("bash", PROBE)).await;
    assert!(reason(&answer).contains("snapshot.enabled"), "{answer}");
    assert_eq!(home.runs(), 0);
}

#[test_case("bash"; "bash")]
#[test_case("zsh"; "zsh")]
#[tokio::test]
async fn a_failure_is_told_with_its_reason(shell: &str) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let home = Home::new(shell, "exit 7\n");
    for expected in ["ended the shell", "less than a second ago"] {
        let start = home.start(shell, PROBE);
        let answer = client.start(&start).await;
        assert!(reason(&answer).contains(expected), "{answer}");
        assert_eq!(client.finish(&start.id()).await.text(), "plain");
    }
    assert_eq!(home.runs(), 1);
    // A repeat of the start, on a later connection, is told the same.
    let start = home.start(shell, "sleep 60");
    let first = client.start(&start).await;
    let session = client.session_id();
    client.abort().await;
    let client = Client::resume_when_free(daemon.url(), &session).await;
    let again = client.ok("process/start", start.params()).await;
    assert_eq!((&again["alreadyStarted"], &again["shellSnapshot"]), (&json!(true), &first["shellSnapshot"]));
}

#[test_case("bash", "/bin/dash"; "bash that is dash")]
#[test_case("bash", "/bin/zsh"; "bash that is zsh")]
#[test_case("zsh", "/bin/bash"; "zsh that is bash")]
#[test_case("sh", "/bin/zsh"; "sh that is zsh")]
#[tokio::test]
async fn another_shell_than_said(name: &str, path: &str) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let home = Home::new("bash", "");
    let start = home
        .start("bash", "printf ran")
        .with("argv", json!([path, "-lc", "printf ran"]))
        .with("shellSnapshot", json!({"scopeId": "s", "shell": {"name": name, "path": path}}));
    let answer = client.start(&start).await;
    assert!(reason(&answer).contains(&format!("not the shell `{name}`")), "{answer}");
    let run = client.finish(&start.id()).await;
    assert_eq!((run.text().as_str(), run.stderr.as_slice(), run.exit()), ("ran", b"".as_slice(), 0));
}

#[test_case("bash"; "bash")]
#[test_case("zsh"; "zsh")]
#[tokio::test]
async fn start_up_files_that_take_too_long_are_killed_and_never_waited_for_again(shell: &str) {
    let daemon = Daemon::setup().set("snapshot.capture_ms", "700").start().await;
    let client = daemon.client().await;
    let marker = Marker::new();
    // One child in the group, one that has left group and session, and neither input nor output at hand.
    let home = Home::new(shell, "sleep 60 & setsid sleep 60 & wait\n");
    let policy = home.policy(json!({"set": {"HOME": home.path(), Marker::NAME: marker.value()}}));
    let start = home.start(shell, PROBE).with("envPolicy", policy.clone());
    let began = Instant::now();
    let answer = client.start(&start).await;
    assert!(reason(&answer).contains("700 ms (snapshot.capture_ms)"), "{answer}");
    assert!((700..5_000).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    assert_eq!(client.finish(&start.id()).await.text(), "plain");
    eventually("its tree is gone", LIMIT, || marker.pids().is_empty()).await;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let start = home.start(shell, PROBE).with("envPolicy", policy);
    let began = Instant::now();
    let answer = client.start(&start).await;
    assert!(reason(&answer).contains("no further one is made"), "{answer}");
    assert!(began.elapsed() < Duration::from_millis(600));
    assert_eq!(home.runs(), 1);
}

#[test_case("sleep 60 &"; "holding the output")]
#[test_case("sleep 60 >/dev/null 2>&1 </dev/null &"; "detached from it")]
#[test_case("setsid sleep 60 & disown"; "in a session of its own")]
#[tokio::test]
async fn what_stays_in_the_background_ends_with_the_session(job: &str) {
    let daemon = Daemon::setup().set("session.detached_ms", "300").start().await;
    let client = daemon.client().await;
    let marker = Marker::new();
    let home = Home::new("bash", &format!("{job}\n{HELPER}"));
    let policy = home.policy(json!({"set": {"HOME": home.path(), Marker::NAME: marker.value()}}));
    let began = Instant::now();
    for state in ["captured", "restored"] {
        told(&client, &home.start("bash", PROBE).with("envPolicy", policy.clone()), state, "helper").await;
    }
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(marker.running("sleep").len(), 1);
    client.abort().await;
    eventually("it has ended with the session", LIMIT, || marker.pids().is_empty()).await;
    eventually("nothing is left unreaped", LIMIT, || machine::zombies_of(daemon.pid()).is_empty()).await;
}

/// A directory in which the start-up files wait for a go.
fn gated(directory: &Path) -> String {
    let gate = directory.join("go");
    format!("while ! [ -e '{}' ]; do sleep 0.02; done\n{HELPER}", gate.display())
}

#[tokio::test]
async fn a_start_that_waits_goes_with_its_connection() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let (marker, gate) = (Marker::new(), work_dir());
    let home = Home::new("bash", &gated(gate.path()));
    let policy = home.policy(json!({"set": {"HOME": home.path(), Marker::NAME: marker.value()}}));
    let start = home.start("bash", PROBE).with("envPolicy", policy);
    client.send("process/start", start.params()).await;
    eventually("the capture runs", LIMIT, || home.runs() == 1).await;
    let session = client.session_id();
    client.abort().await;
    eventually("the capture is killed", LIMIT, || marker.pids().is_empty()).await;
    let client = Client::resume_when_free(daemon.url(), &session).await;
    assert_eq!(client.ok("process/list", json!({})).await["processes"], json!([]));
    // The id is free, and no capture has been spent.
    std::fs::write(gate.path().join("go"), "").unwrap();
    told(&client, &start, "captured", "helper").await;
    assert_eq!(home.runs(), 2);
}

#[tokio::test]
async fn a_capture_blocks_nobody_else_however_many_wait_for_it() {
    let daemon = Daemon::setup().set("server.concurrent_requests", "2").start().await;
    let client = daemon.client().await;
    let gate = work_dir();
    let home = Home::new("bash", &gated(gate.path()));
    let waiting: Vec<Start> = (0..8).map(|_| home.start("bash", PROBE)).collect();
    for start in &waiting {
        client.send("process/start", start.params()).await;
    }
    eventually("the capture runs", LIMIT, || home.runs() == 1).await;
    assert_eq!(client.run(&Start::sh("printf other")).await.text(), "other");
    client.ok("fs/getMetadata", json!({"path": "file:///"})).await;
    std::fs::write(gate.path().join("go"), "").unwrap();
    for start in &waiting {
        assert_eq!(client.finish(&start.id()).await.text(), "helper");
    }
    assert_eq!(home.runs(), 1);
}

#[tokio::test]
async fn the_end_of_the_server_ends_a_capture() {
    let mut daemon = Daemon::start().await;
    let client = daemon.client().await;
    let (marker, gate) = (Marker::new(), work_dir());
    let home = Home::new("bash", &gated(gate.path()));
    let policy = home.policy(json!({"set": {"HOME": home.path(), Marker::NAME: marker.value()}}));
    client.send("process/start", home.start("bash", PROBE).with("envPolicy", policy).params()).await;
    eventually("the capture runs", LIMIT, || home.runs() == 1).await;
    daemon.signal(rustix::process::Signal::TERM);
    daemon.ended(Duration::from_secs(10)).await;
    assert_eq!(marker.pids(), Vec::<i32>::new());
}

#[test_case("bash"; "bash")]
#[test_case("zsh"; "zsh")]
#[test_case("sh"; "sh")]
#[test_case("bash as sh"; "bash as sh")]
#[tokio::test]
async fn nothing_internal_is_left(shell: &str) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let home = Home::new(shell, "export MINE=1\nset -x\nset -u\n");
    // Traced are the command's own words and nothing before them.
    let start = home
        .start(shell, "set +x; for n in 3 4 5 6 7 8 9; do [ -e /dev/fd/$n ] && echo $n; done; env | sort");
    for state in ["captured", "restored"] {
        let start = start.clone().named(&format!("{state}-{}", start.id()));
        let (told, run) = run(&client, &start).await;
        assert_eq!(told, state);
        let text = run.text();
        let names: Vec<&str> =
            text.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
        let expected: &[&str] = match shell {
            "sh" => &["ENV", "HOME", "MINE", "PATH", "PWD"],
            "zsh" => &["ENV", "HOME", "LOGNAME", "MINE", "OLDPWD", "PWD", "SHLVL", "_"],
            _ => &["ENV", "HOME", "MINE", "PATH", "PWD", "SHLVL", "_"],
        };
        assert_eq!(names, expected, "{text}");
        let traced = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(traced.lines().count() == 1 && traced.contains("set +x"), "{traced:?}");
    }
}

#[test_case("bash"; "bash")]
#[test_case("zsh"; "zsh")]
#[tokio::test]
async fn functions_with_the_names_of_all_tools(shell: &str) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let tools = match shell {
        "bash" => {
            "unset declare typeset printf echo command set env trap compgen alias shopt wc exit shift test source export local"
        }
        _ => {
            "unset typeset printf print echo command set env trap alias setopt unsetopt functions emulate wc exit source export zmodload local"
        }
    };
    let shadow = match shell {
        "bash" => format!("for f in {tools}; do builtin eval \"function $f {{ return 0; }}\"; done\n"),
        _ => format!("for f in {tools}; do functions[$f]='return 0'; done\n"),
    };
    let profile = format!(
        "alias mi='builtin printf A'\nexport MINE=1\nhelper() {{ builtin printf helper; }}\n{shadow}"
    );
    let home = Home::new(shell, &profile);
    for state in ["captured", "restored"] {
        told(&client, &home.start(shell, "helper; mi; printf lost; builtin printf $MINE"), state, "helperA1")
            .await;
    }
}

#[tokio::test]
async fn bash_options_that_change_how_it_reads() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let probe = "helper; [[ $- == *e* ]] && printf e; [[ -o posix ]] && printf p; shopt -q extdebug && printf d; true";
    for (options, seen) in [
        ("set -e", "e"),
        ("set -o posix", "p"),
        ("shopt -s extdebug", "d"),
        ("set -e; set -o posix; shopt -s extdebug", "epd"),
        (
            "shopt -s expand_aliases; alias if=false helper='printf not' [[='printf not'; unalias helper [[",
            "",
        ),
    ] {
        let home = Home::new("bash", &format!("foo-bar() {{ :; }}\n{HELPER}{options}\n"));
        for state in ["captured", "restored"] {
            told(&client, &home.start("bash", probe), state, &format!("helper{seen}")).await;
        }
    }
}

#[tokio::test]
async fn bash_env_of_the_command_is_kept_and_not_run_again() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    for options in ["", "shopt -s extdebug\n"] {
        let home = Home::new("bash", "export RC=1\n");
        std::fs::write(
            home.path().join("env.sh"),
            format!("printf e >> \"$HOME/env-runs\"\n{HELPER}{options}"),
        )
        .unwrap();
        let file = home.path().join("env.sh").to_str().unwrap().to_owned();
        let policy = home.policy(json!({"set": {"HOME": home.path(), "BASH_ENV": file}}));
        let start =
            home.start("bash", "helper; printf '|%s|%s' \"$BASH_ENV\" \"${RC-unset}\"; env | grep -c SERVER");
        for state in ["captured", "restored"] {
            let start = start.clone().with("envPolicy", policy.clone()).named(&format!("{options}{state}"));
            told(&client, &start, state, &format!("helper|{file}|unset0\n")).await;
        }
        assert_eq!(std::fs::read(home.path().join("env-runs")).unwrap(), b"e");
        assert_eq!(home.runs(), 0);
    }
}

#[tokio::test]
async fn variables_and_functions_of_one_request_stay_its_own() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let home = Home::new("bash", HELPER);
    let probe = "helper; printf '|%s' \"${ONCE-unset}\"; type -t brought";
    let first = home.start("bash", probe).env("ONCE", "1").env("BASH_FUNC_brought%%", "() { :; }");
    told(&client, &first, "captured", "helper|1function\n").await;
    let (state, run) = run(&client, &home.start("bash", probe)).await;
    assert_eq!((state.as_str(), run.text().as_str()), ("restored", "helper|unset"));
}

#[test_case("bash"; "bash")]
#[test_case("zsh"; "zsh")]
#[tokio::test]
async fn what_the_policy_filters_is_in_no_run_and_in_no_file(shell: &str) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let profile = "export MY_TOKEN=hunter2 SHOWN=1\ntypeset -A API_KEYS; API_KEYS=([a]=hunter2)\n\
                   DENIED_LIST=(hunter2)\nLIST=(one two)\n";
    let home = Home::new(shell, profile);
    let policy = home.policy(json!({"exclude": ["DENIED*"], "set": {"HOME": home.path()}}));
    let probe = "set; typeset; env; tr '\\0' '\\n' < /proc/$$/environ; printf '%s' \"${LIST[*]}\"";
    for state in ["captured", "restored"] {
        let start = home.start(shell, probe).with("envPolicy", policy.clone());
        let (told, run) = run(&client, &start).await;
        assert_eq!(told, state);
        let text = String::from_utf8_lossy(&run.stdout).into_owned();
        assert!(text.contains("SHOWN=1") && text.ends_with("one two"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
    assert!(!daemon.log().contains("hunter2"));
    let found =
        std::process::Command::new("grep").args(["-rl", "hunter2"]).arg(daemon.home()).output().unwrap();
    assert!(found.stdout.is_empty(), "{found:?}");
}

#[tokio::test]
async fn memory_of_all_sessions_is_bounded() {
    let daemon = Daemon::setup().set("snapshot.cache_bytes", "1500000").start().await;
    let (one, two) = (daemon.client().await, daemon.client().await);
    let home = Home::new("bash", &format!("big() {{ : {}; }}\n", "y".repeat(1_000_000)));
    let start = || home.start("bash", "type -t big");
    told(&one, &start(), "captured", "function\n").await;
    told(&one, &start(), "restored", "function\n").await;
    told(&two, &start(), "captured", "function\n").await;
    told(&one, &start(), "captured", "function\n").await;
    let larger = Home::new("bash", &format!("big() {{ : {}; }}\n", "y".repeat(2_000_000)));
    let answer = one.start(&larger.start("bash", "true")).await;
    assert!(reason(&answer).contains("snapshot.cache_bytes"), "{answer}");
}

#[test_case("yes | head -c 9000000", "8388608"; "output")]
#[test_case("eval \"big() { : $(head -c 4200000 /dev/zero | tr '\\0' y); }\"", "4194304"; "state")]
#[test_case("export BIG=$(head -c 131070 /dev/zero | tr '\\0' y)", "131071"; "a variable")]
#[tokio::test]
async fn too_much_of_anything_is_a_failed_capture(profile: &str, limit: &str) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let home = Home::new("bash", &format!("{HELPER}{profile}\n"));
    let start = home.start("bash", PROBE);
    let answer = client.start(&start).await;
    assert!(reason(&answer).contains(limit), "{answer}");
    assert_eq!(client.finish(&start.id()).await.text(), "plain");
}

/// What the start-up files print between the fields, on the same pipe and at the same time, must not become state.
#[tokio::test]
async fn a_background_job_that_prints_does_not_spoil_the_state() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    for round in 0..5 {
        let home = Home::new("bash", &format!("(while echo spam; do :; done) & noise=$!\n{HELPER}"));
        let start = home.start("bash", PROBE);
        let answer = client.start(&start).await;
        let state = answer["shellSnapshot"]["state"].as_str().unwrap();
        let run = client.finish(&start.id()).await;
        let expected = if state == "captured" { "helper" } else { "plain" };
        assert_eq!(
            (run.text().as_str(), run.stderr.as_slice()),
            (expected, b"".as_slice()),
            "{round} {answer}"
        );
    }
}

#[test_case("bash"; "bash")]
#[test_case("zsh"; "zsh")]
#[tokio::test]
async fn start_up_files_run_in_the_sandbox_of_their_start(shell: &str) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let write = "( : > \"$HOME/written\" ) 2>/dev/null && export COULD_WRITE=1\n";
    let home = Home::new(shell, &format!("{write}{HELPER}"));
    let start = || home.start(shell, "helper; printf \" ${COULD_WRITE-no}\"");
    for state in ["captured", "restored"] {
        told(&client, &start().with("sandbox", read_only("restricted")), state, "helper no").await;
    }
    assert!(!home.path().join("written").exists());
    // The state of one sandbox is never put back in another, nor without one.
    for state in ["captured", "restored", "restored"] {
        let sandbox = workspace(home.path(), "restricted");
        told(&client, &start().with("sandbox", sandbox), state, "helper 1").await;
    }
    assert_eq!(home.runs(), 1, "in a sandbox without network they are not read again");
    told(&client, &start(), "captured", "helper 1").await;
}

#[tokio::test]
async fn what_stays_in_the_background_of_a_sandbox_ends_with_the_capture() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let marker = Marker::new();
    let home = Home::new("bash", &format!("sleep 60 >/dev/null 2>&1 </dev/null &\n{HELPER}"));
    let policy = home.policy(json!({"set": {"HOME": home.path(), Marker::NAME: marker.value()}}));
    let start = home.start("bash", PROBE).with("envPolicy", policy).with("sandbox", read_only("restricted"));
    told(&client, &start, "captured", "helper").await;
    eventually("it has ended", LIMIT, || marker.pids().is_empty()).await;
}
