//! What Landlock and a filter keep without namespaces.

use pretty_assertions::assert_eq;
use serde_json::json;

use super::{Area, entry, forced, special, stderr};
use crate::support::Daemon;

/// Nothing can be changed under a policy without writable roots: no content, no name, no metadata.
#[tokio::test]
async fn a_read_only_disk_stays_as_it_is() {
    let (_daemon, client) = forced("landlock").await;
    let area = Area::new();
    let script = format!(
        "cat {out}/secret f; for c in 'echo x > f' 'echo x >> {out}/secret' 'touch n' 'mkdir d' 'rm f' 'mv f g' 'ln f g' 'ln -s f g' \
         'mkfifo p' 'truncate -s 0 f' 'chmod 777 f' 'chown 1 f' 'touch -d 2001-01-01 f' 'setfattr -n user.x -v y f' 'touch /dev/shm/n' 'touch /tmp/n'; \
         do sh -c \"$c\" 2>/dev/null && echo \"DONE $c\"; done; : > /dev/null; echo end",
        out = area.out.display()
    );
    let run = client.run(&area.bash(&script, area.read_only())).await;
    assert_eq!(run.text(), "SECRETinsideend\n", "{}", stderr(&run));
    area.assert_outside_untouched();
    assert_eq!(area.names(), ["f"]);
}

/// What is not granted cannot be read, and the report says that its names can be seen.
#[tokio::test]
async fn restricted_reads_are_reported_and_kept() {
    let (_daemon, client) = forced("landlock").await;
    let area = Area::new();
    let script = format!(
        "cat f; cat {out}/secret; ls {out}; head -c 1 /proc/$PPID/environ; echo end",
        out = area.out.display()
    );
    let start = area.sh(&script, area.restricted_read());
    let answer = client.start(&start).await;
    assert_eq!(answer["sandboxBackend"], "landlock");
    assert_eq!(answer["sandboxGaps"], json!(["outsideNames", "hostView"]));
    assert_eq!(client.finish(&start.id()).await.text(), "insideend\n");
}

/// The server and everything else outside can be neither traced nor signalled nor read from memory.
#[tokio::test]
async fn processes_outside_are_left_alone() {
    let (daemon, client) = forced("landlock").await;
    let area = Area::new();
    let pid = daemon.pid();
    let script = format!(
        "kill -0 {pid} && echo SIGNALLED; for f in environ mem maps fd/0 root/etc/passwd; do head -c 1 /proc/{pid}/$f && echo \"OPEN $f\"; done; \
         python3 -c 'import ctypes; l = ctypes.CDLL(None); print(l.ptrace(16, {pid}, 0, 0), l.syscall(438, l.syscall(434, {pid}, 0), 0, 0))'"
    );
    let run = client.run(&area.sh(&format!("({script}) 2>/dev/null"), area.read_only())).await;
    assert_eq!(run.text(), "-1 -1\n");
}

/// A writable root runs where its gaps are accepted, reports them, and keeps everything else.
#[tokio::test]
async fn accepted_gaps_are_reported() {
    let area = Area::new();
    let daemon = Daemon::setup()
        .argument("--sandbox-backend")
        .argument("landlock")
        .set("sandbox.accept_gaps", "outsideMetadata,protectedMetadata")
        .start()
        .await;
    let client = daemon.client().await;
    let script = format!(
        "echo x > n; mkdir d && mv n d/; (echo x > {0}/n; echo x >> {0}/secret; rm {0}/secret; mv f {0}/f) 2>/dev/null; echo end",
        area.out.display()
    );
    let start = area.sh(&script, area.workspace_write());
    let answer = client.start(&start).await;
    assert_eq!(answer["sandboxGaps"], json!(["hostView", "outsideMetadata", "protectedMetadata"]));
    assert_eq!(client.finish(&start.id()).await.text(), "end\n");
    assert_eq!(area.names(), ["d", "f"]);
    area.assert_outside_untouched();
    // Other parts of a writable root that may not be written are no gap that can be accepted.
    std::fs::create_dir(area.w.join("ro")).unwrap();
    let policy = area.workspace_and(&[entry(&area.w.join("ro"), "read")]);
    let error = client.error("process/start", area.sh("true", policy).params()).await;
    assert_eq!((error.kind(), &error.data["gaps"]), ("sandboxUnavailable", &json!([])));
    // Protected names are, also where an entry names them.
    std::fs::create_dir(area.w.join(".git")).unwrap();
    let policy = area.workspace_and(&[entry(&area.w.join(".git"), "read")]);
    assert_eq!(client.run(&area.sh("true", policy)).await.exit(), 0);
}

/// With all protected names granted by name, only metadata outside is a gap.
#[tokio::test]
async fn only_the_gaps_that_there_are_must_be_accepted() {
    let (_daemon, client) = forced("landlock").await;
    let area = Area::new();
    let log = area.out.join("log");
    std::fs::write(&log, "").unwrap();
    let policy = area.context(&[special("root", "read"), entry(&log, "write")], "restricted");
    let error = client.error("process/start", area.sh("true", policy).params()).await;
    assert_eq!(error.data, json!({"kind": "sandboxUnavailable", "gaps": ["outsideMetadata"]}));
}
