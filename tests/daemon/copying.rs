//! `exec-server cp`: exact copies, in both directions, and nothing that only looks like one.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use pretty_assertions::assert_eq;
use rustix::process::Signal;
use test_case::test_case;
use tokio::process::Command;
use tokio::time::timeout;

use super::support::machine::kill;
use super::support::proxy::{Cut, CuttingProxy};
use super::support::{Daemon, LIMIT, Random, eventually, work_dir};

fn cp(words: &[&OsStr]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exec-server"));
    command.arg("cp").args(words).env_remove("EXEC_SERVER_TOKEN_FILE");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

async fn run(words: &[&OsStr]) -> Output {
    timeout(LIMIT, cp(words).output()).await.expect("cp ends in time").unwrap()
}

/// Copies and says nothing about it.
async fn copy(words: &[&OsStr]) {
    let output = run(words).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), said.as_str()), (Some(0), ""));
}

fn there(url: &str, path: &Path) -> OsString {
    let mut text = OsString::from(format!("{url}:"));
    text.push(path);
    text
}

fn random(count: usize) -> Vec<u8> {
    let mut random = Random::new(7);
    (0..count).map(|_| random.next().to_le_bytes()[0]).collect()
}

/// A path, what it is and what is in it.
type Tree = BTreeMap<PathBuf, (char, u32, Vec<u8>)>;

fn tree(root: &Path) -> Tree {
    let mut found = Tree::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(path) = waiting.pop() {
        let about = path.symlink_metadata().unwrap();
        let (kind, content) = if about.is_symlink() {
            ('l', path.read_link().unwrap().into_os_string().into_encoded_bytes())
        } else if about.is_dir() {
            waiting.extend(path.read_dir().unwrap().map(|entry| entry.unwrap().path()));
            ('d', Vec::new())
        } else {
            ('f', std::fs::read(&path).unwrap())
        };
        let mode = about.permissions().mode() & 0o7777;
        found.insert(path.strip_prefix(root).unwrap().to_owned(), (kind, mode, content));
    }
    found
}

fn names(directory: &Path) -> Vec<OsString> {
    let mut names: Vec<_> = directory.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test_case(0; "nothing")]
#[test_case(1 << 20; "one block")]
#[test_case(7_000_001; "many blocks")]
#[tokio::test]
async fn a_file_goes_there_and_back(size: usize) {
    let (daemon, dir) = (Daemon::start().await, work_dir());
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("here"), random(size)).unwrap();
    set_mode(&path("here"), 0o4751);
    copy(&[path("here").as_ref(), &there(daemon.url(), &path("up"))]).await;
    copy(&[&there(daemon.url(), &path("up")), path("back").as_ref()]).await;
    for name in ["up", "back"] {
        assert!(std::fs::read(path(name)).unwrap() == random(size), "{name} has other bytes");
        assert_eq!(path(name).metadata().unwrap().permissions().mode() & 0o7777, 0o751);
    }
    assert_eq!(names(dir.path()), ["back", "here", "up"]);
}

#[tokio::test]
async fn what_is_there_is_replaced_and_a_directory_is_entered() {
    let (daemon, dir) = (Daemon::start().await, work_dir());
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("f"), "new").unwrap();
    std::fs::write(path("old"), "old, and longer").unwrap();
    std::fs::create_dir(path("d")).unwrap();
    symlink("old", path("link")).unwrap();
    symlink("d", path("to-d")).unwrap();
    copy(&[path("f").as_ref(), &there(daemon.url(), &path("link"))]).await;
    assert_eq!((std::fs::read(path("old")).unwrap(), path("link").is_symlink()), (b"new".to_vec(), true));
    for target in ["d", "d/", "to-d"] {
        copy(&[path("f").as_ref(), &there(daemon.url(), &path(target))]).await;
        assert_eq!(std::fs::read(path("d/f")).unwrap(), b"new");
        std::fs::remove_file(path("d/f")).unwrap();
    }
    copy(&[&there(daemon.url(), &path("link")), path("d/..//got").as_ref()]).await;
    assert_eq!(std::fs::read(path("got")).unwrap(), b"new");
}

#[tokio::test]
async fn a_socket_and_a_token_reach_a_server_too() {
    let dir = work_dir();
    let (socket, token) = (dir.path().join("s.sock"), dir.path().join("token"));
    std::fs::write(&token, "a-token-of-some-length-for-the-test").unwrap();
    let daemon = Daemon::setup()
        .listen(&format!("unix:{}", socket.display()))
        .argument("--ws-auth=capability-token")
        .argument(&format!("--ws-token-file={}", token.display()))
        .start()
        .await;
    let up = there(daemon.url(), &dir.path().join("up"));
    let refused = run(&[token.as_ref(), &up]).await;
    assert!(String::from_utf8_lossy(&refused.stderr).contains("401") && !dir.path().join("up").exists());
    copy(&["--token-file".as_ref(), token.as_ref(), token.as_ref(), &up]).await;
    assert!(dir.path().join("up").exists());
}

/// Odd names, empty directories, links of all kinds, directories that forbid writing.
fn plant(root: &Path) {
    std::fs::create_dir_all(root.join("sub/empty")).unwrap();
    std::fs::create_dir(root.join("locked")).unwrap();
    let odd: [&[u8]; 8] =
        [b"a b\nc", b"n\xff", b"#?%41%", b"...", b"-r", b"C:", &[b'x'; 255], "\u{e9}\u{fffd}".as_bytes()];
    for (index, name) in odd.into_iter().enumerate() {
        let path = root.join("sub").join(OsStr::from_bytes(name));
        std::fs::write(&path, format!("content {index}")).unwrap();
        set_mode(&path, 0o600 + u32::try_from(index).unwrap());
    }
    std::fs::write(root.join("locked/f"), random(2_000_000)).unwrap();
    set_mode(&root.join("locked/f"), 0o400);
    set_mode(&root.join("locked"), 0o555);
    set_mode(&root.join("sub/empty"), 0o711);
    for (target, name) in [("sub", "to-dir"), ("locked/f", "to-file"), ("no/where", "lost"), ("loop", "loop")]
    {
        symlink(target, root.join(name)).unwrap();
    }
}

#[tokio::test]
async fn a_tree_goes_there_and_back() {
    let (daemon, dir) = (Daemon::start().await, work_dir());
    let path = |name: &str| dir.path().join(name);
    std::fs::create_dir(path("src")).unwrap();
    plant(&path("src"));
    copy(&["-r".as_ref(), path("src").as_ref(), &there(daemon.url(), &path("up"))]).await;
    copy(&["-r".as_ref(), &there(daemon.url(), &path("up")), path("back").as_ref()]).await;
    let planted = tree(&path("src"));
    assert_eq!(planted.len(), 17);
    assert_eq!((tree(&path("up")), tree(&path("back"))), (planted.clone(), planted.clone()));
    // Again over itself, and into a directory that is there.
    std::fs::write(path("up/sub/mine"), "mine").unwrap();
    std::fs::create_dir(path("into")).unwrap();
    set_mode(&path("up/locked"), 0o755);
    for target in ["up/../up", "into"] {
        copy(&["-r".as_ref(), path("src").as_ref(), &there(daemon.url(), &path(target))]).await;
    }
    assert_eq!((tree(&path("into/src")), tree(&path("up/src"))), (planted.clone(), planted));
    assert!(path("up/sub/mine").exists());
}

#[tokio::test]
async fn what_cannot_be_copied_is_named_and_the_rest_is_copied() {
    let (daemon, dir) = (Daemon::start().await, work_dir());
    let path = |name: &str| dir.path().join(name);
    for directory in ["from/tree/linked", "from/tree/good", "to/tree/f", "elsewhere"] {
        std::fs::create_dir_all(path(directory)).unwrap();
    }
    for file in ["from/tree/f", "from/tree/linked/x", "from/tree/good/x"] {
        std::fs::write(path(file), "x").unwrap();
    }
    let pipe = path("from/tree/pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    symlink(OsStr::from_bytes(b"n\xff"), path("from/tree/raw")).unwrap();
    // A link of the destination leads nowhere that is written; a directory is no place for a file.
    symlink("../../elsewhere", path("to/tree/linked")).unwrap();
    let output = run(&["-r".as_ref(), path("from/tree").as_ref(), &there(daemon.url(), &path("to"))]).await;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 4), "{said}");
    for part in
        ["/from/tree/pipe: neither file", "/from/tree/raw -> ", "/from/tree/f -> ", "/to/tree/linked: "]
    {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(names(&path("elsewhere")).is_empty());
    assert_eq!(names(&path("to/tree")), ["f", "good", "linked"]);
    assert_eq!(names(&path("to/tree/good")), ["x"]);
}

#[test_case("none", "URL/x", "No such file"; "no source")]
#[test_case("d", "URL/x", "add -r"; "a directory")]
#[test_case("f", "URL/d", "a directory is there"; "onto a directory")]
#[test_case("f", "URL/no/f", "No such file"; "into nothing")]
#[test_case("f", "URL/f/x", "Not a directory"; "below a file")]
#[test_case("f", "URL/new/", "no such directory"; "a directory that is not there")]
#[test_case("f", "URL/pipe", "not a regular file"; "onto a pipe")]
#[test_case("pipe", "URL/x", "not a regular file"; "from a pipe")]
#[test_case("f", "g", "neither side"; "no server")]
#[test_case("URL/f", "URL/g", "both sides"; "two servers")]
#[test_case("f", "ws://127.0.0.1:1:/x", "cannot connect to ws://127.0.0.1:1: "; "nobody listens")]
#[test_case("f", "ws://127.0.0.1:1", "write URL:/PATH"; "no path")]
#[tokio::test]
async fn a_failure_is_one_line_that_names_the_file_and_leaves_nothing(from: &str, to: &str, why: &str) {
    let (daemon, dir) = (Daemon::start().await, work_dir());
    std::fs::create_dir_all(dir.path().join("d/f")).unwrap();
    std::fs::write(dir.path().join("f"), "f").unwrap();
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let base = there(daemon.url(), dir.path()).into_string().unwrap();
    let word = |text: &str| text.replacen("URL", &base, 1);
    let mut command = cp(&[word(from).as_ref(), word(to).as_ref()]);
    let output = timeout(LIMIT, command.current_dir(dir.path()).output()).await.unwrap().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.starts_with("exec-server: ") && said.contains(why), "{said}");
    assert_eq!(said.matches(why).count(), 1, "{said}");
    assert_eq!(names(dir.path()), ["d", "f", "pipe"]);
    assert_eq!(names(&dir.path().join("d")), ["f"]);
}

fn beside(directory: &Path) -> Option<PathBuf> {
    let begun = |name: &OsString| name.as_bytes().starts_with(b".exec-server-cp-");
    names(directory).into_iter().find(begun).map(|name| directory.join(name))
}

#[test_case(true, Signal::INT, 130; "up")]
#[test_case(false, Signal::INT, 130; "down")]
#[test_case(true, Signal::TERM, 143; "terminated")]
#[tokio::test]
async fn an_interrupt_leaves_nothing(up: bool, signal: Signal, code: i32) {
    let (daemon, dir) = (Daemon::start().await, work_dir());
    let (huge, target) = (dir.path().join("huge"), work_dir());
    // Zeros without blocks: quick to make, and too many to be copied before the signal.
    std::fs::File::create(&huge).unwrap().set_len(1 << 40).unwrap();
    std::fs::write(target.path().join("huge"), "old").unwrap();
    let place = target.path().join("huge");
    let (here, far) = if up { (&huge, &place) } else { (&place, &huge) };
    let far = there(daemon.url(), far);
    let words: [&OsStr; 2] = if up { [here.as_ref(), &far] } else { [&far, here.as_ref()] };
    let child = cp(&words).spawn().unwrap();
    let pid = i32::try_from(child.id().unwrap()).unwrap();
    let growing =
        || beside(target.path()).is_some_and(|path| path.metadata().is_ok_and(|about| about.len() > 0));
    eventually("it copies", LIMIT, growing).await;
    // What is not in its place yet is for nobody else.
    let mode = beside(target.path()).unwrap().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    kill(pid, signal);
    let output = timeout(LIMIT, child.wait_with_output()).await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(code));
    assert_eq!(names(target.path()), ["huge"]);
    assert_eq!(std::fs::read(&place).unwrap(), b"old");
}

#[test_case(true; "up")]
#[test_case(false; "down")]
#[tokio::test]
async fn a_lost_connection_begins_the_file_anew(up: bool) {
    let (daemon, dir) = (Daemon::start().await, work_dir());
    let proxy = CuttingProxy::start(daemon.address()).await;
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    std::fs::write(&from, random(8_000_000)).unwrap();
    proxy.cut(Cut { to_server: 5_000_000, to_client: 5_000_000 });
    let words = if up {
        [from.clone().into_os_string(), there(proxy.url(), &to)]
    } else {
        [there(proxy.url(), &from), to.clone().into_os_string()]
    };
    let copying = tokio::spawn(async move { run(&[&words[0], &words[1]]).await });
    eventually("it copies", LIMIT, || beside(dir.path()).is_some()).await;
    proxy.cut(Cut::NEVER);
    let output = copying.await.unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(std::fs::read(&to).unwrap() == random(8_000_000), "other bytes");
    assert_eq!(names(dir.path()), ["from", "to"]);
}

#[test_case(true; "up")]
#[test_case(false; "down")]
#[tokio::test]
async fn the_memory_of_the_server_does_not_grow_with_the_file(up: bool) {
    const SIZE: u64 = 64 << 20;
    let (daemon, dir) = (Daemon::start().await, work_dir());
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    std::fs::File::create(&from).unwrap().set_len(SIZE).unwrap();
    let far = there(daemon.url(), if up { &to } else { &from });
    let words: [&OsStr; 2] = if up { [from.as_ref(), &far] } else { [&far, to.as_ref()] };
    let before = daemon.resident();
    let mut child = cp(&words).spawn().unwrap();
    let mut most = 0;
    loop {
        most = most.max(daemon.resident());
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success());
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(to.metadata().unwrap().len(), SIZE);
    assert!(most - before < 32 << 20, "{} MiB", (most - before) >> 20);
}
