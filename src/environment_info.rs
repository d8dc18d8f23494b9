//! What this executor says of itself.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use sha2::{Digest, Sha256};

use crate::path_uri::PathUri;
use crate::protocol::environment::{Capabilities, EnvironmentInfo};
use crate::protocol::process::ShellInfo;

/// The release of the protocol's first server whose contract this one keeps, and as build metadata its own. Clients compare
/// it with releases of that server before they use what is newer.
const EXECUTOR_VERSION: &str = concat!("0.171.0+", env!("CARGO_PKG_NAME"), ".", env!("CARGO_PKG_VERSION"));

/// The account of this process, as far as the system knows it.
#[derive(Debug, Default)]
struct Account {
    home: Option<PathBuf>,
    shell: Option<PathBuf>,
}

/// Gathers the information once, at the start. What confines processes is added when it has been found out. `snapshots`:
/// whether the state of shells is remembered.
pub fn gather(variable: impl Fn(&str) -> Option<OsString>, snapshots: bool) -> EnvironmentInfo {
    let account = Account::current();
    let not_empty = |name: &str| variable(name).filter(|value| !value.is_empty());
    let cwd = std::env::current_dir().ok();
    let temporary = not_empty("TMPDIR").map(|directory| absolute(Path::new(&directory), cwd.as_deref()));
    let home = match not_empty("HOME") {
        Some(home) => Some(PathBuf::from(home)).filter(|home| home.is_absolute()),
        None => account.home.clone(),
    };
    EnvironmentInfo {
        shell: shell(account.shell.as_deref()),
        executor_version: EXECUTOR_VERSION.to_owned(),
        provider_id: Some(provider_id()),
        cwd: cwd.as_deref().and_then(uri),
        user_home_dir: home.as_deref().and_then(uri),
        platform_os: Some("linux".to_owned()),
        prepend_path_dirs: Vec::new(),
        temporary_directories: temporary.as_deref().and_then(uri).into_iter().collect(),
        temp_dir: uri(temporary.as_deref().unwrap_or(Path::new("/tmp"))),
        sandbox: None,
        capabilities: capabilities(snapshots),
    }
}

/// True is a promise: only what works.
fn capabilities(snapshots: bool) -> Capabilities {
    Capabilities {
        network_proxy_launch: true,
        network_proxy_review_domains: true,
        capability_discovery_sandbox: true,
        capability_discovery_v2: true,
        fs_watch_missing: true,
        environment_config_read: true,
        http_header_env_vars: true,
        sandboxed_file_streaming: true,
        file_write_streaming: true,
        process_control: true,
        process_list: true,
        session_observe: true,
        output_accounting: true,
        file_operations: true,
        sandbox_report: true,
        shell_snapshot_v2: snapshots,
        shell_snapshot_report: snapshots,
        ..Capabilities::default()
    }
}

/// The user's home directory, as `environmentInfo` reports it.
pub fn home(info: &EnvironmentInfo) -> Option<PathBuf> {
    info.user_home_dir.as_ref()?.to_native_path().ok()
}

fn uri(path: &Path) -> Option<PathUri> {
    PathUri::from_native_path(path).ok()
}

fn absolute(path: &Path, cwd: Option<&Path>) -> PathBuf {
    cwd.map_or_else(|| path.to_owned(), |cwd| cwd.join(path))
}

fn provider_id() -> String {
    let digest = Sha256::digest(concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION")));
    digest.iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

/// The login shell if it is one that clients know and that runs, else one that does.
fn shell(login: Option<&Path>) -> ShellInfo {
    let fallbacks = ["/bin/bash", "/usr/bin/bash", "/bin/sh", "/usr/bin/sh"].map(Path::new);
    login
        .into_iter()
        .chain(fallbacks)
        .find_map(known_shell)
        .unwrap_or_else(|| ShellInfo { name: "sh".to_owned(), path: "/bin/sh".to_owned() })
}

fn known_shell(path: &Path) -> Option<ShellInfo> {
    let name = path.file_name()?.to_str().filter(|name| ["bash", "zsh", "sh"].contains(name))?;
    access(path, Access::EXEC_OK).ok()?;
    Some(ShellInfo { name: name.to_owned(), path: path.to_str()?.to_owned() })
}

impl Account {
    fn current() -> Self {
        let uid = rustix::process::getuid().as_raw();
        fs::read("/etc/passwd").ok().and_then(|passwd| Self::find(&passwd, uid)).unwrap_or_default()
    }

    fn find(passwd: &[u8], uid: u32) -> Option<Self> {
        let uid = uid.to_string();
        let mut lines = passwd.split(|byte| *byte == b'\n').map(|line| line.split(|byte| *byte == b':'));
        let mut fields = lines.find(|fields| fields.clone().nth(2) == Some(uid.as_bytes()))?.skip(5);
        let mut path = || {
            let path = OsString::from_vec(fields.next()?.to_vec());
            path.as_bytes().starts_with(b"/").then(|| PathBuf::from(path))
        };
        Some(Self { home: path(), shell: path() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_number() {
        let passwd = b"root:x:0:0:root:/root:/bin/zsh\n\nodd:x:7\nme:x:42:42::/home/me:\n";
        let root = Account::find(passwd, 0).unwrap();
        assert_eq!((root.home, root.shell), (Some("/root".into()), Some("/bin/zsh".into())));
        let me = Account::find(passwd, 42).unwrap();
        assert_eq!((me.home, me.shell), (Some("/home/me".into()), None));
        assert!(Account::find(passwd, 7).unwrap().home.is_none());
        assert!(Account::find(passwd, 1).is_none());
    }

    #[test]
    fn the_reported_shell_runs() {
        for login in [None, Some("/nonexistent/zsh"), Some("/bin/false"), Some("/etc/passwd")] {
            let shell = shell(login.map(Path::new));
            assert!(access(shell.path.as_str(), Access::EXEC_OK).is_ok(), "{shell:?}");
        }
    }

    #[test]
    fn the_version_is_comparable_and_names_this_program() {
        let version = semver::Version::parse(EXECUTOR_VERSION).unwrap();
        assert_eq!((version.major, version.minor, version.patch), (0, 171, 0));
        assert_eq!(version.build.as_str(), concat!("exec-server.", env!("CARGO_PKG_VERSION")));
    }

    #[test]
    fn variables_decide() {
        let info = gather(|name| (name == "TMPDIR").then(|| "/x y".into()), true);
        assert_eq!(info.temp_dir.as_ref().map(PathUri::as_str), Some("file:///x%20y"));
        assert_eq!(info.temporary_directories.len(), 1);
        let info = gather(|name| (name == "HOME").then(|| "relative".into()), true);
        assert_eq!((info.user_home_dir, info.temporary_directories.len()), (None, 0));
        assert_eq!(info.temp_dir.as_ref().map(PathUri::as_str), Some("file:///tmp"));
    }
}
