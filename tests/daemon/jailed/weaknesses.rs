//! Ways out that sandboxes of this kind have had.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::time::Duration;

use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::json;
use test_case::test_case;

use super::{Area, entry, forced, special, stderr};
use crate::support::{Daemon, LIMIT, eventually, uri};

/// Kernel settings, and other files of `/proc` that change the machine, cannot be opened for writing.
#[test_case("namespaces")]
#[test_case("landlock")]
#[tokio::test]
async fn kernel_settings_cannot_be_written(backend: &str) {
    let (_daemon, client) = forced(backend).await;
    let area = Area::new();
    let script = "for f in /proc/sys/kernel/core_pattern /proc/sys/kernel/hostname /proc/sys/vm/overcommit_memory \
                  /proc/sysrq-trigger /proc/irq/default_smp_affinity /proc/sys/fs/file-max; do \
                  ( : >> $f ) 2>/dev/null && echo \"open: $f\"; done; echo end";
    let mut policies = vec![area.read_only(), area.restricted_read()];
    if backend == "namespaces" {
        policies.extend([area.workspace_write(), area.networked()]);
    }
    for policy in policies {
        assert_eq!(client.run(&area.sh(script, policy)).await.text(), "end\n");
    }
}

/// The tokens that the server made or was given are for clients: programs and file calls do not find them, whatever else
/// they may read.
#[test_case("EXEC_SERVER_SERVER_STATE_DIR"; "its state")]
#[test_case("CREDENTIALS_DIRECTORY"; "what the service manager gave it")]
#[tokio::test]
async fn directories_of_the_server_are_not_shown(variable: &str) {
    let area = Area::new();
    let state = area.out.join("state");
    std::fs::create_dir(&state).unwrap();
    std::fs::write(state.join("token"), "SECRET").unwrap();
    let daemon = Daemon::setup().variable(variable, &state).start().await;
    let client = daemon.client().await;
    let path = uri(&state.join("token"));
    assert!(client.call("fs/readFile", json!({"path": path})).await.is_ok());
    for policy in [area.read_only(), area.workspace_write(), area.restricted_read()] {
        let script = format!("cat {0}/token; ls {0}; echo x > {0}/token; echo end", state.display());
        let run = client.run(&area.sh(&script, policy.clone())).await;
        assert_eq!(run.text(), "end\n");
        for method in ["fs/readFile", "fs/remove"] {
            let params = json!({"path": path, "sandbox": policy, "recursive": false, "force": false});
            assert!(client.call(method, params).await.is_err(), "{method}");
        }
    }
    assert_eq!(std::fs::read_to_string(state.join("token")).unwrap(), "SECRET");
    // An entry of its own shows it.
    let policy = area.context(&[special("root", "read"), entry(&state, "read")], "restricted");
    let run = client.run(&area.sh(&format!("cat {}/token", state.display()), policy)).await;
    assert_eq!(run.text(), "SECRET");
}

/// Whatever the request's environment names, nothing of it runs outside.
#[tokio::test]
async fn the_environment_reaches_the_program_alone() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let area = Area::new();
    for name in ["bwrap", "exec-server", "newuidmap", "true", "mount"] {
        let tool = area.w.join(name);
        std::fs::write(&tool, format!("#!/bin/sh\ntouch {}/owned\n", area.out.display())).unwrap();
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    std::fs::write(area.w.join("evil.so"), "no library").unwrap();
    let start = area
        .sh("echo \"$LD_PRELOAD\"", area.workspace_write())
        .env("PATH", &format!("{}:/usr/bin:/bin", area.w.display()))
        .env("LD_PRELOAD", &format!("{}/evil.so", area.w.display()))
        .env("LD_AUDIT", &format!("{}/evil.so", area.w.display()));
    let run = client.run(&start).await;
    assert_eq!(run.text(), format!("{}/evil.so\n", area.w.display()));
    area.assert_outside_untouched();
}

/// Sockets of the host, of streams and of datagrams, cannot be reached by path; not even where the program may write.
#[test_case("namespaces")]
#[test_case("landlock")]
#[tokio::test]
async fn sockets_of_the_host_are_out_of_reach(backend: &str) {
    let (_daemon, client) = forced(backend).await;
    let area = Area::new();
    let (log, inside) = (area.w.join("log"), area.w.join("stream"));
    let datagrams = UnixDatagram::bind(&log).unwrap();
    datagrams.set_nonblocking(true).unwrap();
    let streams = [UnixListener::bind(&inside).unwrap(), UnixListener::bind(area.w.join("other")).unwrap()];
    streams.iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
    symlink(&inside, area.w.join("alias")).unwrap();
    let script = format!(
        "import os, socket\nos.chdir('{w}')\n\
         def tries(kind, act):\n  try:\n    act(socket.socket(socket.AF_UNIX, kind)); print('REACHED')\n  except OSError: print('no')\n\
         D, S, Q, R = socket.SOCK_DGRAM, socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_RAW\n\
         tries(D, lambda s: s.sendto(b'x', 'log')); tries(D, lambda s: s.connect('log'))\n\
         tries(D, lambda s: s.sendmsg([b'x'], [], 0, 'log')); tries(R, lambda s: s.sendto(b'x', 'log'))\n\
         tries(S, lambda s: s.connect('stream')); tries(S, lambda s: s.connect('{w}/other'))\n\
         tries(S, lambda s: s.connect('alias')); tries(S, lambda s: s.connect('/proc/self/cwd/stream'))\n\
         tries(Q, lambda s: s.connect('stream'))\n\
         d = os.open('.', os.O_PATH); tries(S, lambda s: s.connect(f'/proc/self/fd/{{d}}/stream'))\n",
        w = area.w.display()
    );
    let mut policies = vec![area.read_only(), area.restricted_read()];
    if backend == "namespaces" {
        policies.push(area.workspace_write());
    }
    for policy in policies {
        let run = client.run(&area.python(&script, policy)).await;
        assert_eq!(run.text(), "no\n".repeat(10), "{}", stderr(&run));
    }
    assert!(datagrams.recv(&mut [0; 8]).is_err(), "nothing came");
    assert!(streams.iter().all(|stream| stream.accept().is_err()), "nobody came");
}

/// A pipe with a name can be read where reading is allowed, not written.
#[test_case("namespaces")]
#[test_case("landlock")]
#[tokio::test]
async fn named_pipes_outside_cannot_be_written(backend: &str) {
    let (_daemon, client) = forced(backend).await;
    let area = Area::new();
    let pipe = area.out.join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    // Open at both ends, so that opening it waits for nobody.
    let ends = std::fs::File::options().read(true).write(true).open(&pipe).unwrap();
    let script = format!(
        "(echo x > {0}) 2>/dev/null && echo WRITTEN; (echo x 1<>{0} >&1) 2>/dev/null; echo end",
        pipe.display()
    );
    let run = client.run(&area.sh(&script, area.read_only())).await;
    assert_eq!(run.text(), "end\n");
    rustix::io::ioctl_fionbio(&ends, true).unwrap();
    assert!(rustix::io::read(&ends, &mut [0; 8]).is_err(), "nothing came");
}

/// The end of one run leaves the protection of another, and the end of the last leaves nothing.
#[test_case(false; "by itself")]
#[test_case(true; "terminated")]
#[tokio::test]
async fn protection_outlives_neighbours_and_leaves_nothing(terminated: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let area = Area::new();
    let script = "echo up; read line; mkdir -p .git/hooks .codex/x; echo done; exec sleep 600";
    let [first, second] = ["first", "second"].map(|name| {
        let temporary = area.out.parent().unwrap().join(name);
        std::fs::create_dir(&temporary).unwrap();
        area.sh(script, area.workspace_write()).stdin().env("TMPDIR", temporary.to_str().unwrap())
    });
    for start in [&first, &second] {
        client.start(start).await;
        client.wait_output(&start.id(), "up").await;
    }
    client.ok("process/terminate", json!({"processId": first.id(), "graceMs": 0})).await;
    client.finish(&first.id()).await;
    client.write(&second.id(), "1", b"\n").await;
    client.wait_output(&second.id(), "done").await;
    assert!(!area.w.join(".git/hooks").exists() && !area.w.join(".codex/x").exists());
    if terminated {
        client.ok("process/terminate", json!({"processId": second.id()})).await;
    } else {
        client.ok("process/signal", json!({"processId": second.id(), "signal": "kill"})).await;
    }
    client.finish(&second.id()).await;
    assert_eq!(area.names(), ["f"]);
}

/// A server that is killed leaves neither processes nor placeholders.
#[tokio::test]
async fn a_killed_server_leaves_nothing() {
    let mut daemon = Daemon::start().await;
    let client = daemon.client().await;
    let area = Area::new();
    let start = area.sh("setsid sleep 600 & echo $$; exec sleep 600", area.workspace_write());
    let answer = client.start(&start).await;
    client.wait_output(&start.id(), "\n").await;
    assert!(area.names().len() > 1, "there are placeholders: {answer}");
    let listed = client.ok("process/list", json!({})).await;
    let init = listed["processes"][0]["pid"].as_i64().unwrap();
    daemon.signal(Signal::KILL);
    daemon.ended(LIMIT).await;
    let gone = || !std::path::Path::new(&format!("/proc/{init}/ns")).exists();
    eventually("the sandbox is gone", Duration::from_secs(10), gone).await;
    eventually("nothing is left", Duration::from_secs(10), || area.names() == ["f"]).await;
}

/// Where nothing is granted, a write fails; it does not succeed and vanish.
#[tokio::test]
async fn writes_outside_do_not_vanish() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let area = Area::new();
    let script = "for d in /var/lost /lost /usr/lost /proc/lost /dev/lost /home/lost; do mkdir -p $d 2>/dev/null && echo MADE $d; done; \
                  (: > /lost) 2>/dev/null && echo WRITTEN; echo end";
    assert_eq!(client.run(&area.sh(script, area.restricted_read())).await.text(), "end\n");
}

/// What cannot start is an error of the start, with its reason; our words do not count as the program's.
#[test_case("namespaces")]
#[test_case("landlock")]
#[tokio::test]
async fn failures_are_plain(backend: &str) {
    let (_daemon, client) = forced(backend).await;
    let area = Area::new();
    std::fs::write(area.w.join("plain"), "#!/bin/sh\n").unwrap();
    for (program, kind) in
        [("/no/such", "spawnNotFound"), ("no-such", "spawnNotFound"), ("./plain", "spawnPermissionDenied")]
    {
        let start = crate::support::Start::argv([program]).cwd(&area.w).with("sandbox", area.read_only());
        let error = client.error("process/start", start.params()).await;
        assert_eq!((error.code, error.kind()), (-32603, kind), "{program}: {error:?}");
    }
    let missing = area.sh("true", area.read_only()).cwd(&area.w.join("missing"));
    assert_eq!(client.error("process/start", missing.params()).await.kind(), "spawnNotFound");
    let hidden = area.sh("true", area.restricted_read()).cwd(&area.out);
    let error = client.error("process/start", hidden.params()).await;
    assert_eq!((error.code, error.kind()), (-32603, "sandboxPreparation"), "{error:?}");
    assert!(error.message.contains(area.out.to_str().unwrap()), "{error:?}");
}

/// Status, signals and terminal are the program's, not those of what stands around it.
#[test_case(false; "pipes")]
#[test_case(true; "terminal")]
#[tokio::test]
async fn signals_reach_the_program(tty: bool) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let area = Area::new();
    for (signal, name, code) in
        [("interrupt", "INT", 9), ("terminate", "TERM", 8), ("hangup", "HUP", 7), ("quit", "QUIT", 6)]
    {
        let script = format!("trap 'echo caught; exit {code}' {name}; echo up; while :; do sleep 0.02; done");
        let start = area.bash(&script, area.workspace_write()).tty(tty);
        client.start(&start).await;
        client.wait_output(&start.id(), "up").await;
        let answer = client.ok("process/signal", json!({"processId": start.id(), "signal": signal})).await;
        assert_eq!(answer["delivered"], true);
        let run = client.finish(&start.id()).await;
        assert_eq!((run.exit(), &run.exited["signal"]), (code, &json!(null)), "{signal}: {}", run.text());
        assert!(run.text().contains("caught"));
    }
    for (signal, number) in [("KILL", 9), ("SEGV", 11), ("TERM", 15), ("USR1", 10)] {
        let run = client.run(&area.sh(&format!("kill -{signal} $$"), area.workspace_write()).tty(tty)).await;
        assert_eq!((run.exit(), &run.exited["signal"]), (128 + number, &json!(format!("SIG{signal}"))));
    }
    let run = client.run(&area.sh("exit 137", area.workspace_write()).tty(tty)).await;
    assert_eq!((run.exit(), &run.exited["signal"]), (137, &json!(null)));
}

/// A terminal inside is a terminal: it controls, it has jobs, and ^C is for the foreground.
#[tokio::test]
async fn a_terminal_controls() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let area = Area::new();
    let script = "test -t 0 && tty; stty size; set -m; bash -c 'trap \"exit 5\" INT; echo up > /dev/tty; while :; do sleep 0.02; done'; \
                  echo rc=$?; exit 3";
    let start = area.bash(script, area.workspace_write()).tty(true);
    client.start(&start).await;
    client.wait_output(&start.id(), "up").await;
    client.write(&start.id(), "1", b"\x03").await;
    let run = client.finish(&start.id()).await;
    assert_eq!(run.exit(), 3);
    assert!(["/dev/console", "24 80", "rc=5"].iter().all(|said| run.text().contains(said)), "{}", run.text());
}

/// Broken pipes end programs, and nothing else is ignored or blocked.
#[test_case("namespaces")]
#[test_case("landlock")]
#[tokio::test]
async fn dispositions_are_default(backend: &str) {
    let (_daemon, client) = forced(backend).await;
    let area = Area::new();
    let script = "yes | head -n 1; grep -E 'Sig(Ign|Blk)' /proc/self/status";
    let run = client.run(&area.bash(script, area.read_only())).await;
    assert_eq!(run.text(), "y\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
    assert_eq!(stderr(&run), "");
}

/// A single file as root, a denied name that does not exist, links as roots and as working directory.
#[tokio::test]
async fn odd_policies_are_built() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let area = Area::new();
    let log = area.out.join("log");
    std::fs::write(&log, "").unwrap();
    let link = area.out.parent().unwrap().join("link");
    symlink(&area.w, &link).unwrap();
    let policy = area.workspace_and(&[
        entry(&log, "write"),
        entry(&area.w.join(".git"), "deny"),
        entry(&area.w.join("no/such"), "deny"),
    ]);
    let script =
        format!("echo 1 >> {}; mkdir .git 2>/dev/null || mkdir no 2>/dev/null || pwd", log.display());
    let run = client.run(&area.sh(&script, policy).cwd(&link)).await;
    assert_eq!(run.text(), format!("{}\n", area.w.display()), "{}", stderr(&run));
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "1\n");
    std::fs::remove_file(&log).unwrap();
    area.assert_outside_untouched();
    assert_eq!(area.names(), ["f"]);
}
