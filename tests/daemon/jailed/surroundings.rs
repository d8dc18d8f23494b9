//! What a program finds around it in a private view.

use pretty_assertions::assert_eq;
use serde_json::json;
use test_case::test_case;

use super::{Area, entry, forced, stderr};
use crate::support::{Daemon, LIMIT, Marker, Start, eventually};

/// No privilege, and no way to one.
#[test_case("namespaces")]
#[test_case("landlock")]
#[tokio::test]
async fn there_are_no_privileges(backend: &str) {
    let (_daemon, client) = forced(backend).await;
    let area = Area::new();
    let script = "id -u; grep -E '^(NoNewPrivs|Seccomp|CapInh|CapPrm|CapEff|CapAmb):' /proc/self/status | sed 's/.*\\t//'";
    for policy in [area.read_only(), area.restricted_read()] {
        let run = client.run(&area.sh(script, policy)).await;
        let none = "0000000000000000\n".repeat(4);
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!(
            run.text(),
            format!("{uid}\n{none}1\n2\n").replace(&format!("{none}1\n"), &format!("{none}1\n"))
        );
    }
}

/// Nothing that a user namespace of its own gives a program leads out.
#[tokio::test]
async fn namespaces_of_its_own_lead_nowhere() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let area = Area::new();
    let out = area.out.display();
    std::fs::create_dir(area.w.join("den")).unwrap();
    std::fs::write(area.w.join("den/key"), "DENIED").unwrap();
    std::fs::create_dir(area.w.join(".git")).unwrap();
    let policy = area.workspace_and(&[entry(&area.w.join("den"), "deny")]);
    for attempt in [
        format!("mount -o remount,rw / && touch {out}/n"),
        format!("mount -o remount,rw,bind / && touch {out}/n"),
        "umount den; cat den/key".to_owned(),
        "umount -l den; cat den/key".to_owned(),
        "umount .git; touch .git/n".to_owned(),
        "mount -t tmpfs none /tmp && echo MOUNTED".to_owned(),
        "mount --bind /usr .git && echo MOUNTED".to_owned(),
        "mount -t proc none /proc && echo MOUNTED".to_owned(),
        "mkdir r; mount --rbind / r && cat r/$PWD/den/key".to_owned(),
        "pivot_root . den".to_owned(),
        "mknod dev b 254 0 && cat dev | head -c 1".to_owned(),
        format!("chroot {out} /secret; nsenter -t 1 -m true && echo ENTERED"),
    ] {
        for unshare in ["unshare -Urm", "unshare -Urmpf", "unshare -UrmC", "unshare -Urmn"] {
            let run =
                client.run(&area.sh(&format!("{unshare} sh -c '{attempt}'; exit 0"), policy.clone())).await;
            assert!(
                !run.text().contains("DENIED") && !run.text().contains("ED\n"),
                "{unshare} {attempt}: {}",
                run.text()
            );
        }
    }
    area.assert_outside_untouched();
    assert_eq!(std::fs::read_dir(area.w.join(".git")).unwrap().count(), 0);
}

/// Other processes do not exist for it, its init cannot be looked into, and there is nothing of the machine in `/dev`.
#[tokio::test]
async fn the_host_is_out_of_sight() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let area = Area::new();
    let script = format!(
        "ls /proc | grep -c '^[0-9]'; kill -0 {pid} 2>/dev/null && echo ALIVE; cat /proc/{pid}/cmdline 2>/dev/null; \
         for f in environ mem maps root/etc/passwd cwd/f fd/3 exe; do head -c 1 /proc/1/$f 2>/dev/null && echo \"OPEN $f\"; done; \
         kill -9 1 2>/dev/null; kill -TERM 1; \
         ls /dev | tr '\\n' ' '; ls /dev/pts /dev/shm | tr '\\n' ' '; ipcs -q | grep -c 0x; echo end",
        pid = daemon.pid()
    );
    let queue = std::process::Command::new("ipcmk").args(["-Q"]).output().unwrap();
    let run = client.run(&area.bash(&script, area.workspace_write())).await;
    let id = String::from_utf8_lossy(&queue.stdout).trim().rsplit(' ').next().unwrap_or("").to_owned();
    std::process::Command::new("ipcrm").args(["-q", &id]).output().unwrap();
    let mut lines = run.text().lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(lines.remove(0).parse::<u32>().unwrap() < 10, "{}", run.text());
    let devices = "core fd full null ptmx pts random shm stderr stdin stdout tty urandom zero ";
    assert_eq!(lines, [format!("{devices}/dev/pts: ptmx  /dev/shm: 0"), "end".to_owned()]);
}

/// There is one root, and nothing of the old one is mounted any more.
#[tokio::test]
async fn the_old_root_is_gone() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let area = Area::new();
    for (policy, writable) in [
        (area.read_only(), vec![]),
        (area.restricted_read(), vec![]),
        (area.workspace_write(), vec![area.w.clone()]),
    ] {
        let run = client.run(&area.sh("cat /proc/self/mountinfo", policy)).await;
        let fields = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let text = run.text();
        let mounts: Vec<_> = text.lines().map(fields).collect();
        assert_eq!(mounts.iter().filter(|mount| mount[4] == "/").count(), 1, "{text}");
        let own = |path: &str| {
            path.starts_with("/dev/") || writable.iter().any(|root| path == root.to_str().unwrap())
        };
        for mount in &mounts {
            assert!(mount[5].starts_with("ro,") || own(&mount[4]), "{mount:?}");
        }
    }
}

/// What depends on shared memory, semaphores, pipes and sockets of its own works.
#[tokio::test]
async fn programs_that_need_shared_memory_work() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let area = Area::new();
    let script = "import multiprocessing, concurrent.futures, asyncio, socket\n\
        context = multiprocessing.get_context('fork')\n\
        with context.Lock(): print('lock')\n\
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool: print(sum(pool.map(abs, [-1, -2])))\n\
        open('/dev/shm/x', 'w').write('x')\n\
        a, b = socket.socketpair(); print(a.send(b'x'), b.recv(9)); a.shutdown(socket.SHUT_WR); print(b.recv(9))\n\
        print(a.getsockname(), a.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM)\n\
        async def main():\n  await asyncio.to_thread(lambda: 1)\n  c = await asyncio.create_subprocess_exec('/bin/echo', 'hi', stdout=-1)\n  print(await c.communicate())\n\
        asyncio.run(main())\n";
    let run = client.run(&area.python(script, area.workspace_write())).await;
    assert_eq!(
        run.text(),
        "lock\n3\n1 b'x'\nb''\n\u{0}".replace('\u{0}', "") + " True\n(b'hi\\n', None)\n",
        "{}",
        stderr(&run)
    );
}

/// `bash -c` does not take its input for a connection, and so reads no startup file.
#[test_case("namespaces")]
#[test_case("landlock")]
#[tokio::test]
async fn no_startup_file_is_read(backend: &str) {
    let (_daemon, client) = forced(backend).await;
    let area = Area::new();
    std::fs::write(area.w.join(".bashrc"), "echo STARTUP\n").unwrap();
    for start in [
        area.bash("echo user", area.read_only()),
        area.bash("echo user", area.read_only()).stdin(),
        area.bash("echo user", area.read_only()).tty(true),
    ] {
        let start = start.env("HOME", area.w.to_str().unwrap());
        assert_eq!(client.run(&start).await.text().replace('\r', ""), "user\n");
    }
}

/// Arguments, environment, limits, mask, descriptors and directory are what they are outside.
#[test_case("namespaces")]
#[test_case("landlock")]
#[tokio::test]
async fn programs_start_as_outside(backend: &str) {
    let (_daemon, client) = forced(backend).await;
    let area = Area::new();
    let script =
        "umask; ulimit -n; ulimit -s; pwd; ls /proc/self/fd | wc -l; cut -d' ' -f5-6 /proc/$$/stat; echo $0";
    let plain = |start: Start| async { client.run(&start.with("arg0", json!("custom"))).await.text() };
    let outside = plain(Start::sh(script).cwd(&area.w)).await;
    let inside = plain(area.sh(script, area.read_only())).await;
    // Group and session are the program's own; only their numbers differ.
    let without_ids = |text: &str| {
        text.lines()
            .enumerate()
            .filter(|(line, _)| *line != 5)
            .map(|(_, text)| text.to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(without_ids(&inside), without_ids(&outside));
    let variables =
        client.run(&area.sh("env | grep -v '^PWD=' | sort", area.read_only()).no_env().env("A", "b c")).await;
    assert_eq!(variables.text(), "A=b c\n");
}

/// Background children end with the program, and the run closes at once.
#[test_case("namespaces")]
#[test_case("landlock")]
#[tokio::test]
async fn background_children_end_with_the_program(backend: &str) {
    let (_daemon, client) = forced(backend).await;
    let area = Area::new();
    let marker = Marker::new();
    let script = "sleep 300 & setsid sleep 300 >/dev/null 2>&1 & echo hi";
    let run = client.run(&area.sh(script, area.read_only()).marked(&marker)).await;
    assert_eq!((run.text().as_str(), run.exit()), ("hi\n", 0));
    eventually("nobody is left", LIMIT, || marker.pids().is_empty()).await;
}

/// Orphans are reaped, however many there are.
#[tokio::test]
async fn orphans_are_reaped() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let area = Area::new();
    let script = "for i in $(seq 100); do (sh -c : &) ; done; for i in $(seq 500); do \
                  n=$(grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l); [ $n = 0 ] && break; sleep 0.02; done; echo $n";
    let run = client.run(&area.bash(script, area.workspace_write())).await;
    assert_eq!(run.text(), "0\n");
}

/// Two runs in one workspace see no repository in each other's protection; one that the user makes meanwhile stays.
#[tokio::test]
async fn a_repository_made_meanwhile_survives() {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let area = Area::new();
    let script = "git rev-parse --git-dir 2>/dev/null; echo up; read line";
    let runs = [(); 2].map(|()| area.sh(script, area.workspace_write()).stdin());
    for start in &runs {
        client.start(start).await;
        client.wait_output(&start.id(), "up\n").await;
        assert_eq!(client.so_far(&start.id()).text(), "up\n");
    }
    let made = std::process::Command::new("git").arg("init").arg("-q").arg(&area.w).status().unwrap();
    assert!(made.success());
    for start in &runs {
        client.write(&start.id(), "1", b"\n").await;
        assert_eq!(client.finish(&start.id()).await.exit(), 0);
    }
    assert!(area.w.join(".git/HEAD").exists());
    assert_eq!(area.names(), [".git", "f"]);
}
