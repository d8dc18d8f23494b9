use super::*;
use crate::fsops::ErrorClass;
use crate::protocol::failure::FileErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use test_case::test_case;

fn room() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    (dir, root)
}

fn fifo(path: &Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, 0o600.into(), 0).unwrap();
}

#[test]
fn content_and_mode_are_copied() {
    let (_dir, root) = room();
    std::fs::write(root.join("f"), "F").unwrap();
    std::fs::set_permissions(root.join("f"), std::fs::Permissions::from_mode(0o4555)).unwrap();
    std::fs::write(root.join("old"), "a much longer old content").unwrap();
    symlink("old", root.join("link")).unwrap();
    for name in ["new", "link"] {
        copy(&root.join("f"), &root.join(name), false).unwrap();
        assert_eq!(std::fs::read(root.join(name)).unwrap(), b"F");
        assert_eq!(root.join(name).metadata().unwrap().mode() & 0o7777, 0o555);
    }
    assert!(root.join("link").is_symlink());
    copy(&root.join("link"), &root.join("l2"), false).unwrap();
    assert_eq!(std::fs::read_link(root.join("l2")).unwrap().as_os_str(), "old");
    assert_eq!(
        copy(&root.join("link"), &root.join("l2"), false).unwrap_err().kind(),
        FileErrorKind::AlreadyExists
    );
    assert_eq!(copy(&root.join("f"), &root, false).unwrap_err().kind(), FileErrorKind::IsDirectory);
}

#[test]
fn a_pseudo_file_is_copied_whole() {
    let (_dir, root) = room();
    copy(Path::new("/proc/version"), &root.join("v"), false).unwrap();
    assert_eq!(std::fs::read(root.join("v")).unwrap(), std::fs::read("/proc/version").unwrap());
}

#[test]
fn holes_stay_holes() {
    let (_dir, root) = room();
    let file = File::create(root.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"data", 8 << 20).unwrap();
    file.set_len(32 << 20).unwrap();
    copy(&root.join("sparse"), &root.join("copy"), false).unwrap();
    let copied = root.join("copy").metadata().unwrap();
    assert_eq!(copied.len(), 32 << 20);
    assert!(copied.blocks() <= file.metadata().unwrap().blocks() + 64);
    assert_eq!(std::fs::read(root.join("copy")).unwrap()[8 << 20..][..5], *b"data\0");
}

#[test]
fn onto_itself_changes_nothing() {
    let (_dir, root) = room();
    std::fs::create_dir(root.join("d")).unwrap();
    std::fs::write(root.join("same"), "precious").unwrap();
    std::fs::hard_link(root.join("same"), root.join("hard")).unwrap();
    std::fs::hard_link(root.join("same"), root.join("d/same")).unwrap();
    symlink("same", root.join("soft")).unwrap();
    for name in ["same", "hard", "soft"] {
        copy(&root.join("same"), &root.join(name), false).unwrap();
    }
    copy(&root.join("d"), &root, true).unwrap();
    assert_eq!(std::fs::read(root.join("same")).unwrap(), b"precious");
}

#[test]
fn a_directory_is_merged() {
    let (_dir, root) = room();
    std::fs::create_dir_all(root.join("s/sub")).unwrap();
    std::fs::write(root.join("s/sub/g"), "G").unwrap();
    symlink("/etc", root.join("s/l")).unwrap();
    fifo(&root.join("s/fifo"));
    assert_eq!(copy(&root.join("s"), &root.join("t"), false).unwrap_err().class(), ErrorClass::InvalidInput);
    std::fs::create_dir(root.join("t")).unwrap();
    std::fs::write(root.join("t/mine"), "m").unwrap();
    copy(&root.join("s"), &root.join("t"), true).unwrap();
    assert_eq!(std::fs::read(root.join("t/sub/g")).unwrap(), b"G");
    assert!(root.join("t/mine").exists() && !root.join("t/fifo").exists());
    assert_eq!(std::fs::read_link(root.join("t/l")).unwrap(), Path::new("/etc"));
}

#[test_case("s"; "itself")]
#[test_case("s/inner"; "a child")]
#[test_case("s/a/b"; "below a missing child")]
#[test_case("link/x"; "through a link")]
fn into_itself_is_refused(target: &str) {
    let (_dir, root) = room();
    std::fs::create_dir(root.join("s")).unwrap();
    std::fs::write(root.join("s/f"), "x").unwrap();
    symlink("s", root.join("link")).unwrap();
    let error = copy(&root.join("s"), &root.join(target), true).unwrap_err();
    assert_eq!(error.class(), ErrorClass::InvalidInput);
    let names: Vec<_> = std::fs::read_dir(root.join("s")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["f"]);
}

#[test]
fn a_link_back_from_the_destination_ends() {
    let (_dir, root) = room();
    std::fs::create_dir_all(root.join("s/sub/x")).unwrap();
    std::fs::create_dir(root.join("t")).unwrap();
    symlink(root.join("s/sub/x"), root.join("t/sub")).unwrap();
    assert_eq!(copy(&root.join("s"), &root.join("t"), true).unwrap_err().class(), ErrorClass::InvalidInput);
}

#[test]
fn what_cannot_be_copied() {
    let (_dir, root) = room();
    fifo(&root.join("fifo"));
    let out = root.join("out");
    assert_eq!(copy(&root.join("fifo"), &out, true).unwrap_err().class(), ErrorClass::InvalidInput);
    assert_eq!(copy(&root.join("none"), &out, true).unwrap_err().class(), ErrorClass::NotFound);
    std::fs::write(root.join("f"), "x").unwrap();
    assert_eq!(copy(&root.join("f"), &root.join("no/out"), true).unwrap_err().class(), ErrorClass::NotFound);
    assert!(!out.exists());
}
