//! Any sequence of file calls has the results, the errors and the effects that a model in memory has.

use std::fmt::Debug;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use exec_server::backend::{
    CopyOptions, CreateDirectoryOptions, ExecutorFileSystem, GetMetadataOptions, ReadFileOptions,
    RemoveOptions, RenameOptions, WriteFileOptions,
};
use exec_server::path_uri::PathUri;
use exec_server::protocol::fs::{FileMode, WalkOptions};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseResult, TestRunner};
use test_case::test_case;

use crate::files::said;
use crate::support::place::Place;
use crate::support::tree::{About, Names, Node, Outcome, Tree, walked};

const CASES: u32 = 48;

#[derive(Debug, Clone)]
enum Step {
    Read(Names, bool),
    ReadStream(Names),
    Write(Names, Vec<u8>, Option<bool>),
    WriteStream(Names, Vec<u8>),
    CreateDirectory(Names, bool),
    Metadata(Names, bool),
    Canonicalize(Names),
    List(Names, bool),
    Walk(Names),
    Remove(Names, bool, bool),
    Rename(Names, Names, bool),
    Copy(Names, Names, bool),
    SetMode(Names, u32),
    Link(Names, String),
}

/// Few names, so that paths meet.
fn path() -> impl Strategy<Value = Names> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]).prop_map(str::to_owned), 1..4)
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..9)
}

fn step() -> impl Strategy<Value = Step> {
    let flag = any::<bool>;
    let mode = prop::sample::select(vec![0o700, 0o755, 0o750, 0o711]);
    prop_oneof![
        1 => (path(), flag()).prop_map(|(path, follow)| Step::Read(path, follow)),
        1 => path().prop_map(Step::ReadStream),
        3 => (path(), content(), any::<Option<bool>>()).prop_map(|(path, content, atomic)| Step::Write(path, content, atomic)),
        1 => (path(), content()).prop_map(|(path, content)| Step::WriteStream(path, content)),
        3 => (path(), flag()).prop_map(|(path, recursive)| Step::CreateDirectory(path, recursive)),
        1 => (path(), flag()).prop_map(|(path, follow)| Step::Metadata(path, follow)),
        1 => path().prop_map(Step::Canonicalize),
        1 => (path(), flag()).prop_map(|(path, links)| Step::List(path, links)),
        1 => path().prop_map(Step::Walk),
        1 => (path(), flag(), flag()).prop_map(|(path, recursive, force)| Step::Remove(path, recursive, force)),
        2 => (path(), path(), flag()).prop_map(|(from, to, replace)| Step::Rename(from, to, replace)),
        2 => (path(), path(), flag()).prop_map(|(from, to, recursive)| Step::Copy(from, to, recursive)),
        1 => (path(), mode).prop_map(|(path, mode)| Step::SetMode(path, mode)),
        3 => (path(), path()).prop_map(|(path, text)| Step::Link(path, text.join("/"))),
    ]
}

/// The real tree, reached through the calls.
struct Real {
    files: Arc<dyn ExecutorFileSystem>,
    root: tempfile::TempDir,
}

impl Real {
    fn uri(&self, path: &[String]) -> PathUri {
        let path: std::path::PathBuf = path.iter().collect();
        PathUri::from_native_path(&self.root.path().canonicalize().unwrap().join(path)).unwrap()
    }
}

fn same<T: PartialEq + Debug>(real: io::Result<T>, model: Outcome<T>) -> TestCaseResult {
    let real = real.map_err(|error| said(&error).1);
    prop_assert_eq!(real, model.map_err(str::to_owned));
    Ok(())
}

/// Does a step on both sides and compares what they say.
async fn compare(real: &Real, model: &mut Tree, step: &Step) -> TestCaseResult {
    let (files, at) = (&real.files, |path: &Names| real.uri(path));
    match step {
        Step::Read(path, follow) => {
            let options = ReadFileOptions { follow_symlinks: *follow };
            same(files.read_file(&at(path), options, None).await, model.read(path, *follow))
        }
        Step::ReadStream(path) => same(read_stream(&**files, &at(path)).await, model.read(path, true)),
        Step::Write(path, content, atomic) => {
            let options = WriteFileOptions { atomic: *atomic, ..Default::default() };
            let written = files.write_file(&at(path), content.clone(), options, None).await;
            same(written, model.write(path, content))
        }
        Step::WriteStream(path, content) => {
            same(write_stream(&**files, &at(path), content).await, model.write(path, content))
        }
        Step::CreateDirectory(path, recursive) => {
            let options = CreateDirectoryOptions { recursive: *recursive, ..Default::default() };
            let created = files.create_directory(&at(path), options, None).await;
            same(created, model.create_directory(path, *recursive))
        }
        Step::Metadata(path, follow) => {
            let options = GetMetadataOptions { follow_symlinks: *follow };
            let metadata = files.get_metadata(&at(path), options, None).await;
            let about = metadata.map(|metadata| About {
                is_directory: metadata.is_directory,
                size: metadata.is_file.then_some(metadata.size),
                mode: metadata.mode.unwrap().bits(),
                link_target: metadata.link_target,
            });
            same(about, model.about(path, *follow))
        }
        Step::Canonicalize(path) => {
            let expected = model.canonicalize(path).map(|names| real.uri(&names));
            same(files.canonicalize(&at(path), None).await, expected)
        }
        Step::List(path, links) => {
            let listed = if *links {
                files.read_directory_with_links(&at(path), None).await
            } else {
                files.read_directory(&at(path), None).await
            };
            let rows = listed.map(|entries| {
                let mut rows: Vec<_> =
                    entries.into_iter().map(|e| (e.file_name, e.is_directory, e.link_target)).collect();
                rows.sort();
                rows
            });
            same(rows, model.list(path, *links))
        }
        Step::Walk(path) => {
            let options = WalkOptions {
                max_depth: 9,
                max_directories: 999,
                max_entries: 999,
                follow_directory_symlinks: false,
                prune_hidden_directories: false,
            };
            let root = at(path).to_native_path().unwrap();
            let entries = files.walk(&at(path), options, None).await;
            same(entries.map(|answer| walked(&root, answer.entries)), model.walk(path))
        }
        Step::Remove(path, recursive, force) => {
            let options = RemoveOptions { recursive: *recursive, force: *force, ..Default::default() };
            same(files.remove(&at(path), options, None).await, model.remove(path, *recursive, *force))
        }
        Step::Rename(from, to, replace) => {
            let options = RenameOptions { replace: *replace };
            let renamed = files.rename(&at(from), &at(to), options, None).await;
            same(renamed, model.rename(from, to, *replace))
        }
        Step::Copy(from, to, recursive) => match model.copy(from, to, *recursive) {
            Some(expected) => {
                let options = CopyOptions { recursive: *recursive };
                same(files.copy(&at(from), &at(to), options, None).await, expected)
            }
            None => Ok(()),
        },
        Step::SetMode(path, mode) => {
            let set = files.set_permissions(&at(path), FileMode::from_bits(*mode), None).await;
            same(set, model.set_mode(path, *mode))
        }
        Step::Link(path, text) => {
            same(files.create_symlink(&at(path), text, None).await, model.create_link(path, text))
        }
    }
}

async fn read_stream(files: &dyn ExecutorFileSystem, path: &PathUri) -> io::Result<Vec<u8>> {
    let mut stream = files.read_file_stream(path, None).await?;
    let mut content = Vec::new();
    while let Some(bytes) = stream.next().await? {
        content.extend(bytes);
    }
    Ok(content)
}

async fn write_stream(files: &dyn ExecutorFileSystem, path: &PathUri, content: &[u8]) -> io::Result<()> {
    let mut stream = files.open_for_replacement(path, None).await?;
    stream.write(content).await?;
    stream.finish().await
}

/// What is on the disk.
fn on_disk(path: &Path) -> Node {
    let about = path.symlink_metadata().unwrap();
    let mode = about.permissions().mode() & 0o7777;
    if about.is_symlink() {
        Node::Link(path.read_link().unwrap().to_str().unwrap().to_owned())
    } else if about.is_dir() {
        let entries = path.read_dir().unwrap().map(|entry| entry.unwrap());
        let children =
            entries.map(|entry| (entry.file_name().into_string().unwrap(), on_disk(&entry.path())));
        Node::Directory(children.collect(), mode)
    } else {
        Node::File(std::fs::read(path).unwrap(), mode)
    }
}

fn umask() -> u32 {
    let probe = tempfile::tempdir().unwrap();
    std::fs::create_dir(probe.path().join("d")).unwrap();
    0o777 & !probe.path().join("d").metadata().unwrap().permissions().mode()
}

#[test_case(false; "local")]
#[test_case(true; "remote")]
fn any_sequence_of_calls_agrees_with_the_model(remote: bool) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (place, umask) = (runtime.block_on(Place::new(remote)), umask());
    let mut runner = TestRunner::new(Config { cases: CASES, ..Config::default() });
    let outcome = runner.run(&prop::collection::vec(step(), 1..60), |steps| {
        let real = Real { files: place.files(), root: tempfile::tempdir().unwrap() };
        let mode = real.root.path().metadata().unwrap().permissions().mode() & 0o7777;
        let mut model = Tree::new(mode, umask);
        for step in &steps {
            let compared = runtime.block_on(compare(&real, &mut model, step));
            compared.map_err(|error| TestCaseError::fail(format!("{step:?}: {error}")))?;
            prop_assert_eq!(on_disk(real.root.path()), model.root.clone(), "after {:?}", step);
        }
        Ok(())
    });
    runtime.block_on(async { drop(place) });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}
