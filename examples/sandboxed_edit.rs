//! Edits a file under a sandbox: everything may be read, the workspace may be written.
//!
//! `cargo run --example sandboxed_edit` does it on this machine, `-- ws://127.0.0.1:8765` behind it on a server, which
//! has to be on this machine as well: the workspace is made here.

use std::io::Write;
use std::path::Path;

use exec_server::backend::{ReadFileOptions, WriteFileOptions};
use exec_server::environment::{Environment, ExecServerRuntimePaths};
use exec_server::outbound::HttpClientFactory;
use exec_server::path_uri::PathUri;
use exec_server::protocol::sandbox::{
    FileSystemAccessMode, FileSystemSandboxContext, FileSystemSandboxEntry, FileSystemSandboxPolicy,
    FileSystemSpecialPath, NetworkSandboxPolicy, PermissionProfile,
};

/// Changes a file of `workspace`, and shows that the one beside it is out of reach.
pub(crate) async fn run(
    url: Option<String>,
    workspace: &Path,
    outside: &Path,
    output: &mut impl Write,
) -> anyhow::Result<()> {
    let environment =
        Environment::create(url, ExecServerRuntimePaths::itself(), HttpClientFactory::default())?;
    let files = environment.get_filesystem();
    let workspace = PathUri::from_host_native_path(workspace)?;
    let sandbox = writable_workspace(workspace.clone());

    let note = workspace.join("note.txt")?;
    let text = files.read_file(&note, ReadFileOptions::default(), Some(&sandbox)).await?;
    let changed = String::from_utf8(text)?.replace("draft", "done");
    let atomic = WriteFileOptions { atomic: Some(true), ..WriteFileOptions::default() };
    files.write_file(&note, changed.into_bytes(), atomic, Some(&sandbox)).await?;
    writeln!(output, "the note is changed")?;

    let other = PathUri::from_host_native_path(outside)?.join("note.txt")?;
    match files.write_file(&other, b"mine now".to_vec(), atomic, Some(&sandbox)).await {
        Ok(()) => anyhow::bail!("the sandbox did not hold"),
        Err(error) => writeln!(output, "refused: {error}")?,
    }
    Ok(())
}

fn writable_workspace(cwd: PathUri) -> FileSystemSandboxContext {
    let places = [
        (FileSystemSpecialPath::Root, FileSystemAccessMode::Read),
        (FileSystemSpecialPath::project_roots(None), FileSystemAccessMode::Write),
    ];
    let entries = places.map(|(place, access)| FileSystemSandboxEntry::new(place.into(), access));
    let policy = FileSystemSandboxPolicy::restricted(entries.into());
    let profile = PermissionProfile::from_runtime_permissions(&policy, NetworkSandboxPolicy::Restricted);
    FileSystemSandboxContext::from_permission_profile(profile, cwd)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (workspace, outside) = (tempfile::tempdir()?, tempfile::tempdir()?);
    for directory in [&workspace, &outside] {
        std::fs::write(directory.path().join("note.txt"), "a draft\n")?;
    }
    run(std::env::args().nth(1), workspace.path(), outside.path(), &mut std::io::stdout()).await?;
    print!("{}", std::fs::read_to_string(workspace.path().join("note.txt"))?);
    Ok(())
}
