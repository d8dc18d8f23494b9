//! What a snapshot does to a start.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use super::error::CaptureError;
use super::shell::bash::{KEPT_BASH_ENV, starts_in_posix_mode};
use super::shell::{Replay, STATE_DESCRIPTOR, State};
use super::variables::Changes;
use crate::process::ProcessSpec;
use crate::process::env::Variables;
use crate::spawn::Inherited;

const STATE_PATH: &[u8] = b"/dev/fd/9";
const BASH_ENV: &[u8] = b"BASH_ENV";

/// The state of a shell after its start-up files, for any number of starts.
#[derive(Debug)]
pub struct Snapshot {
    changes: Changes,
    /// The script that puts the rest back. Sealed, so that all starts can share it.
    script: Arc<OwnedFd>,
    replay: Replay,
    size: usize,
}

impl Snapshot {
    pub(super) fn new(changes: Changes, state: State) -> Result<Self, CaptureError> {
        let size = changes.size() + state.script.len() + size_of::<Self>();
        let script = sealed(&state.script).map_err(|error| CaptureError::Transport(error.to_string()))?;
        Ok(Self { changes, script: Arc::new(script), replay: state.replay, size })
    }

    /// Bytes in memory.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Lays the variables of the start-up files over what a start inherits. What the request sets comes over them.
    pub fn lay_over(&self, inherited: &mut Variables) {
        self.changes.apply(inherited);
    }

    /// Makes a start of `[shell, "-lc", command, …]`, complete with its environment, one that begins with this state.
    pub fn put_before(&self, spec: &mut ProcessSpec) {
        spec.inherited.push(Inherited { fd: Arc::clone(&self.script), number: STATE_DESCRIPTOR });
        let shown_as = spec.arg0.as_ref().unwrap_or(&spec.argv[0]).clone();
        match &self.replay {
            // Without `--norc` bash may take its input for a network connection and read the file after all.
            Replay::Bash { prelude, .. } if starts_in_posix_mode(&shown_as, &spec.env) => {
                prelude_before(&mut spec.argv, &["--norc", "-c"], prelude, shown_as);
            }
            Replay::Bash { prelude, as_startup_file } => {
                if let Some(kept) = spec.env.remove(BASH_ENV) {
                    spec.env.insert(KEPT_BASH_ENV.into(), kept);
                }
                if *as_startup_file {
                    spec.env.insert(BASH_ENV.to_vec(), STATE_PATH.to_vec());
                    spec.argv.splice(1..2, ["--norc", "-c"].map(str::to_owned));
                } else {
                    prelude_before(&mut spec.argv, &["--norc", "-c"], prelude, shown_as);
                }
            }
            Replay::Prelude { flag, prelude } => prelude_before(&mut spec.argv, &[flag], prelude, shown_as),
        }
    }
}

/// `[shell, -lc, command, zero, …]` to `[shell, flags…, prelude, zero, command, …]`; the prelude shifts the command away.
fn prelude_before(argv: &mut Vec<String>, flags: &[&str], prelude: &str, shown_as: String) {
    if argv.len() == 3 {
        argv.push(shown_as);
    }
    argv.swap(2, 3);
    argv.splice(1..2, flags.iter().copied().chain([prelude]).map(str::to_owned));
}

/// A file in memory that nobody can change, with a position of its own for everyone who opens it.
fn sealed(content: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(memfd_create("shell-state", flags)?);
    file.write_all(content)?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use pretty_assertions::assert_eq;

    use super::*;
    use crate::protocol::process::ProcessId;

    fn snapshot(replay: Replay) -> Snapshot {
        let state = State { exported: Vec::new(), script: b"state".to_vec(), replay };
        Snapshot::new(Changes::default(), state).unwrap()
    }

    fn restored(snapshot: &Snapshot, argv: &[&str], arg0: Option<&str>, env: &[(&str, &str)]) -> ProcessSpec {
        let mut spec = ProcessSpec {
            id: ProcessId::from("p"),
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            arg0: arg0.map(str::to_owned),
            cwd: "/".into(),
            env: env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            terminal: None,
            pipe_stdin: false,
            inherited: Vec::new(),
            introduction: None,
        };
        snapshot.put_before(&mut spec);
        assert_eq!(spec.inherited.len(), 1);
        spec
    }

    fn env(spec: &ProcessSpec, name: &str) -> Option<String> {
        spec.env.get(name.as_bytes()).map(|value| String::from_utf8(value.clone()).unwrap())
    }

    #[test]
    fn bash_keeps_its_command_line() {
        let bash = snapshot(Replay::Bash { prelude: "PRE".into(), as_startup_file: true });
        let spec = restored(&bash, &["bash", "-lc", "true", "zero", "one"], None, &[]);
        assert_eq!(spec.argv, ["bash", "--norc", "-c", "true", "zero", "one"]);
        assert_eq!(env(&spec, "BASH_ENV").as_deref(), Some("/dev/fd/9"));
        assert_eq!(env(&spec, KEPT_BASH_ENV), None);
        let spec = restored(&bash, &["bash", "-lc", "true"], None, &[("BASH_ENV", "mine")]);
        assert_eq!(env(&spec, KEPT_BASH_ENV).as_deref(), Some("mine"));
    }

    #[test]
    fn in_posix_mode_there_is_a_prelude() {
        let bash = snapshot(Replay::Bash { prelude: "PRE".into(), as_startup_file: true });
        let prelude = ["/bin/sh", "--norc", "-c", "PRE", "/bin/sh", "true"];
        assert_eq!(restored(&bash, &["/bin/sh", "-lc", "true"], None, &[]).argv, prelude);
        for (arg0, variable) in
            [(Some("sh"), ("A", "1")), (None, ("POSIXLY_CORRECT", "")), (None, ("SHELLOPTS", "a:posix"))]
        {
            let spec = restored(&bash, &["bash", "-lc", "true", "zero", "one"], arg0, &[variable]);
            assert_eq!(spec.argv, ["bash", "--norc", "-c", "PRE", "zero", "true", "one"]);
            assert_eq!(env(&spec, "BASH_ENV"), None);
        }
        let bash = snapshot(Replay::Bash { prelude: "PRE".into(), as_startup_file: false });
        let spec = restored(&bash, &["bash", "-lc", "true"], None, &[("BASH_ENV", "mine")]);
        assert_eq!(spec.argv, ["bash", "--norc", "-c", "PRE", "bash", "true"]);
        // It must not be read, and come back.
        assert_eq!((env(&spec, "BASH_ENV"), env(&spec, KEPT_BASH_ENV).as_deref()), (None, Some("mine")));
        let zsh = snapshot(Replay::Prelude { flag: "-fc", prelude: "PRE".into() });
        assert_eq!(
            restored(&zsh, &["zsh", "-lc", "true"], Some("shown"), &[]).argv,
            ["zsh", "-fc", "PRE", "shown", "true"]
        );
    }

    #[test]
    fn the_script_cannot_be_changed() {
        let snapshot = snapshot(Replay::Bash { prelude: String::new(), as_startup_file: true });
        let path = format!("/proc/self/fd/{}", snapshot.script.as_raw_fd());
        for _ in 0..2 {
            assert_eq!(std::fs::read(&path).unwrap(), b"state");
        }
        let opened = File::options().write(true).open(&path);
        assert!(opened.and_then(|mut file| file.write_all(b"x")).is_err());
    }
}
