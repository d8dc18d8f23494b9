use super::*;
use std::future::poll_fn;
use std::path::Path;
use std::time::Duration;

use tokio::time::timeout;

async fn watch(missing: &[PathBuf]) -> Option<Watch> {
    let missing = missing.iter().map(|path| PathUri::from_native_path(path).unwrap()).collect();
    Watch::new(WatchMissingParams { watch_id: 1, missing, present: None }).await
}

async fn rings(watch: &mut Watch) -> bool {
    timeout(Duration::from_secs(20), poll_fn(|cx| watch.poll_changed(cx))).await.is_ok()
}

fn root() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().canonicalize().unwrap();
    (directory, root)
}

#[tokio::test]
async fn an_overflow_is_a_change() {
    let (_directory, root) = root();
    let mut watch = watch(&[root.join("x")]).await.unwrap();
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    // Two events each.
    for number in 0..limit.trim().parse::<u32>().unwrap() {
        let sibling = root.join(format!("y{}", number % 2));
        std::fs::write(&sibling, "").unwrap();
        std::fs::remove_file(sibling).unwrap();
    }
    assert!(rings(&mut watch).await);
}

#[tokio::test]
async fn a_storm_beside_the_path_hides_nothing() {
    let (_directory, root) = root();
    let mut watch = watch(&[root.join("x")]).await.unwrap();
    for number in 0..500 {
        std::fs::write(root.join(format!("y{number}")), "").unwrap();
    }
    assert!(!watch.has_changed());
    std::fs::write(root.join("x"), "").unwrap();
    assert!(rings(&mut watch).await);
}

#[tokio::test]
async fn a_very_deep_path_is_not_watched() {
    let (_directory, root) = root();
    let deep = |depth| [root.join("x/".repeat(depth))];
    assert!(watch(&deep(100)).await.is_some());
    assert!(watch(&deep(300)).await.is_none());
}

#[test]
fn a_route_knows_when_it_leads_elsewhere() {
    let (_directory, root) = root();
    std::fs::create_dir_all(root.join("a/b")).unwrap();
    let follow = |path: &Path| Route::follow(path.to_owned(), |_, _| Ok(())).unwrap();
    let route = follow(&root.join("a/b/c"));
    assert!(!route.leads_elsewhere());
    std::fs::rename(root.join("a"), root.join("z")).unwrap();
    assert!(route.leads_elsewhere());
    std::fs::create_dir_all(root.join("a/b")).unwrap();
    assert!(route.leads_elsewhere());
    let route = follow(&root.join("a/b/c"));
    std::fs::create_dir_all(root.join("a/b/c")).unwrap();
    assert!(route.leads_elsewhere());
}
