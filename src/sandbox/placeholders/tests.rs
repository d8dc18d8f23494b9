use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::{Identity, Lease, Placeholders, Protection, sweep};

fn workspace() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

fn real(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().canonicalize().expect("a real path")
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a listing").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn identity(path: &Path) -> Identity {
    let data = fs::symlink_metadata(path).expect("it is there");
    Identity { device: data.dev(), inode: data.ino() }
}

fn acquire(owner: &Placeholders, paths: &[&Path]) -> Lease {
    owner.acquire(&paths.iter().map(|path| path.to_path_buf()).collect::<Vec<_>>()).expect("a lease")
}

fn placeholder(path: &Path) -> Protection {
    Protection::Placeholder(path.to_owned(), identity(path))
}

fn eventually(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "it does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_last_user_removes_it() {
    let (directory, owner) = (workspace(), Placeholders::new(None));
    let w = real(&directory);
    let git = w.join(".git");
    let first = acquire(&owner, &[&git]);
    assert_eq!(first.protections(), [placeholder(&git)]);
    assert!(owner.is_placeholder(identity(&git)));
    let second = acquire(&owner, &[&git, &git]);
    assert_eq!(second.protections(), [placeholder(&git), placeholder(&git)]);
    first.release();
    assert_eq!(names(&w), [".git"]);
    let seen = identity(&git);
    second.release();
    assert_eq!(names(&w), [""; 0]);
    assert!(!owner.is_placeholder(seen));
}

#[test]
fn a_lease_that_is_dropped_is_given_back() {
    let (directory, owner) = (workspace(), Placeholders::new(None));
    let w = real(&directory);
    drop(acquire(&owner, &[&w.join(".git"), &w.join(".aws")]));
    eventually(|| names(&w).is_empty());
}

#[test]
fn what_exists_stays_as_it_is() {
    let (directory, owner) = (workspace(), Placeholders::new(None));
    let w = real(&directory);
    fs::create_dir(w.join("empty")).unwrap();
    fs::write(w.join("file"), "").unwrap();
    std::os::unix::fs::symlink("nowhere", w.join("link")).unwrap();
    let paths = ["empty", "file", "link"].map(|name| w.join(name));
    let lease = owner.acquire(&paths).unwrap();
    assert_eq!(lease.protections(), paths.clone().map(Protection::Existing));
    lease.release();
    assert_eq!(names(&w), ["empty", "file", "link"]);
}

#[test]
fn the_first_missing_directory_on_the_way_is_held() {
    let (directory, owner) = (workspace(), Placeholders::new(None));
    let w = real(&directory);
    let deep = acquire(&owner, &[&w.join("a/b/c"), &w.join("a/x")]);
    assert_eq!(deep.protections(), [placeholder(&w.join("a")), placeholder(&w.join("a"))]);
    assert_eq!(names(&w.join("a")), [""; 0]);
    deep.release();
    assert_eq!(names(&w), [""; 0]);
}

#[test]
fn what_the_host_puts_in_survives() {
    let (directory, owner) = (workspace(), Placeholders::new(None));
    let git = real(&directory).join(".git");
    let (first, second) = (acquire(&owner, &[&git]), acquire(&owner, &[&git]));
    fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    let third = acquire(&owner, &[&git]);
    assert_eq!(third.protections(), [Protection::Existing(git.clone())]);
    for lease in [first, second, third] {
        lease.release();
    }
    assert_eq!(names(&git), ["HEAD"]);
    assert_eq!(fs::metadata(&git).unwrap().permissions().mode() & 0o1000, 0, "an ordinary directory");
    let later = acquire(&owner, &[&git]);
    assert_eq!(later.protections(), [Protection::Existing(git.clone())]);
}

#[test]
fn a_directory_of_the_host_in_its_place_survives() {
    let (directory, owner) = (workspace(), Placeholders::new(None));
    let git = real(&directory).join(".git");
    let lease = acquire(&owner, &[&git]);
    fs::remove_dir(&git).unwrap();
    fs::create_dir(&git).unwrap();
    lease.release();
    assert!(git.is_dir());
}

#[test]
fn one_that_was_removed_from_outside_is_made_again() {
    let (directory, owner) = (workspace(), Placeholders::new(None));
    let w = real(&directory);
    let first = acquire(&owner, &[&w.join(".git")]);
    fs::remove_dir(w.join(".git")).unwrap();
    let second = acquire(&owner, &[&w.join(".git")]);
    assert_eq!(second.protections(), [placeholder(&w.join(".git"))]);
    first.release();
    assert_eq!(names(&w), [".git"], "the second still needs it");
    second.release();
    assert_eq!(names(&w), [""; 0]);
}

#[test]
fn it_is_found_in_a_workspace_that_was_renamed() {
    let (directory, owner) = (workspace(), Placeholders::new(None));
    let (old, new) = (real(&directory).join("old"), real(&directory).join("new"));
    fs::create_dir(&old).unwrap();
    let lease = acquire(&owner, &[&old.join(".git")]);
    fs::rename(&old, &new).unwrap();
    lease.release();
    assert_eq!(names(&new), [""; 0]);
}

#[test]
fn no_link_is_followed() {
    let (directory, owner) = (workspace(), Placeholders::new(None));
    let w = real(&directory);
    fs::create_dir(w.join("outside")).unwrap();
    std::os::unix::fs::symlink("outside", w.join("link")).unwrap();
    fs::write(w.join("file"), "").unwrap();
    for path in ["link/.git", "link/a/b", "file/.git", "file/a/b"] {
        let error = owner.acquire(&[w.join("first"), w.join(path)]).unwrap_err().to_string();
        assert!(error.contains(path), "{error}");
    }
    assert_eq!(names(&w), ["file", "link", "outside"]);
    assert_eq!(names(&w.join("outside")), [""; 0]);
    for path in ["relative/.git", "/", ""] {
        assert!(owner.acquire(&[path.into()]).is_err(), "{path:?}");
    }
}

#[test]
fn two_servers_share_one() {
    let directory = workspace();
    let w = real(&directory);
    let git = w.join(".git");
    let (one, two) = (Placeholders::new(None), Placeholders::new(None));
    let (first, second) = (acquire(&one, &[&git]), acquire(&two, &[&git]));
    assert_eq!(first.protections(), second.protections());
    first.release();
    assert_eq!(names(&w), [".git"], "the other server still needs it");
    second.release();
    eventually(|| names(&w).is_empty());
}

#[test]
fn many_users_of_two_servers_never_lose_it() {
    let directory = workspace();
    let git = real(&directory).join(".git");
    let servers = [Placeholders::new(None), Placeholders::new(None)];
    std::thread::scope(|scope| {
        for owner in servers.iter().cycle().take(6) {
            scope.spawn(|| {
                for _ in 0..100 {
                    let lease = acquire(owner, &[&git]);
                    let Protection::Placeholder(_, held) = &lease.protections()[0] else {
                        panic!("not held")
                    };
                    assert_eq!(identity(&git), *held);
                    lease.release();
                }
            });
        }
    });
    eventually(|| !git.exists());
}

#[test]
fn who_locks_a_placeholder_only_delays_its_end() {
    let (directory, owner) = (workspace(), Placeholders::new(None));
    let w = real(&directory);
    let lease = acquire(&owner, &[&w.join(".git")]);
    let stranger = fs::File::open(w.join(".git")).unwrap();
    flock(&stranger, FlockOperation::NonBlockingLockShared).unwrap();
    lease.release();
    assert_eq!(names(&w), [".git"]);
    drop(stranger);
    eventually(|| names(&w).is_empty());
}

#[test]
fn a_stranger_with_the_only_lock_stops_a_sandbox_and_not_its_protection() {
    let (directory, owner) = (workspace(), Placeholders::new(None));
    let git = real(&directory).join(".git");
    fs::create_dir(&git).unwrap();
    fs::set_permissions(&git, fs::Permissions::from_mode(0o1755)).unwrap();
    let stranger = fs::File::open(&git).unwrap();
    flock(&stranger, FlockOperation::NonBlockingLockExclusive).unwrap();
    let error = owner.acquire(std::slice::from_ref(&git)).unwrap_err().to_string();
    assert!(error.contains("locked by another process"), "{error}");
}

#[test]
fn the_next_server_clears_what_a_killed_one_left() {
    let (directory, state) = (workspace(), workspace());
    let w = real(&directory);
    let killed = Placeholders::new(Some(state.path()));
    let lease = acquire(&killed, &[&w.join(".git"), &w.join("deep/er")]);
    assert_eq!(names(&state.path().join("placeholders")).len(), 1);
    let living = Placeholders::new(Some(state.path()));
    assert_eq!(names(&state.path().join("placeholders")).len(), 2, "the first server lives");
    assert_eq!(names(&w), [".git", "deep"]);
    forget(killed, lease);
    drop(living);
    let _next = Placeholders::new(Some(state.path()));
    eventually(|| names(&w).is_empty());
    assert_eq!(names(&state.path().join("placeholders")).len(), 1);
}

/// What SIGKILL does: descriptors close, and no code runs. The journal of the killed server stays with its paths.
fn forget(owner: Placeholders, lease: Lease) {
    let shared = std::sync::Arc::clone(&owner.0.shared);
    flock(shared.journal.file().unwrap(), FlockOperation::Unlock).unwrap();
    for slot in super::lock(&shared.slots).values() {
        super::lock(slot).holding = None;
    }
    std::mem::forget((owner, lease));
}

#[test]
fn a_journal_of_half_a_creation_litters_nothing_and_removes_nothing() {
    let (directory, state) = (workspace(), workspace());
    let w = real(&directory);
    fs::create_dir(w.join(".git")).unwrap();
    let killed = Placeholders::new(Some(state.path()));
    let journal = &killed.0.shared.journal;
    for name in [".git", "missing", "missing/deeper"] {
        journal.add(&w.join(name)).unwrap();
    }
    flock(journal.file().unwrap(), FlockOperation::Unlock).unwrap();
    std::mem::forget(killed);
    let _next = Placeholders::new(Some(state.path()));
    eventually(|| names(&state.path().join("placeholders")).len() == 1);
    assert_eq!(names(&w), [".git"]);
}

#[test]
fn the_guard_needs_no_state_directory() {
    let directory = workspace();
    let w = real(&directory);
    let owner = Placeholders::new(None);
    let journal = owner.journal().unwrap();
    let lease = acquire(&owner, &[&w.join(".git"), &w.join(".codex")]);
    forget(owner, lease);
    sweep(&journal);
    assert_eq!(names(&w), [""; 0]);
}

#[test]
fn a_swept_journal_is_gone_and_a_foreign_file_untouched() {
    let (directory, state) = (workspace(), workspace());
    let owner = Placeholders::new(Some(state.path()));
    let lease = acquire(&owner, &[&real(&directory).join(".git")]);
    let journal = owner.journal().unwrap();
    forget(owner, lease);
    sweep(&journal);
    assert_eq!(names(&state.path().join("placeholders")), [""; 0]);
    let foreign = state.path().join("log");
    fs::write(&foreign, "mine").unwrap();
    sweep(&fs::File::open(&foreign).unwrap());
    assert_eq!(names(state.path()), ["log", "placeholders"]);
}

#[test]
fn slots_are_used_again() {
    let (directory, state) = (workspace(), workspace());
    let owner = Placeholders::new(Some(state.path()));
    for round in 0..50 {
        acquire(&owner, &[&real(&directory).join(format!("p{round}"))]).release();
    }
    assert!(owner.journal().unwrap().metadata().unwrap().len() <= 4096);
    assert!(super::lock(&owner.0.shared.slots).is_empty());
    drop(owner);
    eventually(|| names(&state.path().join("placeholders")).is_empty());
}

#[test]
fn a_directory_that_others_may_write_is_no_placeholder() {
    let (directory, owner) = (workspace(), Placeholders::new(None));
    let shared = real(&directory).join("tmp");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    let lease = acquire(&owner, &[&shared]);
    assert_eq!(lease.protections(), [Protection::Existing(shared.clone())]);
    lease.release();
    assert!(shared.exists());
}
