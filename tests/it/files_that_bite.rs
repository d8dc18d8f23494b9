//! Files that are not what they seem, on this machine and on a server: nothing hangs, nothing is lost, and every error
//! says which path and why.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use exec_server::backend::{
    BLOCK_BYTES, CopyOptions, ExecutorFileSystem, ReadFileOptions, RenameOptions, WriteFileOptions,
};
use exec_server::environment::Environment;
use exec_server::path_uri::PathUri;
use exec_server::protocol::fs::{FileMode, WalkOptions};
use pretty_assertions::assert_eq;
use test_case::{test_case, test_matrix};

use crate::files::said;
use crate::support::place::{Place, Room};
use crate::support::server::ServerProcess;
use crate::support::soon;

/// Waits for a call that must end, and fail; its code and kind. The error names the path.
async fn refused<T>(call: impl Future<Output = io::Result<T>>, path: &str) -> (i64, String) {
    let Err(error) = soon(call).await else { panic!("{path} is not refused") };
    assert!(error.to_string().contains(path), "{error}");
    said(&error)
}

fn uri(path: impl AsRef<Path>) -> PathUri {
    PathUri::from_native_path(path.as_ref()).unwrap()
}

struct Scene {
    files: Arc<dyn ExecutorFileSystem>,
    room: Room,
    _place: Place,
}

impl Scene {
    async fn new(remote: bool) -> Self {
        let place = Place::new(remote).await;
        Self { files: place.files(), room: Room::new(), _place: place }
    }

    async fn read(&self, path: &PathUri) -> io::Result<Vec<u8>> {
        soon(self.files.read_file(path, ReadFileOptions::default(), None)).await
    }

    async fn write(&self, path: &PathUri, content: &[u8]) -> io::Result<()> {
        soon(self.files.write_file(path, content.to_vec(), WriteFileOptions::default(), None)).await
    }

    async fn copy(&self, from: &PathUri, to: &PathUri) -> io::Result<()> {
        soon(self.files.copy(from, to, CopyOptions { recursive: true }, None)).await
    }

    async fn stream(&self, path: &PathUri) -> io::Result<Vec<u8>> {
        let mut stream = soon(self.files.read_file_stream(path, None)).await?;
        let mut content = Vec::new();
        while let Some(bytes) = soon(stream.next()).await? {
            content.extend(bytes);
        }
        Ok(content)
    }
}

const ALL: WalkOptions = WalkOptions {
    max_depth: 64,
    max_directories: 10_000,
    max_entries: 50_000,
    follow_directory_symlinks: true,
    prune_hidden_directories: false,
};

const NOT_REGULAR: (i64, &str) = (-32600, "notRegularFile");

fn kind_of((code, kind): &(i64, String)) -> (i64, &str) {
    (*code, kind)
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn a_pipe_holds_nobody_up(remote: bool) {
    let scene = Scene::new(remote).await;
    let (pipe, path) = (scene.room.uri("pipe"), scene.room.path("pipe"));
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert_eq!(kind_of(&refused(scene.read(&pipe), "/pipe").await), NOT_REGULAR);
    assert_eq!(kind_of(&refused(scene.stream(&pipe), "/pipe").await), NOT_REGULAR);
    assert_eq!(kind_of(&refused(scene.copy(&pipe, &scene.room.uri("x")), "/pipe").await), NOT_REGULAR);
    assert_eq!(kind_of(&refused(scene.write(&pipe, b"x"), "/pipe").await), (-32603, "other"));
    assert_eq!(
        kind_of(&refused(scene.files.open_for_replacement(&pipe, None), "/pipe").await),
        (-32603, "other")
    );
    let about = soon(scene.files.get_metadata(&pipe, Default::default(), None)).await.unwrap();
    assert!(!about.is_file && !about.is_directory);
    let reader = std::thread::spawn(move || fs::read(path).unwrap());
    // The reader may not have opened it yet.
    let written = async { while scene.write(&pipe, b"through").await.is_err() {} };
    soon(written).await;
    assert_eq!(reader.join().unwrap(), b"through");
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn a_device_is_no_file_but_may_be_written_to(remote: bool) {
    let scene = Scene::new(remote).await;
    for device in ["/dev/zero", "/dev/tty", "/dev/full"] {
        let device_uri = uri(device);
        let outcome = refused(scene.read(&device_uri), device).await;
        // Without a terminal /dev/tty cannot even be opened.
        assert!(kind_of(&outcome) == NOT_REGULAR || device == "/dev/tty", "{outcome:?}");
    }
    assert_eq!(kind_of(&refused(scene.stream(&uri("/dev/zero")), "/dev/zero").await), NOT_REGULAR);
    assert_eq!(
        kind_of(&refused(scene.copy(&uri("/dev/zero"), &scene.room.uri("x")), "/dev/zero").await),
        NOT_REGULAR
    );
    let replaced = scene.files.open_for_replacement(&uri("/dev/null"), None);
    assert_eq!(kind_of(&refused(replaced, "/dev/null").await), NOT_REGULAR);
    scene.write(&uri("/dev/null"), b"gone").await.unwrap();
    assert_eq!(
        kind_of(&refused(scene.write(&uri("/dev/full"), b"x"), "/dev/full").await),
        (-32603, "noSpace")
    );
    assert!(!scene.room.path("x").exists());
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn pseudo_files_are_read_whole_although_they_say_that_they_are_empty(remote: bool) {
    let scene = Scene::new(remote).await;
    let version = fs::read("/proc/version").unwrap();
    assert_eq!(scene.read(&uri("/proc/version")).await.unwrap(), version);
    assert_eq!(scene.stream(&uri("/proc/version")).await.unwrap(), version);
    scene.copy(&uri("/proc/version"), &scene.room.uri("copy")).await.unwrap();
    assert_eq!(fs::read(scene.room.path("copy")).unwrap(), version);
    // Says 4096 and has less.
    let sys = uri("/sys/kernel/mm/transparent_hugepage/enabled");
    if let Ok(expected) = fs::read(sys.to_native_path().unwrap()) {
        assert_eq!(scene.read(&sys).await.unwrap(), expected);
    }
    let into = scene.files.create_directory(&uri("/proc/new"), Default::default(), None);
    refused(into, "/proc/new").await;
    refused(scene.write(&uri("/proc/new"), b"x"), "/proc/new").await;
    refused(scene.write(&uri("/proc/version"), b"x"), "/proc/version").await;
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn a_socket_is_neither_read_nor_written(remote: bool) {
    let scene = Scene::new(remote).await;
    let socket = scene.room.uri("socket");
    let _listener = UnixListener::bind(scene.room.path("socket")).unwrap();
    assert_eq!(refused(scene.read(&socket), "/socket").await.0, -32603);
    assert_eq!(refused(scene.write(&socket, b"x"), "/socket").await.0, -32603);
    assert_eq!(kind_of(&refused(scene.copy(&socket, &scene.room.uri("x")), "/socket").await), NOT_REGULAR);
    soon(scene.files.rename(&socket, &scene.room.uri("moved"), RenameOptions::default(), None))
        .await
        .unwrap();
    soon(scene.files.remove(&scene.room.uri("moved"), Default::default(), None)).await.unwrap();
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn a_huge_file_with_holes_costs_what_is_in_it(remote: bool) {
    const SIZE: u64 = 1 << 40;
    let scene = Scene::new(remote).await;
    let (huge, copy) = (scene.room.uri("huge"), scene.room.path("copy"));
    let file = fs::File::create(scene.room.path("huge")).unwrap();
    file.set_len(SIZE).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"here", SIZE - 100).unwrap();
    assert_eq!(soon(scene.files.get_metadata(&huge, Default::default(), None)).await.unwrap().size, SIZE);
    assert_eq!(kind_of(&refused(scene.read(&huge), "/huge").await), (-32600, "tooLarge"));
    let mut stream = soon(scene.files.read_file_stream(&huge, None)).await.unwrap();
    assert!(soon(stream.next()).await.unwrap().unwrap() == vec![0; BLOCK_BYTES], "not zeros");
    scene.copy(&huge, &scene.room.uri("copy")).await.unwrap();
    let copied = copy.metadata().unwrap();
    assert!(copied.len() == SIZE && copied.blocks() < 10_000, "{} blocks", copied.blocks());
    let mut end = [0; 4];
    std::os::unix::fs::FileExt::read_exact_at(&fs::File::open(copy).unwrap(), &mut end, SIZE - 100).unwrap();
    assert_eq!(&end, b"here");
    scene.write(&huge, b"small").await.unwrap();
    assert_eq!(scene.read(&huge).await.unwrap(), b"small");
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn a_file_that_grows_is_read_without_holes(remote: bool) {
    let scene = Scene::new(remote).await;
    let path = scene.room.path("log");
    let line = |number: u64| format!("{number:015}\n").into_bytes();
    let mut content: Vec<u8> = (0..150_000).flat_map(line).collect();
    fs::write(&path, &content).unwrap();
    let mut stream = soon(scene.files.read_file_stream(&scene.room.uri("log"), None)).await.unwrap();
    let mut read = Vec::new();
    let mut file = fs::File::options().append(true).open(&path).unwrap();
    while let Some(bytes) = soon(stream.next()).await.unwrap() {
        read.extend(bytes);
        let more: Vec<u8> = (0..50_000).flat_map(|i| line(content.len() as u64 / 16 + i)).collect();
        io::Write::write_all(&mut file, &more).unwrap();
        content.extend(more);
        if content.len() > 20 << 20 {
            break;
        }
    }
    assert!(read.len() >= 150_000 * 16 && content.starts_with(&read), "{} bytes", read.len());
}

/// On a server only: what is there beyond the calls is what can break.
#[tokio::test]
async fn a_directory_of_a_hundred_thousand_names() {
    const COUNT: usize = 100_000;
    let scene = Scene::new(true).await;
    let many = scene.room.uri("many");
    fs::create_dir(scene.room.path("many")).unwrap();
    for index in 0..COUNT {
        rustix::fs::mknodat(
            rustix::fs::CWD,
            scene.room.path("many").join(format!("{index:06}")),
            rustix::fs::FileType::RegularFile,
            0o600.into(),
            0,
        )
        .unwrap();
    }
    let mut names: Vec<_> =
        scene.files.read_directory(&many, None).await.unwrap().into_iter().map(|e| e.file_name).collect();
    names.sort_unstable();
    assert!(names.into_iter().eq((0..COUNT).map(|index| format!("{index:06}"))), "other names");
    let walked = scene.files.walk(&many, ALL, None).await.unwrap();
    assert!(walked.truncated && walked.entries.len() <= 50_000 && !walked.entries.is_empty());
    scene.files.remove(&many, Default::default(), None).await.unwrap();
    assert!(!scene.room.path("many").exists());
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn names_that_are_no_text_lead_to_their_file(remote: bool) {
    let scene = Scene::new(remote).await;
    let raw = scene.room.path("").join(OsStr::from_bytes(b"n\xff\n"));
    fs::create_dir(&raw).unwrap();
    fs::write(raw.join(OsStr::from_bytes(b"\xfe")), "z").unwrap();
    let listed = soon(scene.files.read_directory(&scene.room.uri(""), None)).await.unwrap();
    let directory = listed[0].path.clone().unwrap();
    assert!(directory.as_str().ends_with("/n%FF%0A"), "{directory}");
    let walked = soon(scene.files.walk(&scene.room.uri(""), ALL, None)).await.unwrap();
    assert_eq!(
        walked.entries.iter().map(|e| &e.path).collect::<Vec<_>>(),
        [&directory, &uri(raw.join(OsStr::from_bytes(b"\xfe")))]
    );
    assert_eq!(scene.read(&walked.entries[1].path).await.unwrap(), b"z");
    assert_eq!(soon(scene.files.canonicalize(&directory, None)).await.unwrap(), directory);
    scene.copy(&directory, &scene.room.uri("copy")).await.unwrap();
    assert!(scene.room.path("copy").join(OsStr::from_bytes(b"\xfe")).exists());
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn links_in_a_circle_end(remote: bool) {
    let scene = Scene::new(remote).await;
    symlink("loop", scene.room.path("loop")).unwrap();
    fs::create_dir(scene.room.path("d")).unwrap();
    symlink("..", scene.room.path("d/up")).unwrap();
    let round = scene.room.uri("loop");
    const LOOP: (i64, &str) = (-32603, "symlinkLoop");
    assert_eq!(kind_of(&refused(scene.read(&round), "/loop").await), LOOP);
    assert_eq!(kind_of(&refused(scene.write(&round, b"x"), "/loop").await), LOOP);
    assert_eq!(kind_of(&refused(scene.files.canonicalize(&round, None), "/loop").await), LOOP);
    assert_eq!(kind_of(&refused(scene.files.read_directory(&round, None), "/loop").await), LOOP);
    assert_eq!(kind_of(&refused(scene.read(&scene.room.uri("loop/x")), "/loop/x").await), LOOP);
    let walked = soon(scene.files.walk(&scene.room.uri(""), ALL, None)).await.unwrap();
    // The link is listed, and not entered a second time.
    assert_eq!(walked.entries.len(), 2, "{:?}", walked.entries);
    scene.copy(&scene.room.uri("d"), &scene.room.uri("e")).await.unwrap();
    assert_eq!(fs::read_link(scene.room.path("e/up")).unwrap(), Path::new(".."));
    soon(scene.files.remove(&round, Default::default(), None)).await.unwrap();
    assert!(!scene.room.path("loop").is_symlink());
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn names_of_one_file_stay_names_of_one_file(remote: bool) {
    let scene = Scene::new(remote).await;
    fs::write(scene.room.path("a"), "precious").unwrap();
    fs::hard_link(scene.room.path("a"), scene.room.path("b")).unwrap();
    scene.copy(&scene.room.uri("a"), &scene.room.uri("b")).await.unwrap();
    assert_eq!(fs::read(scene.room.path("a")).unwrap(), b"precious");
    scene.write(&scene.room.uri("b"), b"new").await.unwrap();
    assert_eq!(fs::read(scene.room.path("a")).unwrap(), b"new");
    let replace = RenameOptions { replace: true };
    soon(scene.files.rename(&scene.room.uri("a"), &scene.room.uri("b"), replace, None)).await.unwrap();
    soon(scene.files.remove(&scene.room.uri("a"), Default::default(), None)).await.unwrap();
    assert_eq!(fs::read(scene.room.path("b")).unwrap(), b"new");
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn a_directory_that_was_removed_is_gone_but_its_open_files_are_not(remote: bool) {
    let scene = Scene::new(remote).await;
    fs::create_dir(scene.room.path("d")).unwrap();
    fs::write(scene.room.path("d/f"), vec![1; 3 * BLOCK_BYTES]).unwrap();
    let held = fs::File::open(scene.room.path("d")).unwrap();
    let mut stream = soon(scene.files.read_file_stream(&scene.room.uri("d/f"), None)).await.unwrap();
    fs::remove_dir_all(scene.room.path("d")).unwrap();
    let mut count = 0;
    while let Some(bytes) = soon(stream.next()).await.unwrap() {
        count += bytes.len();
    }
    assert_eq!(count, 3 * BLOCK_BYTES);
    assert_eq!(refused(scene.files.read_directory(&scene.room.uri("d"), None), "/d").await.0, -32004);
    // The same directory, by the way that is left.
    let fd = std::os::fd::AsRawFd::as_raw_fd(&held);
    let ghost = PathBuf::from(format!("/proc/{}/fd/{fd}", std::process::id()));
    assert!(soon(scene.files.read_directory(&uri(&ghost), None)).await.unwrap().is_empty());
    assert_eq!(refused(scene.write(&uri(ghost.join("f")), b"x"), "/f").await.0, -32004);
    let below = scene.files.create_directory(&uri(ghost.join("x")), Default::default(), None);
    assert_eq!(refused(below, "/x").await.0, -32004);
}

#[test_matrix([false, true], [255, 256])]
#[tokio::test]
async fn the_longest_name_and_one_that_is_longer(remote: bool, length: usize) {
    let scene = Scene::new(remote).await;
    let name = "n".repeat(length);
    let file = scene.room.uri(&name);
    if length > 255 {
        let (code, kind) = refused(scene.write(&file, b"x"), &name).await;
        assert_eq!((code, kind.as_str()), (-32603, "other"));
        return;
    }
    scene.write(&file, b"first").await.unwrap();
    scene.write(&file, b"second").await.unwrap();
    scene.copy(&file, &scene.room.uri("short")).await.unwrap();
    let replace = RenameOptions { replace: true };
    soon(scene.files.rename(&scene.room.uri("short"), &file, replace, None)).await.unwrap();
    assert_eq!(scene.read(&file).await.unwrap(), b"second");
    assert_eq!(soon(scene.files.read_directory(&scene.room.uri(""), None)).await.unwrap()[0].file_name, name);
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn a_tree_deeper_than_a_path_is_long(remote: bool) {
    let scene = Scene::new(remote).await;
    let name = "d".repeat(200);
    let deep = |top: &str| (0..30).fold(scene.room.path(top), |path, _| path.join(&name));
    let mut directory = rustix::fs::open(scene.room.path(""), rustix::fs::OFlags::PATH, 0.into()).unwrap();
    for name in std::iter::once("top").chain(std::iter::repeat_n(name.as_str(), 30)) {
        rustix::fs::mkdirat(&directory, name, 0o700.into()).unwrap();
        directory = rustix::fs::openat(&directory, name, rustix::fs::OFlags::PATH, 0.into()).unwrap();
    }
    let bottom = deep("top");
    assert!(bottom.as_os_str().len() > 4096);
    for outcome in [
        refused(scene.read(&uri(&bottom)), &name).await,
        refused(scene.write(&uri(bottom.join("f")), b"x"), &name).await,
        refused(scene.files.create_directory(&uri(bottom.join("x")), Default::default(), None), &name).await,
        refused(scene.files.get_metadata(&uri(&bottom), Default::default(), None), &name).await,
    ] {
        assert_eq!(kind_of(&outcome), (-32603, "other"));
    }
    let walked = soon(scene.files.walk(&scene.room.uri("top"), ALL, None)).await.unwrap();
    assert_eq!((walked.entries.len(), walked.errors), (30, vec![]));
    assert_eq!(walked.entries[29].path, uri(&bottom));
    scene.copy(&scene.room.uri("top"), &scene.room.uri("copy")).await.unwrap();
    let copied = soon(scene.files.walk(&scene.room.uri("copy"), ALL, None)).await.unwrap();
    assert_eq!(copied.entries[29].path, uri(deep("copy")));
    for top in ["top", "copy"] {
        soon(scene.files.remove(&scene.room.uri(top), Default::default(), None)).await.unwrap();
        assert!(!scene.room.path(top).exists());
    }
}

/// A server with a small file system of its own at a directory; none where that is not allowed.
async fn server_with_mount(at: &Path, options: &str) -> Option<ServerProcess> {
    let unshare = ["unshare", "--user", "--map-root-user", "--mount"];
    let mount = format!("mount -t tmpfs -o {options} none '{}'", at.display());
    let tried =
        std::process::Command::new(unshare[0]).args(&unshare[1..]).args(["sh", "-c", &mount]).status();
    if !tried.is_ok_and(|status| status.success()) {
        eprintln!("not tested: namespaces are not allowed here");
        return None;
    }
    let script = format!("{mount} && exec \"$@\"");
    Some(ServerProcess::start_under(&[&unshare[..], &["sh", "-c", &script, "sh"]].concat()).await)
}

async fn over(room: Room, server: ServerProcess) -> Scene {
    let environment = Environment::create_for_tests(Some(server.url().to_owned())).unwrap();
    let place = Place::of(environment, server);
    Scene { files: place.files(), room, _place: place }
}

#[tokio::test]
async fn a_full_file_system_loses_nothing() {
    const FULL: (i64, &str) = (-32603, "noSpace");
    let room = Room::new();
    let Some(server) = server_with_mount(&room.path(""), "size=1m").await else { return };
    let scene = over(room, server).await;
    let (old, new) = (scene.room.uri("old"), scene.room.uri("new"));
    scene.write(&old, &[1; 500_000]).await.unwrap();
    assert_eq!(kind_of(&refused(scene.write(&old, &[2; 2_000_000]), "/old").await), FULL);
    for atomic in [Some(true), Some(false)] {
        let options = WriteFileOptions { atomic, ..Default::default() };
        let write = scene.files.write_file(&old, vec![2; 2_000_000], options, None);
        assert_eq!(kind_of(&refused(write, "/old").await), FULL);
    }
    assert_eq!(kind_of(&refused(scene.write(&new, &[2; 900_000]), "/new").await), FULL);
    assert!(scene.read(&old).await.unwrap() == [1; 500_000], "lost");
    let names = soon(scene.files.read_directory(&scene.room.uri(""), None)).await.unwrap();
    assert_eq!(names.into_iter().map(|e| e.file_name).collect::<Vec<_>>(), ["old"]);
    // There is room for the new content, though not for both.
    scene.write(&old, &[4; 700_000]).await.unwrap();
    assert!(scene.read(&old).await.unwrap() == [4; 700_000], "other bytes");
    let mut writer = soon(scene.files.open_for_replacement(&new, None)).await.unwrap();
    let written = async {
        writer.write(&vec![3; 3 * BLOCK_BYTES]).await?;
        writer.finish().await
    };
    assert_eq!(said(&soon(written).await.unwrap_err()), (FULL.0, FULL.1.to_owned()));
    assert!(scene.read(&old).await.unwrap() == [4; 700_000], "lost");
}

#[tokio::test]
async fn a_file_system_for_reading_only_says_so() {
    let room = Room::new();
    let Some(server) = server_with_mount(&room.path(""), "ro").await else { return };
    let scene = over(room, server).await;
    let (file, files) = (scene.room.uri("f"), &scene.files);
    let mode = FileMode::from_bits(0o700);
    for outcome in [
        refused(scene.write(&file, b"x"), "/f").await,
        refused(files.open_for_replacement(&file, None), "/f").await,
        refused(files.create_directory(&file, Default::default(), None), "/f").await,
        refused(files.create_symlink(&file, "x", None), "/f").await,
        refused(scene.copy(&uri("/proc/version"), &file), "/f").await,
        refused(
            files.set_permissions(&scene.room.uri(""), mode, None),
            scene.room.path("").to_str().unwrap().trim_end_matches('/'),
        )
        .await,
    ] {
        assert_eq!(kind_of(&outcome), (-32603, "readOnly"));
    }
    assert!(soon(files.read_directory(&scene.room.uri(""), None)).await.unwrap().is_empty());
}
