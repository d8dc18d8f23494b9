use super::*;
use crate::protocol::failure::FileErrorKind;
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

fn uri(path: impl AsRef<Path>) -> String {
    PathUri::from_abs_path(path).unwrap().to_string()
}

fn params<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A context with these entries, and other members.
fn limited(entries: Value, more: &Value) -> Value {
    let files = json!({"type": "restricted", "entries": entries});
    let mut context = json!({
        "permissions": {"type": "managed", "file_system": files, "network": "enabled"},
        "windowsSandboxLevel": "disabled"
    });
    context.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    context
}

#[tokio::test]
async fn what_cannot_be_enforced_is_refused_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let fs = FileSystem::new();
    let special = |value: Value| json!({"path": {"type": "special", "value": value}, "access": "write"});
    let own = json!({"path": {"type": "path", "path": uri(dir.path())}, "access": "write"});
    let foreign = json!({"path": {"type": "path", "path": "file://host/x"}, "access": "read"});
    let glob = json!({"path": {"type": "glob_pattern", "pattern": "/**/*.env"}, "access": "deny"});
    let roots = special(json!({"kind": "project_roots"}));
    for (entries, more, class, kind) in [
        (
            json!([own]),
            json!({"windowsSandboxLevel": "mxc"}),
            ErrorClass::InvalidInput,
            FileErrorKind::SandboxUnavailable,
        ),
        (json!([own, foreign]), json!({}), ErrorClass::InvalidInput, FileErrorKind::SandboxPreparation),
        (json!([own, roots]), json!({}), ErrorClass::InvalidParams, FileErrorKind::SandboxPreparation),
        (json!([own, glob]), json!({}), ErrorClass::Unconfined, FileErrorKind::SandboxPreparation),
        (
            json!([own]),
            json!({"useLegacyLandlock": true}),
            ErrorClass::Unconfined,
            FileErrorKind::SandboxUnavailable,
        ),
    ] {
        let sandbox = limited(entries.clone(), &more);
        let write = params(json!({"path": uri(&path), "dataBase64": "aGk=", "sandbox": sandbox}));
        let error = fs.write_file(write).await.unwrap_err();
        assert_eq!((error.class(), error.kind()), (class, kind), "{entries} {more}: {error}");
        assert!(!path.exists());
    }
    let unconfined = json!({"permissions": {"type": "disabled"}, "windowsSandboxLevel": "disabled"});
    let write = json!({"path": uri(&path), "dataBase64": "aGk=", "sandbox": unconfined});
    fs.write_file(params(write)).await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"hi");
}

#[tokio::test]
async fn legacy_landlock_is_ignored_where_nothing_has_to_be_hidden() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), "x").unwrap();
    let root = json!({"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"});
    let sandbox = limited(json!([root]), &json!({"useLegacyLandlock": true}));
    let read = json!({"path": uri(dir.path().join("f")), "sandbox": sandbox});
    FileSystem::new().read_file(params(read)).await.unwrap();
}

#[tokio::test]
async fn a_foreign_path_and_bad_base64_are_invalid_input() {
    let fs = FileSystem::new();
    let error = fs.read_file(params(json!({"path": "file:///C:/x"}))).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::InvalidInput);
    assert_eq!(error.to_string(), "'file:///C:/x' is invalid on 'linux'");
    let dir = tempfile::tempdir().unwrap();
    for text in ["aGk", "aGk=\n", "!!", "_-8="] {
        let write = params(json!({"path": uri(dir.path().join("f")), "dataBase64": text}));
        assert_eq!(fs.write_file(write).await.unwrap_err().class(), ErrorClass::InvalidInput);
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn handles_are_bounded_and_checked_before_the_file_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    std::fs::write(&path, "keep").unwrap();
    let fs = FileSystem::new();
    let open = |id: &str, mode: &str| params(json!({"handleId": id, "path": uri(&path), "mode": mode}));
    let missing = params(json!({"handleId": "h0", "path": uri(dir.path().join("none"))}));
    assert_eq!(fs.open(missing).await.unwrap_err().class(), ErrorClass::NotFound);
    for index in 0..128 {
        fs.open(open(&format!("h{index}"), "read")).await.unwrap();
    }
    for id in ["more", "h7", "thirty-three bytes are too many ..."] {
        assert_eq!(fs.open(open(id, "replace")).await.unwrap_err().class(), ErrorClass::InvalidInput);
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"keep");
    fs.close(params(json!({"handleId": "h7"}))).await.unwrap();
    fs.close(params(json!({"handleId": "h7"}))).await.unwrap();
    fs.open(open("", "read")).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    let block = fs.read_block(params(json!({"handleId": "", "offset": 0, "len": 4}))).await.unwrap();
    assert_eq!((block.chunk.as_slice(), block.eof), (&b"keep"[..], false));
    let end = fs.read_block(params(json!({"handleId": "", "offset": 4, "len": 1}))).await.unwrap();
    assert_eq!((end.chunk.as_slice(), end.eof), (&b""[..], true));
    let unknown = fs.read_block(params(json!({"handleId": "h7", "offset": 0, "len": 1}))).await.unwrap_err();
    assert_eq!((unknown.class(), unknown.kind()), (ErrorClass::NotFound, FileErrorKind::UnknownHandle));
    assert_eq!(unknown.to_string(), "unknown file handle `h7`");
}

#[tokio::test]
async fn a_name_that_is_no_text_has_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let raw = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"n\xff.txt");
    std::fs::write(dir.path().join(raw), "z").unwrap();
    let fs = FileSystem::new();
    let listed = fs.read_directory(params(json!({"path": uri(dir.path())}))).await.unwrap();
    let entry = serde_json::to_value(&listed.entries[0]).unwrap();
    let path = uri(dir.path()) + "/n%FF.txt";
    assert_eq!(
        entry,
        json!({"fileName": "n\u{fffd}.txt", "isDirectory": false, "isFile": true, "path": path})
    );
    let content = fs.read_file(params(json!({"path": path}))).await.unwrap();
    assert_eq!(content.data_base64.as_slice(), b"z");
}

#[tokio::test]
async fn metadata_on_the_wire() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), "12345").unwrap();
    let fs = FileSystem::new();
    fs.set_permissions(params(json!({"path": uri(dir.path().join("f")), "mode": "640"}))).await.unwrap();
    fs.create_symlink(params(json!({"path": uri(dir.path().join("l")), "target": "f"}))).await.unwrap();
    let metadata = fs.get_metadata(params(json!({"path": uri(dir.path().join("l"))}))).await.unwrap();
    let value = serde_json::to_value(metadata).unwrap();
    assert_eq!(
        (&value["mode"], &value["linkTarget"], &value["size"]),
        (&json!("0640"), &json!("f"), &json!(5))
    );
    assert!(value["isSymlink"] == true && value["inode"].is_string() && value["uid"].is_number());
}

#[tokio::test]
async fn a_connection_that_carries_less_reads_less() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), "12345").unwrap();
    let read = || params(json!({"path": uri(dir.path().join("f"))}));
    assert!(FileSystem::with_read_limit(5).read_file(read()).await.is_ok());
    let error = FileSystem::with_read_limit(4).read_file(read()).await.unwrap_err();
    assert_eq!((error.class(), error.kind()), (ErrorClass::InvalidInput, FileErrorKind::TooLarge));
}

#[derive(Debug, Clone)]
enum Step {
    Write(u8, Vec<u8>, Option<bool>),
    Remove(u8),
    Rename(u8, u8, bool),
    Copy(u8, u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = || 0u8..4;
    let content = prop::collection::vec(any::<u8>(), 0..40);
    prop::collection::vec(
        prop_oneof![
            (name(), content, any::<Option<bool>>())
                .prop_map(|(name, content, atomic)| Step::Write(name, content, atomic)),
            name().prop_map(Step::Remove),
            (name(), name(), any::<bool>()).prop_map(|(from, to, replace)| Step::Rename(from, to, replace)),
            (name(), name()).prop_map(|(from, to)| Step::Copy(from, to)),
        ],
        1..20,
    )
}

/// Applies a step to the model; says whether it succeeds.
fn model(files: &mut BTreeMap<u8, Vec<u8>>, step: &Step) -> bool {
    match step {
        Step::Write(name, content, _) => {
            files.insert(*name, content.clone());
            true
        }
        Step::Remove(name) => files.remove(name).is_some(),
        Step::Rename(from, to, replace) => {
            if !files.contains_key(from) || (files.contains_key(to) && !replace) {
                return false;
            }
            if let Some(content) = files.remove(from) {
                files.insert(*to, content);
            }
            true
        }
        Step::Copy(from, to) => match files.get(from).cloned() {
            Some(content) => {
                files.insert(*to, content);
                true
            }
            None => false,
        },
    }
}

async fn apply(fs: &FileSystem, root: &Path, step: &Step) -> bool {
    let at = |name: &u8| uri(root.join(name.to_string()));
    match step {
        Step::Write(name, content, atomic) => {
            let data = STANDARD.encode_to_string(content);
            fs.write_file(params(json!({"path": at(name), "dataBase64": data, "atomic": atomic})))
                .await
                .is_ok()
        }
        Step::Remove(name) => fs.remove(params(json!({"path": at(name), "force": false}))).await.is_ok(),
        Step::Rename(from, to, replace) => {
            let rename = json!({"sourcePath": at(from), "destinationPath": at(to), "replace": replace});
            fs.rename(params(rename)).await.is_ok()
        }
        Step::Copy(from, to) => {
            let copy = json!({"sourcePath": at(from), "destinationPath": at(to), "recursive": false});
            fs.copy(params(copy)).await.is_ok()
        }
    }
}

fn contents(root: &Path) -> BTreeMap<u8, Vec<u8>> {
    let entries = std::fs::read_dir(root).unwrap().map(std::result::Result::unwrap);
    entries
        .map(|e| (e.file_name().to_str().unwrap().parse().unwrap(), std::fs::read(e.path()).unwrap()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_sequence_agrees_with_a_map(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let fs = FileSystem::new();
        let mut files = BTreeMap::new();
        for step in &steps {
            let expected = model(&mut files, step);
            prop_assert_eq!(runtime.block_on(apply(&fs, dir.path(), step)), expected, "{:?}", step);
            prop_assert_eq!(contents(dir.path()), files.clone());
        }
    }
}
