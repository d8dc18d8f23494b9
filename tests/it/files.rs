//! The file system of the library: the same on this machine and on a server.

use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use exec_server::backend::{
    BLOCK_BYTES, CopyOptions, CreateDirectoryOptions, ExecServerError, FileReadStream, GetMetadataOptions,
    ReadFileOptions, RemoveOptions, RenameOptions, WriteFileOptions,
};
use exec_server::protocol::fs::{FileMode, WalkOptions};
use pretty_assertions::assert_eq;
use serde_json::json;
use test_case::test_case;

use crate::support::place::{Place, Room};
use crate::support::soon;

/// What the executor said of a failed call: its code and its word for it.
pub(crate) fn said(error: &std::io::Error) -> (i64, String) {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<ExecServerError>()) {
        Some(ExecServerError::Server { code, data, .. }) => {
            let kind = data.as_ref().map_or("", |data| data["kind"].as_str().unwrap_or_default());
            (*code, kind.to_owned())
        }
        other => panic!("not said by the executor: {other:?}"),
    }
}

async fn drain(stream: &mut FileReadStream) -> Vec<u8> {
    let mut content = Vec::new();
    while let Some(bytes) = soon(stream.next()).await.unwrap() {
        assert!(!bytes.is_empty());
        content.extend(bytes);
    }
    content
}

/// Bytes without a period that blocks could hide.
fn bytes(count: usize) -> Vec<u8> {
    (0..count as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn files_are_written_and_read(remote: bool) {
    let (place, room) = (Place::new(remote).await, Room::new());
    let (files, file) = (place.files(), room.uri("a b\u{e9}"));
    files.write_file(&file, b"first".to_vec(), WriteFileOptions::default(), None).await.unwrap();
    assert_eq!(files.read_file(&file, ReadFileOptions::default(), None).await.unwrap(), b"first");
    let inode = || room.path("a b\u{e9}").metadata().unwrap().ino();
    let before = inode();
    let in_place = WriteFileOptions { atomic: Some(false), ..Default::default() };
    files.write_file(&file, b"second".to_vec(), in_place, None).await.unwrap();
    assert_eq!(inode(), before);
    let beside = WriteFileOptions { atomic: Some(true), ..Default::default() };
    files.write_file(&file, Vec::new(), beside, None).await.unwrap();
    assert!(inode() != before && std::fs::read(room.path("a b\u{e9}")).unwrap().is_empty());
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn a_tree_is_made_looked_at_and_removed(remote: bool) {
    let (place, room) = (Place::new(remote).await, Room::new());
    let files = place.files();
    let create = CreateDirectoryOptions::default();
    files.create_directory(&room.uri("d/sub"), create, None).await.unwrap();
    files.write_file(&room.uri("d/f"), b"12345".to_vec(), Default::default(), None).await.unwrap();
    files.create_symlink(&room.uri("d/link"), "f", None).await.unwrap();
    files.create_symlink(&room.uri("d/lost"), "nowhere", None).await.unwrap();
    files.set_permissions(&room.uri("d/f"), FileMode::from_bits(0o640), None).await.unwrap();
    let metadata = files.get_metadata(&room.uri("d/link"), Default::default(), None).await.unwrap();
    assert_eq!((metadata.size, metadata.is_symlink, metadata.link_target.as_deref()), (5, true, Some("f")));
    assert_eq!(metadata.mode, Some(FileMode::from_bits(0o640)));
    assert_eq!(files.canonicalize(&room.uri("d/link"), None).await.unwrap(), room.uri("d/f"));

    let names = |entries: Vec<exec_server::protocol::fs::DirectoryEntry>| {
        let mut names: Vec<_> = entries.into_iter().map(|e| (e.file_name, e.link_target)).collect();
        names.sort();
        names
    };
    let listed = files.read_directory(&room.uri("d"), None).await.unwrap();
    assert_eq!(names(listed), [("f".into(), None), ("link".into(), None), ("sub".into(), None)]);
    let listed = files.read_directory_with_links(&room.uri("d"), None).await.unwrap();
    let link = |name: &str, text: &str| (name.to_owned(), Some(text.to_owned()));
    let expected = [("f".into(), None), link("link", "f"), link("lost", "nowhere"), ("sub".into(), None)];
    assert_eq!(names(listed), expected);

    let all = WalkOptions {
        max_depth: 9,
        max_directories: 9,
        max_entries: 9,
        follow_directory_symlinks: false,
        prune_hidden_directories: false,
    };
    let walked = files.walk(&room.uri("d"), all, None).await.unwrap();
    assert_eq!(
        walked.entries.into_iter().map(|e| e.path).collect::<Vec<_>>(),
        [room.uri("d/f"), room.uri("d/sub")]
    );

    files.copy(&room.uri("d"), &room.uri("e"), CopyOptions { recursive: true }, None).await.unwrap();
    files.rename(&room.uri("e/f"), &room.uri("e/link"), RenameOptions { replace: true }, None).await.unwrap();
    assert_eq!(std::fs::read(room.path("e/link")).unwrap(), b"12345");
    files.remove(&room.uri("d"), RemoveOptions::default(), None).await.unwrap();
    files.remove(&room.uri("d"), RemoveOptions::default(), None).await.unwrap();
    assert!(!room.path("d").exists() && room.path("e/lost").is_symlink());
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn errors_have_the_kinds_of_the_standard_library(remote: bool) {
    let (place, room) = (Place::new(remote).await, Room::new());
    let files = place.files();
    std::fs::write(room.path("f"), "keep").unwrap();
    symlink("f", room.path("link")).unwrap();
    let missing = files.read_file(&room.uri("none"), ReadFileOptions::default(), None).await.unwrap_err();
    assert_eq!((missing.kind(), said(&missing)), (ErrorKind::NotFound, (-32004, "notFound".into())));
    assert!(
        missing.to_string().contains("none") && missing.to_string().ends_with("(os error 2)"),
        "{missing}"
    );
    let no_follow = GetMetadataOptions { follow_symlinks: false };
    let link = files.get_metadata(&room.uri("link"), no_follow, None).await.unwrap_err();
    assert_eq!((link.kind(), said(&link)), (ErrorKind::InvalidInput, (-32600, "symlinkLoop".into())));
    let keep = RenameOptions { replace: false };
    let taken = files.rename(&room.uri("link"), &room.uri("f"), keep, None).await.unwrap_err();
    assert_eq!((taken.kind(), said(&taken)), (ErrorKind::Other, (-32603, "alreadyExists".into())));
    let below = files.create_directory(&room.uri("f/x"), Default::default(), None).await.unwrap_err();
    assert_eq!(said(&below), (-32603, "notDirectory".into()));
    let stream = files.read_file_stream(&room.uri(""), None).await.err().unwrap();
    assert_eq!((stream.kind(), said(&stream).1), (ErrorKind::InvalidInput, "notRegularFile".into()));
    assert_eq!(std::fs::read(room.path("f")).unwrap(), b"keep");
}

#[test_case(false, 0; "local, nothing")]
#[test_case(true, 0; "remote, nothing")]
#[test_case(false, 1; "local, one byte")]
#[test_case(true, 1; "remote, one byte")]
#[test_case(false, BLOCK_BYTES; "local, one block")]
#[test_case(true, BLOCK_BYTES; "remote, one block")]
#[test_case(false, 9 * BLOCK_BYTES + 77; "local, more than is on its way")]
#[test_case(true, 9 * BLOCK_BYTES + 77; "remote, more than is on its way")]
#[tokio::test]
async fn content_of_any_size_streams(remote: bool, size: usize) {
    let (place, room) = (Place::new(remote).await, Room::new());
    let (files, content) = (place.files(), bytes(size));
    std::fs::write(room.path("f"), "what was there before, and longer").unwrap();
    std::fs::set_permissions(room.path("f"), std::fs::Permissions::from_mode(0o640)).unwrap();
    let mut writer = soon(files.open_for_replacement(&room.uri("f"), None)).await.unwrap();
    assert_eq!(room.path("f").metadata().unwrap().len(), 0);
    for part in content.chunks(700_001) {
        soon(writer.write(part)).await.unwrap();
    }
    soon(writer.finish()).await.unwrap();
    assert!(std::fs::read(room.path("f")).unwrap() == content, "other bytes");
    let mut reader = soon(files.read_file_stream(&room.uri("f"), None)).await.unwrap();
    std::fs::remove_file(room.path("f")).unwrap();
    assert!(drain(&mut reader).await == content, "other bytes");
    assert!(soon(reader.next()).await.unwrap().is_none());
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn blocks_go_anywhere(remote: bool) {
    let (place, room) = (Place::new(remote).await, Room::new());
    let mut writer = place.files().open_for_replacement(&room.uri("f"), None).await.unwrap();
    writer.write_block(3, b"later").await.unwrap();
    writer.write_block(0, b"a").await.unwrap();
    assert_eq!(writer.write_block(0, b"").await.unwrap_err().kind(), ErrorKind::InvalidInput);
    writer.finish().await.unwrap();
    writer.finish().await.unwrap();
    assert_eq!(std::fs::read(room.path("f")).unwrap(), b"a\0\0later");
    assert_eq!(said(&writer.write_block(0, b"x").await.unwrap_err()), (-32004, "unknownHandle".into()));
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn a_write_that_fails_is_told_at_the_end_at_the_latest(remote: bool) {
    let (place, room) = (Place::new(remote).await, Room::new());
    let mut writer = place.files().open_for_replacement(&room.uri("f"), None).await.unwrap();
    writer.finish().await.unwrap();
    let written = writer.write(&bytes(9 * BLOCK_BYTES)).await;
    assert_eq!(said(&written.unwrap_err()).1, "unknownHandle");
    assert!(writer.finish().await.is_err());
    assert!(writer.finish().await.is_err());
}

/// 128 handles fit a connection: streams that end, or are dropped, give theirs back.
#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn streams_give_their_handle_back(remote: bool) {
    let (place, room) = (Place::new(remote).await, Room::new());
    let files = place.files();
    std::fs::write(room.path("f"), "content").unwrap();
    for _ in 0..150 {
        let mut reader = files.read_file_stream(&room.uri("f"), None).await.unwrap();
        assert_eq!(drain(&mut reader).await, b"content");
    }
    for _ in 0..150 {
        let open = async {
            loop {
                match files.read_file_stream(&room.uri("f"), None).await {
                    Ok(stream) => return stream,
                    // What was dropped is closed in the background.
                    Err(error) => assert_eq!(said(&error).1, "limit"),
                }
            }
        };
        drop(soon(open).await);
    }
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
#[tokio::test]
async fn settings_of_the_machine_are_read(remote: bool) {
    let place = Place::new(remote).await;
    let params = |paths: serde_json::Value| {
        serde_json::from_value(json!({"cwd": "file:///", "configPaths": paths, "requirementsPaths": []}))
            .unwrap()
    };
    let read = place.environment.read_environment_config(params(json!([["no such key"]]))).await.unwrap();
    assert!(read.config.layers.is_empty() && read.hostname.is_some());
    assert!(read.codex_home_dir.as_str().ends_with("/.codex"));
    let error = place.environment.read_environment_config(params(json!([]))).await.unwrap_err();
    assert!(matches!(error, ExecServerError::Server { code: -32602, .. }), "{error}");
}
