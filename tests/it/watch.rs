//! `fs/watchMissing`: what rings, what does not, and that nothing is missed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use exec_server::path_uri::PathUri;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tempfile::TempDir;
use test_case::test_case;

use crate::support::raw::RawClient;
use crate::support::server::ServerProcess;
use crate::support::soon;

/// A client of a server, and a directory to make changes in.
struct Scene {
    client: RawClient,
    server: ServerProcess,
    root: PathBuf,
    _directory: TempDir,
}

impl Scene {
    async fn new() -> Self {
        Self::on(ServerProcess::start().await).await
    }

    async fn on(server: ServerProcess) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let client = RawClient::connect(server.url()).await;
        Self { client, server, root, _directory: directory }
    }

    fn uri(&self, name: &str) -> PathUri {
        uri(&self.root.join(name))
    }

    fn params(&self, id: u64, missing: &[&str], present: Option<&str>) -> Value {
        let missing: Vec<_> = missing.iter().map(|name| self.uri(name)).collect();
        json!({"watchId": id, "missing": missing, "present": present.map(|name| self.uri(name))})
    }

    /// Whether the server watches.
    async fn watch(&mut self, id: u64, missing: &[&str], present: Option<&str>) -> bool {
        let params = self.params(id, missing, present);
        self.watch_raw(params).await
    }

    async fn watch_raw(&mut self, params: Value) -> bool {
        let result = self.client.call("fs/watchMissing", params).await;
        result["watching"].as_bool().expect("a flag")
    }

    async fn assert_rings(&mut self, id: u64) {
        assert_eq!(self.client.notification().await, bell(id));
    }

    /// Asks for another watch: had the last one seen a change, it would say so before the answer.
    async fn assert_silent(&mut self, next_id: u64) {
        self.watch(next_id, &[], None).await;
        assert_eq!(self.client.notifications(), [] as [Value; 0]);
    }
}

fn uri(path: &Path) -> PathUri {
    PathUri::from_native_path(path).unwrap()
}

fn bell(id: u64) -> Value {
    json!({"method": "fs/missingChanged", "params": {"watchId": id}})
}

/// A directory tree with a file, and a file and an empty directory to replace things with.
fn furnish(root: &Path) {
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::create_dir_all(root.join("empty")).unwrap();
    fs::create_dir_all(root.join("other")).unwrap();
    fs::write(root.join("file"), "1").unwrap();
    fs::write(root.join("new"), "2").unwrap();
}

#[test_case(&["x"], |root| fs::write(root.join("x"), "").unwrap(); "file")]
#[test_case(&["x"], |root| fs::create_dir(root.join("x")).unwrap(); "directory")]
#[test_case(&["x"], |root| symlink("nowhere", root.join("x")).unwrap(); "dangling link")]
#[test_case(&["x"], |root| fs::hard_link(root.join("file"), root.join("x")).unwrap(); "hard link")]
#[test_case(&["x"], |root| fs::rename(root.join("file"), root.join("x")).unwrap(); "moved there")]
#[test_case(&["y", "x"], |root| { fs::write(root.join("x"), "").unwrap(); fs::remove_file(root.join("x")).unwrap() }; "removed at once")]
#[test_case(&["c/d/e"], |root| fs::create_dir(root.join("c")).unwrap(); "missing ancestor")]
#[test_case(&["c/d/e"], |root| symlink("a", root.join("c")).unwrap(); "missing ancestor as a link")]
#[test_case(&["a/b/c"], |root| fs::rename(root.join("a/b"), root.join("a/z")).unwrap(); "parent renamed")]
#[test_case(&["a/b/c"], |root| fs::rename(root.join("a"), root.join("z")).unwrap(); "ancestor renamed")]
#[test_case(&["a/b/c"], |root| fs::remove_dir(root.join("a/b")).unwrap(); "parent removed")]
#[test_case(&["a/b/c"], |root| fs::remove_dir_all(root.join("a")).unwrap(); "ancestors removed")]
#[test_case(&["empty/c"], |root| fs::rename(root.join("other"), root.join("empty")).unwrap(); "ancestor replaced")]
#[test_case(&["file/c"], |root| fs::remove_file(root.join("file")).unwrap(); "file in place of an ancestor removed")]
#[tokio::test]
async fn a_missing_path_rings(missing: &[&str], change: fn(&Path)) {
    let mut scene = Scene::new().await;
    furnish(&scene.root);
    assert!(scene.watch(7, missing, None).await);
    change(&scene.root);
    scene.assert_rings(7).await;
    // Once.
    furnish(&scene.root);
    fs::create_dir_all(scene.root.join(missing[0])).ok();
    scene.assert_silent(8).await;
}

fn set_times(path: &Path) {
    fs::File::open(path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test_case("file", |root| fs::write(root.join("file"), "22").unwrap(); "written")]
#[test_case("file", |root| set_mode(&root.join("file"), 0o600); "mode")]
#[test_case("file", |root| set_times(&root.join("file")); "touched")]
#[test_case("file", |root| fs::rename(root.join("file"), root.join("x")).unwrap(); "renamed")]
#[test_case("file", |root| fs::rename(root.join("new"), root.join("file")).unwrap(); "replaced")]
#[test_case("file", |root| fs::remove_file(root.join("file")).unwrap(); "removed")]
#[test_case("a/b", |root| fs::remove_dir(root.join("a/b")).unwrap(); "directory removed")]
#[test_case("a/b", |root| set_mode(&root.join("a/b"), 0o700); "mode of a directory")]
#[test_case("a/b", |root| fs::rename(root.join("a"), root.join("z")).unwrap(); "ancestor renamed")]
#[tokio::test]
async fn a_present_path_rings(present: &str, change: fn(&Path)) {
    let mut scene = Scene::new().await;
    furnish(&scene.root);
    assert!(scene.watch(1, &["never"], Some(present)).await);
    change(&scene.root);
    scene.assert_rings(1).await;
}

#[tokio::test]
async fn what_does_not_concern_the_paths_does_not_ring() {
    let mut scene = Scene::new().await;
    furnish(&scene.root);
    assert!(scene.watch(1, &["x", "a/b/c", "p/q"], Some("file")).await);
    let at = |name: &str| scene.root.join(name);
    fs::write(at("sibling"), "").unwrap();
    fs::write(at("sibling"), "more").unwrap();
    fs::remove_file(at("sibling")).unwrap();
    fs::create_dir_all(at("a/c/b")).unwrap();
    fs::rename(at("a/c"), at("q")).unwrap();
    fs::write(at("a/b/x"), "").unwrap();
    set_mode(&at("a/b"), 0o700);
    set_times(&at("a"));
    assert_eq!(fs::read(at("file")).unwrap(), b"1");
    assert_eq!(fs::read_dir(at("a/b")).unwrap().count(), 1);
    scene.assert_silent(2).await;

    assert!(scene.watch(3, &["x"], Some("a/b")).await);
    let inside = scene.root.join("a/b/y");
    fs::write(&inside, "").unwrap();
    fs::write(&inside, "2").unwrap();
    set_mode(&inside, 0o600);
    set_times(&inside);
    fs::remove_file(&inside).unwrap();
    fs::create_dir(&inside).unwrap();
    scene.assert_silent(4).await;
}

#[tokio::test]
async fn what_cannot_be_watched_is_not() {
    let mut scene = Scene::new().await;
    furnish(&scene.root);
    symlink("a", scene.root.join("link")).unwrap();
    symlink("nowhere", scene.root.join("dangling")).unwrap();
    let many: Vec<_> = (0..65).map(|number| format!("n{number}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let cases: &[(&[&str], Option<&str>)] = &[
        (&[], None),
        (&many, None),
        (&["file"], None),
        (&["x", "a/b"], None),
        (&["dangling"], None),
        (&["link/x"], None),
        (&["dangling/x"], None),
        (&["/"], None),
        (&["/proc/self/x"], None),
        (&["/sys/kernel/x/y"], None),
        (&["x"], Some("none")),
        (&["x"], Some("a/none/b")),
        (&["x"], Some("file/b")),
        (&["x"], Some("link")),
        (&["x"], Some("dangling")),
        (&["x"], Some("/proc/self/stat")),
        (&["file"], Some("file")),
    ];
    let mut id = 0;
    for (missing, present) in cases {
        id += 1;
        assert!(!scene.watch(id, missing, *present).await, "{missing:?} {present:?}");
    }
    for missing in [["file://host/x"], ["file:///C:/x"]] {
        id += 1;
        assert!(!scene.watch_raw(json!({"watchId": id, "missing": missing})).await, "{missing:?}");
    }
    assert!(scene.watch(id + 1, &many[1..], Some("/")).await);
}

#[tokio::test]
async fn ids_rise_and_the_newest_watch_stays() {
    let mut scene = Scene::new().await;
    assert!(!scene.watch(0, &["a"], None).await);
    assert!(scene.watch(5, &["a"], None).await);
    // Too late: the watch stays.
    assert!(!scene.watch(5, &["b"], None).await);
    assert!(!scene.watch(4, &["b"], None).await);
    fs::write(scene.root.join("b"), "").unwrap();
    fs::write(scene.root.join("a"), "").unwrap();
    scene.assert_rings(5).await;
    // In vain, but with a new id: the watch is gone.
    assert!(scene.watch(6, &["c"], None).await);
    assert!(!scene.watch(8, &["a"], None).await);
    fs::write(scene.root.join("c"), "").unwrap();
    assert!(!scene.watch(7, &["d"], None).await);
    assert!(scene.watch(u64::MAX, &["d"], None).await);
    fs::write(scene.root.join("d"), "").unwrap();
    scene.assert_rings(u64::MAX).await;
    scene.assert_silent(0).await;
}

#[tokio::test]
async fn a_new_connection_begins_without_a_watch() {
    let mut scene = Scene::new().await;
    assert!(scene.watch(5, &["a"], None).await);
    scene.client = scene.client.resume(scene.server.url()).await;
    fs::write(scene.root.join("a"), "").unwrap();
    assert!(scene.watch(1, &["b"], None).await);
    fs::write(scene.root.join("b"), "").unwrap();
    scene.assert_rings(1).await;
}

/// A watch is asked for and its path made at the same time: the answer or a bell tells.
#[tokio::test]
async fn nothing_is_missed_in_between() {
    let mut scene = Scene::new().await;
    let mut watched = 0;
    for id in 1..=300 {
        let name = format!("d{id}/e/f");
        let missing = [name.as_str()];
        let path = scene.root.join(&name);
        let making = std::thread::spawn(move || {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        });
        if scene.watch(id, &missing, None).await {
            watched += 1;
            assert_eq!(scene.client.notifications(), [] as [Value; 0], "the answer comes first");
            making.join().unwrap();
            scene.assert_rings(id).await;
        } else {
            making.join().unwrap();
        }
    }
    assert!(watched > 0);
}

/// Calls that are sent without waiting take effect in the order sent.
#[tokio::test]
async fn changes_before_and_behind_the_request_are_told_apart() {
    let mut scene = Scene::new().await;
    for id in 1..=50 {
        let x = scene.uri("x");
        let remove = scene.client.request("fs/remove", json!({"path": x})).await;
        let watch = scene.params(id, &["x"], None);
        let watch = scene.client.request("fs/watchMissing", watch).await;
        let write = scene.client.request("fs/writeFile", json!({"path": x, "dataBase64": ""})).await;
        scene.client.answer(remove).await;
        assert_eq!(scene.client.answer(watch).await, json!({"watching": true}));
        scene.client.answer(write).await;
        scene.assert_rings(id).await;
    }
}

/// In a mount namespace of its own, where the system lets us have one.
#[tokio::test]
async fn a_mount_rings_where_it_is_on_the_way() {
    let unshare = ["unshare", "--user", "--map-root-user", "--mount"];
    let allowed = std::process::Command::new(unshare[0])
        .args(&unshare[1..])
        .args(["mount", "-t", "tmpfs", "none", "/mnt"])
        .status();
    if !allowed.is_ok_and(|status| status.success()) {
        return;
    }
    let mut scene = Scene::on(ServerProcess::start_under(&unshare).await).await;
    furnish(&scene.root);
    let mut number = 0;
    let mut run = async |scene: &mut Scene, script: &str| {
        number += 1;
        let process = format!("p{number}");
        let params = json!({"processId": process, "argv": ["/bin/sh", "-c", script], "cwd": scene.uri(""),
            "env": {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, "tty": false});
        let read = json!({"processId": process, "waitMs": 10_000});
        scene.client.call("process/start", params).await;
        soon(async {
            loop {
                let read = scene.client.call("process/read", read.clone()).await;
                if read["closed"] == true {
                    assert_eq!(read["exitCode"], 0, "{script}: {read}");
                    break;
                }
            }
        })
        .await;
    };
    assert!(scene.watch(1, &["a/b/c"], None).await);
    run(&mut scene, "mount -t tmpfs none other && umount other && mount -t tmpfs none other").await;
    // Long seen by now, had it counted.
    let is_bell = |note: &&Value| note["method"] == "fs/missingChanged";
    assert_eq!(scene.client.notifications().iter().find(is_bell), None);
    run(&mut scene, "mount -t tmpfs none a").await;
    assert_eq!(next_bell(&mut scene).await, bell(1));
    assert!(scene.watch(2, &["a/b/c"], None).await);
    run(&mut scene, "umount -l a").await;
    assert_eq!(next_bell(&mut scene).await, bell(2));
}

/// The next bell, past the events of processes.
async fn next_bell(scene: &mut Scene) -> Value {
    loop {
        let notification = scene.client.notification().await;
        if notification["method"] == "fs/missingChanged" {
            return notification;
        }
    }
}
