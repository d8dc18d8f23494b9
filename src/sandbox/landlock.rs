//! Landlock rules: which paths may be opened for what, and which ports may be connected to.

use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use landlock::{
    ABI, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, Scope,
};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;

use super::plan::{Grant, GrantAccess};

/// Builds a ruleset that allows what the grants say. A grant whose path does not exist grants nothing.
///
/// # Errors
/// What failed, in words: nothing may run without the ruleset.
pub fn ruleset(grants: &[Grant], reach: Reach<'_>) -> Result<OwnedFd, String> {
    build(grants, reach).map_err(|error| error.to_string())?.ok_or_else(|| "no Landlock here".to_owned())
}

/// What Landlock keeps apart besides files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach<'a> {
    /// Abstract sockets made outside are out of reach, where the kernel can do it.
    pub scoped_sockets: bool,
    /// TCP connects to these ports only, and is bound to none. None: as it likes.
    pub tcp_ports: Option<&'a [u16]>,
}

/// The first version that knows ports.
pub const PORTS_VERSION: i32 = 4;

/// The version of Landlock that the kernel has, 0 without one.
#[must_use]
#[expect(unsafe_code, reason = "the library keeps the version to itself")]
pub fn version() -> i32 {
    const VERSION: u32 = 1;
    // SAFETY: without attributes the call reads no memory.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, VERSION) };
    i32::try_from(version).unwrap_or(0).max(0)
}

fn build(grants: &[Grant], reach: Reach<'_>) -> Result<Option<OwnedFd>, landlock::RulesetError> {
    let abi = ABI::from(version());
    let handled = handled(abi);
    let ruleset =
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(handled)?;
    let ruleset = match scope(abi, reach) {
        scope if scope.is_empty() => ruleset,
        scope => ruleset.scope(scope)?,
    };
    let ruleset = match reach.tcp_ports {
        Some(_) => ruleset.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?,
        None => ruleset,
    };
    let mut created = ruleset.create()?;
    for port in reach.tcp_ports.unwrap_or_default() {
        created = created.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
    }
    for grant in grants {
        created = add(created, grant, handled)?;
    }
    Ok(created.into())
}

/// Of files; of sockets only what [`Reach`] says. The rest is the filter's and the supervisor's.
fn handled(abi: ABI) -> BitFlags<AccessFs> {
    AccessFs::from_read(abi) | AccessFs::from_write(abi) & !BitFlags::from(AccessFs::ResolveUnix)
}

fn scope(abi: ABI, reach: Reach<'_>) -> BitFlags<Scope> {
    if abi < ABI::V6 {
        return BitFlags::EMPTY;
    }
    if reach.scoped_sockets { Scope::AbstractUnixSocket | Scope::Signal } else { Scope::Signal.into() }
}

fn add(
    created: RulesetCreated,
    grant: &Grant,
    handled: BitFlags<AccessFs>,
) -> Result<RulesetCreated, landlock::RulesetError> {
    let Some((path, is_directory)) = open(grant) else { return Ok(created) };
    let mut rights = rights(grant.access) & handled;
    if !is_directory {
        rights &= AccessFs::from_file(ABI::V9);
    }
    created.add_rule(PathBeneath::new(path, rights))
}

/// Not through links: paths are real, and what has become a link since is not what was meant.
fn open(grant: &Grant) -> Option<(OwnedFd, bool)> {
    let path = grant.path.as_path();
    let path = match openat2(CWD, path, PLACE, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // Not every filter around this server knows the call.
        Err(Errno::NOSYS | Errno::PERM) => step_by_step(path),
        result => result,
    };
    let path = path.ok()?;
    let kind = FileType::from_raw_mode(fstat(&path).ok()?.st_mode);
    (kind != FileType::Symlink).then_some((path, kind == FileType::Directory))
}

const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

fn step_by_step(path: &Path) -> rustix::io::Result<OwnedFd> {
    let root = openat(CWD, "/", PLACE, Mode::empty())?;
    path.components().try_fold(root, |parent, component| match component {
        // A link on the way is no directory.
        Component::Normal(name) => openat(&parent, name, PLACE, Mode::empty()),
        _ => Ok(parent),
    })
}

fn rights(access: GrantAccess) -> BitFlags<AccessFs> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::Execute;
    match access {
        GrantAccess::List => AccessFs::ReadDir.into(),
        GrantAccess::Read => read,
        GrantAccess::Device => {
            AccessFs::ReadFile
                | AccessFs::ReadDir
                | AccessFs::WriteFile
                | AccessFs::Truncate
                | AccessFs::IoctlDev
        }
        GrantAccess::Write => BitFlags::all(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_lead_where_the_path_does_and_through_no_link() {
        let area = tempfile::tempdir().expect("a directory");
        let real = area.path().canonicalize().expect("a real path");
        std::fs::create_dir(real.join("d")).expect("a directory");
        std::fs::write(real.join("d/f"), "").expect("a file");
        std::os::unix::fs::symlink("d", real.join("l")).expect("a link");
        let inode = |path: &OwnedFd| fstat(path).expect("a description").st_ino;
        let open = |path: &Path| openat(CWD, path, PLACE, Mode::empty()).expect("an open file");
        for path in [real.join("d/f"), real.join("d"), real.clone(), "/".into()] {
            assert_eq!(inode(&step_by_step(&path).expect("an open file")), inode(&open(&path)), "{path:?}");
        }
        assert_eq!(step_by_step(&real.join("l/f")).expect_err("a link on the way"), Errno::NOTDIR);
        assert_eq!(step_by_step(&real.join("none")).expect_err("nothing there"), Errno::NOENT);
    }
}
