use super::*;
use crate::fsops::ErrorClass;
use crate::protocol::failure::FileErrorKind;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::PathBuf;
use test_case::{test_case, test_matrix};

const NONBLOCK: i32 = OFlags::NONBLOCK.bits().cast_signed();

fn room() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    (dir, root)
}

fn names(root: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        std::fs::read_dir(root).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn write(path: &Path, content: &str, atomic: Atomic) -> Result<(), FsError> {
    write_file(path, content.as_bytes(), atomic, Links::Follow)
}

fn fifo(path: &Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, 0o600.into(), 0).unwrap();
}

#[test_matrix([Atomic::Prefer, Atomic::Require, Atomic::Never], [Links::Follow, Links::Refuse])]
fn files_are_created_and_rewritten(atomic: Atomic, links: Links) {
    let (_dir, root) = room();
    let path = root.join("f");
    write_file(&path, b"first, and long", atomic, links).unwrap();
    let plain = File::create(root.join("plain")).unwrap().metadata().unwrap();
    assert_eq!(path.metadata().unwrap().mode(), plain.mode());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o751)).unwrap();
    let before = path.metadata().unwrap();
    write_file(&path, b"second", atomic, links).unwrap();
    let after = path.metadata().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"second");
    assert_eq!((after.mode(), after.uid(), after.gid()), (before.mode(), before.uid(), before.gid()));
    assert_eq!(after.ino() == before.ino(), atomic == Atomic::Never);
    write_file(&path, b"", atomic, links).unwrap();
    assert_eq!(path.metadata().unwrap().len(), 0);
    assert_eq!(names(&root), ["f", "plain"]);
}

#[test_matrix([Atomic::Prefer, Atomic::Require, Atomic::Never])]
fn links_are_followed_and_kept(atomic: Atomic) {
    let (_dir, root) = room();
    std::fs::create_dir(root.join("d")).unwrap();
    std::fs::write(root.join("d/target"), "old").unwrap();
    symlink("d/target", root.join("link")).unwrap();
    symlink("d/made", root.join("dangling")).unwrap();
    symlink("no/made", root.join("lost")).unwrap();
    write(&root.join("link"), "new", atomic).unwrap();
    write(&root.join("dangling"), "created", atomic).unwrap();
    assert_eq!(write(&root.join("lost"), "x", atomic).unwrap_err().class(), ErrorClass::NotFound);
    assert_eq!(names(&root), ["d", "dangling", "link", "lost"]);
    assert_eq!(names(&root.join("d")), ["made", "target"]);
    assert!(root.join("link").is_symlink() && root.join("dangling").is_symlink());
    assert_eq!(std::fs::read(root.join("d/target")).unwrap(), b"new");
    assert_eq!(std::fs::read(root.join("d/made")).unwrap(), b"created");
}

#[test]
fn hard_links_stay_linked() {
    let (_dir, root) = room();
    std::fs::write(root.join("t"), "old").unwrap();
    std::fs::hard_link(root.join("t"), root.join("h")).unwrap();
    let error = write(&root.join("h"), "new", Atomic::Require).unwrap_err();
    assert_eq!(error.class(), ErrorClass::InvalidInput);
    assert!(error.to_string().contains("hard links"), "{error}");
    assert_eq!(std::fs::read(root.join("t")).unwrap(), b"old");
    write(&root.join("h"), "new", Atomic::Prefer).unwrap();
    assert_eq!(std::fs::read(root.join("t")).unwrap(), b"new");
}

#[test]
fn attributes_are_kept() {
    let (_dir, root) = room();
    let path = root.join("f");
    std::fs::write(&path, "old").unwrap();
    match rustix::fs::setxattr(&path, c"user.note", b"kept", rustix::fs::XattrFlags::empty()) {
        Err(Errno::OPNOTSUPP) => return,
        result => result.unwrap(),
    }
    let before = path.metadata().unwrap().ino();
    write(&path, "new", Atomic::Require).unwrap();
    assert_ne!(path.metadata().unwrap().ino(), before);
    let mut value = Vec::with_capacity(16);
    rustix::fs::getxattr(&path, c"user.note", rustix::buffer::spare_capacity(&mut value)).unwrap();
    assert_eq!(value, b"kept");
}

#[test]
fn a_foreign_owner_is_kept() {
    let (_dir, root) = room();
    let path = root.join("f");
    std::fs::write(&path, "old").unwrap();
    if std::os::unix::fs::chown(&path, Some(12_345), Some(54_321)).is_err() {
        return;
    }
    write(&path, "new", Atomic::Require).unwrap();
    let after = path.metadata().unwrap();
    assert_eq!((after.uid(), after.gid()), (12_345, 54_321));
}

#[test_case("no/such/parent", ErrorClass::NotFound, FileErrorKind::NotFound)]
#[test_case("directory", ErrorClass::Io, FileErrorKind::IsDirectory)]
#[test_case("file/below", ErrorClass::Io, FileErrorKind::NotDirectory)]
#[test_case("loop", ErrorClass::Io, FileErrorKind::SymlinkLoop)]
#[test_case("fifo", ErrorClass::Io, FileErrorKind::Other)]
fn refusals_are_alike_in_every_way(name: &str, class: ErrorClass, kind: FileErrorKind) {
    let (_dir, root) = room();
    std::fs::create_dir(root.join("directory")).unwrap();
    std::fs::write(root.join("file"), "x").unwrap();
    symlink("loop", root.join("loop")).unwrap();
    fifo(&root.join("fifo"));
    let before = names(&root);
    for atomic in [Atomic::Prefer, Atomic::Require, Atomic::Never] {
        let error = write(&root.join(name), "x", atomic).unwrap_err();
        assert_eq!((error.class(), error.kind()), (class, kind), "{error}");
    }
    assert_eq!(names(&root), before);
}

#[test]
fn links_are_refused_where_asked() {
    let (_dir, root) = room();
    std::fs::create_dir(root.join("real")).unwrap();
    std::fs::write(root.join("real/f"), "secret").unwrap();
    symlink("real/f", root.join("link")).unwrap();
    symlink("real", root.join("inner")).unwrap();
    symlink("real/made", root.join("dangling")).unwrap();
    for (name, errno) in [("link", 40), ("dangling", 40), ("inner/f", 20), ("inner/new", 20)] {
        let error = write_file(&root.join(name), b"X", Atomic::Prefer, Links::Refuse).unwrap_err();
        assert_eq!((error.class(), error.errno()), (ErrorClass::Io, Some(errno)), "{name}");
    }
    let device = write_file(Path::new("/dev/null"), b"X", Atomic::Prefer, Links::Refuse).unwrap_err();
    assert_eq!(device.kind(), FileErrorKind::NotRegularFile);
    assert_eq!(std::fs::read(root.join("real/f")).unwrap(), b"secret");
    assert_eq!(names(&root.join("real")), ["f"]);
}

#[test]
fn devices_are_written_to_but_not_replaced() {
    write(Path::new("/dev/null"), "x", Atomic::Prefer).unwrap();
    assert_eq!(
        write(Path::new("/dev/full"), "x", Atomic::Prefer).unwrap_err().kind(),
        FileErrorKind::NoSpace
    );
    assert_eq!(
        write(Path::new("/dev/null"), "x", Atomic::Require).unwrap_err().class(),
        ErrorClass::InvalidInput
    );
}

#[test]
fn a_pipe_takes_what_its_reader_takes_in_time() {
    let (_dir, root) = room();
    let path = root.join("p");
    fifo(&path);
    let options = File::options().read(true).custom_flags(NONBLOCK).clone();
    let mut reader = options.open(&path).unwrap();
    write(&path, "hello", Atomic::Prefer).unwrap();
    let mut got = [0; 5];
    reader.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"hello");
    let writer = File::options().write(true).custom_flags(NONBLOCK).open(&path).unwrap();
    let more_than_a_pipe_holds = vec![0; 4 << 20];
    let stuck = in_place::write_stream(&writer, &more_than_a_pipe_holds, Duration::from_millis(1));
    assert_eq!(stuck, Err(Errno::AGAIN));
}

#[test]
fn a_running_program_is_not_replaced() {
    let (_dir, root) = room();
    let path = root.join("program");
    std::fs::copy("/bin/sleep", &path).unwrap();
    let mut child = loop {
        match std::process::Command::new(&path).arg("100").spawn() {
            // A child that another test has just forked still holds the descriptor that wrote the copy.
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
            result => break result.unwrap(),
        }
    };
    let errors = [Atomic::Prefer, Atomic::Require, Atomic::Never].map(|atomic| write(&path, "x", atomic));
    child.kill().unwrap();
    child.wait().unwrap();
    for error in errors {
        assert_eq!(error.unwrap_err().errno(), Some(Errno::TXTBSY.raw_os_error()));
    }
}

#[test]
fn what_only_writing_in_place_can_do_is_done_in_place() {
    let (_dir, root) = room();
    let path = root.join("f");
    std::fs::write(&path, "old").unwrap();
    std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o500)).unwrap();
    let unwritable = File::create(root.join("probe")).is_err();
    if unwritable {
        assert_eq!(write(&path, "new", Atomic::Require).unwrap_err().class(), ErrorClass::InvalidInput);
        write(&path, "new", Atomic::Prefer).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
        assert_eq!(write(&path, "x", Atomic::Prefer).unwrap_err().kind(), FileErrorKind::PermissionDenied);
    }
    std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_read_only_file_is_not_replaced() {
    let (_dir, root) = room();
    let path = root.join("f");
    std::fs::write(&path, "old").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    // The superuser may write it in place.
    if !rustix::process::geteuid().is_root() {
        assert_eq!(write(&path, "x", Atomic::Require).unwrap_err().class(), ErrorClass::InvalidInput);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
    }
}
