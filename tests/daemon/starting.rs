//! Starting programs: what is found, with which arguments and environment, and what is said when it fails.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use test_case::test_case;

use super::support::{Client, Daemon, RpcError, Start, machine, work_dir};

fn write(path: &Path, content: &[u8], mode: u32) {
    std::fs::write(path, content).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

async fn start_error(client: &Client, start: &Start) -> RpcError {
    let error = client.error("process/start", start.params()).await;
    assert_eq!(error.code, -32603, "{error:?}");
    assert!(client.so_far(&start.id()).methods.is_empty(), "nothing was run");
    error
}

#[test_case(false; "pipe")]
#[test_case(true; "tty")]
#[tokio::test]
async fn why_a_program_cannot_be_started(tty: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let directory = work_dir();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    write(Path::new(&file("plain")), b"#!/bin/sh\ntouch ran\n", 0o644);
    write(Path::new(&file("elf")), b"\x7fELF garbage", 0o755);
    write(Path::new(&file("interpreter")), b"#!/no/such/interp\n", 0o755);
    write(Path::new(&file("text")), b"touch ran\n", 0o755);
    write(Path::new(&file("empty")), b"", 0o755);
    for (program, kind) in [
        ("/no/such".to_owned(), "spawnNotFound"),
        ("no-such-program".to_owned(), "spawnNotFound"),
        ("./no-such-program".to_owned(), "spawnNotFound"),
        ("/tmp".to_owned(), "spawnPermissionDenied"),
        (file("plain"), "spawnPermissionDenied"),
        (file("elf"), "spawnFailed"),
        (file("interpreter"), "spawnNotFound"),
        (file("text"), "spawnFailed"),
        (file("empty"), "spawnFailed"),
        (file("plain/below"), "spawnFailed"),
        ("x".repeat(5_000), "spawnFailed"),
        (format!("/{}", "x".repeat(300)), "spawnFailed"),
        (String::new(), "spawnFailed"),
    ] {
        let start = Start::argv([&program]).tty(tty).cwd(directory.path());
        let error = start_error(&client, &start).await;
        assert_eq!(error.kind(), kind, "{program:.60}: {error:?}");
        // The id is free again.
        let again = Start::argv(["/bin/echo", "fine"]).tty(tty).named(&start.id());
        assert_eq!(client.run(&again).await.text().trim_end(), "fine");
    }
    assert!(!directory.path().join("ran").exists());
    let nothing = Start::argv::<&str>([]).tty(tty);
    assert_eq!(client.error("process/start", nothing.params()).await.code, -32602);
}

#[test_case(false; "pipe")]
#[test_case(true; "tty")]
#[tokio::test]
async fn a_missing_directory_is_named(tty: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    for (cwd, kind) in [
        ("/no/such/place", "spawnNotFound"),
        ("/etc/passwd", "spawnFailed"),
        ("/etc/passwd/below", "spawnFailed"),
    ] {
        let start = Start::argv(["/bin/true"]).tty(tty).cwd(Path::new(cwd));
        let error = start_error(&client, &start).await;
        assert!(error.kind() == kind && error.message.contains(cwd), "{error:?}");
        assert!(!error.message.contains("/bin/true"), "the program is not to blame: {error:?}");
    }
    let error = start_error(&client, &Start::argv(["/no/such/program"]).tty(tty)).await;
    assert!(error.message.contains("/no/such/program"), "{error:?}");
}

#[test_case(false; "pipe")]
#[test_case(true; "tty")]
#[tokio::test]
async fn arguments_as_long_as_the_kernel_takes(tty: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let script =
        |length: usize| Start::argv(["/bin/sh", "-c", "echo ${#1}", "sh", &"x".repeat(length)]).tty(tty);
    assert_eq!(client.run(&script(131_071)).await.text().trim_end(), "131071");
    for length in [131_072, 1_000_000] {
        assert_eq!(start_error(&client, &script(length)).await.kind(), "spawnFailed");
    }
    let many = Start::argv(std::iter::repeat_n("a".repeat(100_000), 400)).with("argv", {
        let mut argv = vec![json!("/bin/true")];
        argv.extend(std::iter::repeat_n(json!("a".repeat(100_000)), 100));
        json!(argv)
    });
    assert_eq!(start_error(&client, &many.tty(tty)).await.kind(), "spawnFailed");
    let large_env = Start::argv(["/bin/true"]).tty(tty).env("LARGE", &"e".repeat(131_072));
    assert_eq!(start_error(&client, &large_env).await.kind(), "spawnFailed");
}

#[test_case(false; "pipe")]
#[test_case(true; "tty")]
#[tokio::test]
async fn a_nul_byte_starts_nothing(tty: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    for start in [
        Start::argv(["/bin/echo", "a\0b"]),
        Start::argv(["/bin/ec\0ho", "a"]),
        Start::argv(["/bin/echo", "a"]).env("X", "x\0y"),
        Start::argv(["/bin/echo", "a"]).env("X\0Y", "x"),
        Start::argv(["/bin/echo", "a"]).with("arg0", json!("a\0b")),
    ] {
        start_error(&client, &start.tty(tty)).await;
    }
}

#[tokio::test]
async fn names_that_are_no_names_are_refused() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let policy = |name: &str| json!({"inherit": "none", "ignoreDefaultExcludes": true, "exclude": [], "set": {name: "x"}, "includeOnly": []});
    for name in ["", "A=B", "="] {
        for start in [
            Start::argv(["/bin/true"]).env(name, "x"),
            Start::argv(["/bin/true"]).with("envPolicy", policy(name)),
        ] {
            let error = client.error("process/start", start.params()).await;
            assert_eq!(error.code, -32602, "{error:?}");
        }
    }
}

#[tokio::test]
async fn without_input_there_is_its_end() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let run = client.run(&Start::sh("readlink /proc/self/fd/0; cat; echo eof")).await;
    assert_eq!(run.text(), "/dev/null\neof\n");
    let git = ["/usr/bin/git", "/usr/local/bin/git"].into_iter().find(|path| Path::new(path).exists());
    let Some(git) = git else { return eprintln!("skipped: no git here") };
    let directory = work_dir();
    let script = format!("{git} init -q . && : >f && {git} add f && exec {git} commit");
    let start = Start::sh(&script).cwd(directory.path()).env("HOME", directory.path().to_str().unwrap());
    let began = std::time::Instant::now();
    assert_ne!(client.run(&start).await.exit(), 0, "an editor without a terminal gives up");
    assert!(began.elapsed() < Duration::from_secs(15));
}

#[test_case("/"; "root as home")]
#[test_case("/nonexistent"; "missing home")]
#[test_case(""; "empty home")]
#[tokio::test]
async fn a_user_whom_nobody_knows(home: &str) {
    let wrapper = ["setpriv", "--reuid", "54321", "--regid", "0", "--clear-groups"];
    if !machine::is_root() || !machine::succeeds(&[&wrapper[..], &["true"]].concat()) {
        return eprintln!("skipped: only root can become another user");
    }
    let daemon = Daemon::setup().wrapper(&wrapper).readable_program().variable("HOME", home).start().await;
    let client = daemon.client().await;
    for tty in [false, true] {
        let run = client.run(&Start::argv(["/usr/bin/id", "-u"]).tty(tty)).await;
        assert_eq!((run.text().trim_end(), run.exit()), ("54321", 0));
    }
}

#[test_case(b"a b\n#%\xc3\xa9"; "specials")]
#[test_case(b"\xff\xfe not text"; "not utf8")]
#[test_case(b"..."; "dots")]
#[test_case(b"%41%zz?*[x]\\ 'q' \"d\" $(x)"; "quoting")]
#[tokio::test]
async fn directories_with_odd_names(name: &[u8]) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let parent = work_dir();
    let path = parent.path().canonicalize().unwrap().join(OsStr::from_bytes(name));
    std::fs::create_dir(&path).unwrap();
    for tty in [false, true] {
        let script = "stty raw 2>/dev/null; exec /bin/pwd";
        let run = client.run(&Start::sh(script).tty(tty).cwd(&path)).await;
        let bytes = if tty { run.pty } else { run.stdout };
        assert_eq!(bytes.strip_suffix(b"\n").unwrap(), path.as_os_str().as_bytes());
    }
}

#[test_case(false; "pipe")]
#[test_case(true; "tty")]
#[tokio::test]
async fn programs_are_looked_up_by_the_path_of_the_request(tty: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let directory = work_dir();
    for part in ["one", "two", "cwd", "cwd/rel"] {
        std::fs::create_dir_all(directory.path().join(part)).unwrap();
    }
    let program = |place: &str| format!("#!/bin/sh\necho {place} \"$0\"\n");
    let file = |name: &str| directory.path().join(name);
    write(&file("one/prog"), program("one").as_bytes(), 0o644);
    write(&file("two/prog"), program("two").as_bytes(), 0o755);
    write(&file("cwd/prog"), program("here").as_bytes(), 0o755);
    write(&file("cwd/rel/prog"), program("rel").as_bytes(), 0o755);
    let (one, two) = (file("one"), file("two"));
    let (one, two) = (one.to_str().unwrap(), two.to_str().unwrap());
    for (path, expected) in [
        (two.to_owned(), "two"),
        (format!("{one}:{two}"), "two"),
        (format!("/no/such:{two}"), "two"),
        (format!(":{two}"), "here"),
        (format!("{two}::"), "two"),
        (format!("{one}:"), "here"),
        ("rel".to_owned(), "rel"),
        (".".to_owned(), "here"),
    ] {
        let start = Start::argv(["prog"]).tty(tty).cwd(&file("cwd")).env("PATH", &path);
        let text = client.run(&start).await.text();
        assert_eq!(text.split_whitespace().next(), Some(expected), "PATH={path}");
    }
    for (program, expected) in [("./prog", "here"), ("rel/prog", "rel")] {
        let start = Start::argv([program]).tty(tty).cwd(&file("cwd"));
        assert_eq!(client.run(&start).await.text().trim_end(), format!("{expected} {program}"));
    }
    // No PATH at all: the usual directories, not the server's.
    let start = Start::argv(["env"]).tty(tty).no_env();
    assert_eq!(client.run(&start).await.exit(), 0);
    let unexecutable = Start::argv(["prog"]).tty(tty).env("PATH", one);
    let error = start_error(&client, &unexecutable).await;
    assert!(matches!(error.kind(), "spawnPermissionDenied" | "spawnNotFound"), "{error:?}");
}

#[test_case(false; "pipe")]
#[test_case(true; "tty")]
#[tokio::test]
async fn the_name_of_a_program_is_free(tty: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let script = "shopt -q login_shell && echo login; echo $0";
    let start = Start::bash(script).tty(tty).with("arg0", json!("-bash"));
    assert_eq!(client.run(&start).await.text().replace('\r', ""), "login\n-bash\n");
    for name in ["", "other name", "/no/such"] {
        let start = Start::sh("exec cat /proc/$$/cmdline | tr '\\0' '|'").tty(tty);
        let start = start.with("argv", json!(["/bin/cat", "/proc/self/cmdline"])).with("arg0", json!(name));
        assert_eq!(client.run(&start).await.text(), format!("{name}\0/proc/self/cmdline\0"));
    }
}

/// The environment of a child, in order of names.
async fn environment(client: &Client, start: Start) -> Vec<Vec<u8>> {
    let run = client.run(&start).await;
    assert_eq!(run.exit(), 0);
    let mut variables: Vec<Vec<u8>> =
        run.stdout.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()).map(<[u8]>::to_vec).collect();
    variables.sort();
    variables
}

fn env0() -> Start {
    Start::argv(["/usr/bin/env", "-0"]).no_env()
}

fn policy(inherit: &str, changes: Value) -> Value {
    let mut policy = json!({
        "inherit": inherit, "ignoreDefaultExcludes": false, "exclude": [], "set": {}, "includeOnly": [],
    });
    for (name, value) in changes.as_object().unwrap() {
        policy[name] = value.clone();
    }
    policy
}

fn texts(expected: &[&str]) -> Vec<Vec<u8>> {
    expected.iter().map(|entry| entry.as_bytes().to_vec()).collect()
}

#[tokio::test]
async fn the_environment_is_what_the_request_says() {
    let daemon = Daemon::setup()
        .variable("LANG", "C")
        .variable("HOME", "/h")
        .variable("path", "lower")
        .variable("MY_TOKEN", "t")
        .variable("monkey", "m")
        .variable("KEEP", "k")
        .variable("AWS_X", "a")
        .start()
        .await;
    let client = daemon.client().await;
    assert_eq!(environment(&client, env0()).await, texts(&[]));
    assert_eq!(
        environment(&client, env0().env("B", "2").env("A", "é x=y")).await,
        texts(&["A=é x=y", "B=2"])
    );
    assert_eq!(
        environment(&client, env0().with("envPolicy", Value::Null).env("A", "1")).await,
        texts(&["A=1"])
    );
    for (inherit, changes, expected) in [
        ("none", json!({}), vec![]),
        ("none", json!({"set": {"SECRET": "s", "X": "x"}}), vec!["SECRET=s", "X=x"]),
        ("core", json!({}), vec!["HOME=/h", "LANG=C", "PATH=/usr/local/bin:/usr/bin:/bin", "path=lower"]),
        ("all", json!({"includeOnly": ["k*", "a?s_x"]}), vec!["AWS_X=a", "KEEP=k"]),
        ("all", json!({"includeOnly": ["*token", "*key", "KEEP"]}), vec!["KEEP=k"]),
        (
            "all",
            json!({"includeOnly": ["*token", "*key"], "ignoreDefaultExcludes": true}),
            vec!["MY_TOKEN=t", "monkey=m"],
        ),
        ("all", json!({"includeOnly": ["AWS_*", "KEEP"], "exclude": ["aws_*", ""]}), vec!["KEEP=k"]),
        (
            "all",
            json!({"includeOnly": ["S*"], "exclude": ["S*"], "set": {"S1": "1", "X": "2"}}),
            vec!["S1=1"],
        ),
    ] {
        let start = env0().with("envPolicy", policy(inherit, changes.clone()));
        assert_eq!(environment(&client, start).await, texts(&expected), "{inherit} {changes}");
    }
    // The request's own variables come last, unfiltered.
    let start =
        env0().env("MY_TOKEN", "own").with("envPolicy", policy("none", json!({"includeOnly": ["X"]})));
    assert_eq!(environment(&client, start).await, texts(&["MY_TOKEN=own"]));
    let partial = env0().with("envPolicy", json!({"inherit": "all"}));
    assert_eq!(client.error("process/start", partial.params()).await.code, -32602);
}

#[tokio::test]
async fn variables_that_are_not_text_do_no_harm() {
    let odd = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let daemon = Daemon::setup()
        .variable("ODD_VALUE", odd(b"a\xffb"))
        .variable(odd(b"ODD_\xfeNAME"), "x")
        .variable("PLAIN", "p")
        .start()
        .await;
    let client = daemon.client().await;
    for inherit in ["all", "core", "none"] {
        let start = env0().with("envPolicy", policy(inherit, json!({"set": {"MINE": "1"}})));
        let variables = environment(&client, start).await;
        assert!(variables.contains(&b"MINE=1".to_vec()));
        assert_eq!(variables.contains(&b"PLAIN=p".to_vec()), inherit == "all");
        for variable in &variables {
            if variable.starts_with(b"ODD_") {
                let whole = [&b"ODD_VALUE=a\xffb"[..], b"ODD_\xfeNAME=x"];
                assert!(whole.contains(&variable.as_slice()), "altered: {variable:?}");
            }
        }
    }
}

#[tokio::test]
async fn an_id_may_be_any_text_and_is_taken_once() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    for id in ["", " ", "é\n\u{1f980}", &"long".repeat(5_000)] {
        let start = Start::argv(["/bin/echo", "x"]).named(id);
        let result = client.start(&start).await;
        assert_eq!((&result["processId"], &result["sandboxType"]), (&json!(id), &json!("none")));
        client.finish(id).await;
        assert_eq!(client.error("process/start", start.params()).await.code, -32600);
    }
}

#[tokio::test]
async fn directories_that_are_no_uri_are_refused() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    for bad in [
        "/tmp",
        "tmp",
        "",
        "http://x/",
        "file:///tmp?x",
        "file:///tmp#x",
        "file://server/tmp",
        "file:///C:/x",
        "file:///a%00b",
    ] {
        let start = Start::argv(["/bin/true"]).with("cwd", json!(bad));
        assert_eq!(client.error("process/start", start.params()).await.code, -32602, "{bad}");
    }
    for (good, expected) in [
        ("file:/usr", "/usr"),
        ("FILE:///usr/", "/usr"),
        ("file://localhost/usr//bin/..", "/usr"),
        ("file:///usr/%2e%2e/usr", "/usr"),
        ("file:///usr%2Flib/", "/usr/lib"),
    ] {
        let start = Start::argv(["/bin/pwd"]).with("cwd", json!(good));
        assert_eq!(client.run(&start).await.text().trim_end(), expected, "{good}");
    }
}
