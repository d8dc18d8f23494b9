//! Where this process is in the cgroup v2 tree, and whether that part of it was delegated to it. Only looks.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Access, access, getxattr};

use super::{Controller, Home, LEAF};

/// Files that the owner of a delegated cgroup may write.
const GIVEN: [&str; 3] = ["", "cgroup.procs", "cgroup.subtree_control"];
/// How systemd marks what it has delegated.
const DELEGATED: [&str; 2] = ["user.delegate", "trusted.delegate"];

/// Where this process is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    /// Where the hierarchy is mounted.
    mount: PathBuf,
    /// The directory of this process's cgroup.
    own: PathBuf,
}

/// A cgroup that may be divided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// Its directory.
    pub base: PathBuf,
    /// What runs in it cannot be held to, as far as looking tells.
    pub missing: Missing,
}

/// Controllers that cannot be had, each with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Missing(Vec<(Controller, String)>);

impl Missing {
    /// Why a controller cannot be had; `None` if it can.
    #[must_use]
    pub fn why_not(&self, controller: Controller) -> Option<&str> {
        self.0.iter().find(|(missing, _)| *missing == controller).map(|(_, reason)| reason.as_str())
    }

    pub(super) fn of(why_not: impl Fn(Controller) -> Option<String>) -> Self {
        Self(Controller::ALL.into_iter().filter_map(|one| Some((one, why_not(one)?))).collect())
    }
}

/// Looks for the cgroup that may be divided; changes nothing.
///
/// # Errors
/// Why there is none: a sentence for the operator.
pub fn survey(home: &Home) -> Result<Survey, String> {
    let base = match home {
        Home::Own => own_base()?,
        Home::At(path) => path.clone(),
    };
    if !base.join("cgroup.controllers").exists() {
        return Err(format!("{} is no cgroup v2 directory", base.display()));
    }
    for file in GIVEN {
        let wanted = if file.is_empty() { Access::WRITE_OK | Access::EXEC_OK } else { Access::WRITE_OK };
        check_access(&base.join(file), wanted)?;
    }
    if let Some(ancestor) = common_ancestor(&base) {
        check_access(&ancestor.join("cgroup.procs"), Access::WRITE_OK).map_err(|error| {
            format!("no process can be moved from the server's cgroup to {}: {error}", base.display())
        })?;
    }
    if !is_root(&base) {
        check_killable(&base)?;
    }
    let known = controllers(&base);
    let lacks = |one: Controller| format!("{} has no {} controller", base.display(), one.name());
    let missing = Missing::of(|one| (!known.iter().any(|known| known == one.name())).then(|| lacks(one)));
    Ok(Survey { base, missing })
}

fn check_access(path: &Path, wanted: Access) -> Result<(), String> {
    access(path, wanted)
        .map_err(|errno| format!("{} cannot be written: {}", path.display(), std::io::Error::from(errno)))
}

/// Whether everything in a cgroup can be killed by one write. The root of the tree cannot be, and does not tell.
pub(super) fn check_killable(group: &Path) -> Result<(), String> {
    match group.join("cgroup.kill").exists() {
        true => Ok(()),
        false => Err("cgroups cannot be killed: Linux 5.14 or later is needed".to_owned()),
    }
}

/// The one that no process has made has no such file.
fn is_root(group: &Path) -> bool {
    !group.join("cgroup.events").exists()
}

/// The controllers that a cgroup can hand on.
fn controllers(base: &Path) -> Vec<String> {
    let text = fs::read_to_string(base.join("cgroup.controllers")).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// The nearest cgroup above both this process and another cgroup: who moves processes between them must be able to write
/// it. `None` where it cannot be seen from here.
fn common_ancestor(base: &Path) -> Option<PathBuf> {
    let [membership, mounts] = ["/proc/self/cgroup", "/proc/self/mountinfo"].map(fs::read_to_string);
    common_ancestor_of(&membership.ok()?, &mounts.ok()?, &fs::canonicalize(base).ok()?)
}

fn common_ancestor_of(membership: &str, mounts: &str, base: &Path) -> Option<PathBuf> {
    let own = Path::new(own_group(membership)?);
    let holds_base = |(_, mount): &(PathBuf, PathBuf)| base.starts_with(mount);
    let (root, mount) = mounts
        .lines()
        .filter_map(cgroup_mount)
        .filter(holds_base)
        .max_by_key(|(_, mount)| mount.as_os_str().len())?;
    let group = root.join(base.strip_prefix(&mount).ok()?);
    let both = own.components().zip(group.components());
    let shared: PathBuf = both.take_while(|(one, other)| one == other).map(|(one, _)| one).collect();
    // A cgroup namespace shows what is above its root as `..`.
    let is_outside = own.components().any(|component| component == Component::ParentDir);
    (!is_outside).then(|| Some(mount.join(shared.strip_prefix(&root).ok()?)))?
}

/// Whether this process is in a cgroup itself, not in one below it.
pub(super) fn is_own(base: &Path) -> bool {
    Place::look().is_ok_and(|place| place.own == base)
}

fn own_base() -> Result<PathBuf, String> {
    let place = Place::look()?;
    let base = match (place.own.file_name(), place.own.parent()) {
        (Some(name), Some(parent)) if name == LEAF && place.own != place.mount => parent.to_owned(),
        _ => place.own.clone(),
    };
    place.check(&base)?;
    Ok(base)
}

impl Place {
    fn look() -> Result<Self, String> {
        let read = |path| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
        Self::of(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?)
    }

    fn of(membership: &str, mounts: &str) -> Result<Self, String> {
        let own = Path::new(own_group(membership).ok_or("the kernel has no cgroup v2")?);
        let mounts = mounts.lines().filter_map(cgroup_mount);
        let mut places = mounts.filter_map(|(root, mount)| {
            let below = own.strip_prefix(&root).ok()?;
            // An empty rest would leave a slash at the end.
            let own = if below.as_os_str().is_empty() { mount.clone() } else { mount.join(below) };
            Some(Self { mount, own })
        });
        places.next_back().ok_or_else(|| "no cgroup v2 file system shows the server's own cgroup".to_owned())
    }

    /// Root may write everywhere, so being able to is not enough: somebody must have given it away.
    fn check(&self, base: &Path) -> Result<(), String> {
        if is_root(base) {
            return Err(
                "the server is in the root of the cgroup tree, which is nobody's to divide".to_owned()
            );
        }
        let is_marked = DELEGATED.iter().any(|name| {
            let mut value = [0; 8];
            getxattr(base, *name, &mut value[..]).is_ok_and(|length| value[..length] == *b"1")
        });
        let uid = rustix::process::geteuid().as_raw();
        let is_ours = uid != 0 && fs::metadata(base).is_ok_and(|metadata| metadata.uid() == uid);
        if base == self.mount || is_marked || is_ours {
            return Ok(());
        }
        Err(format!("{} was not delegated to the server", base.display()))
    }
}

fn own_group(membership: &str) -> Option<&str> {
    membership.lines().find_map(|line| line.strip_prefix("0::"))
}

/// The root and the place of a mount of cgroup v2.
fn cgroup_mount(line: &str) -> Option<(PathBuf, PathBuf)> {
    let (before, after) = line.split_once(" - ")?;
    if after.split(' ').next() != Some("cgroup2") {
        return None;
    }
    let mut fields = before.split(' ').skip(3);
    Some((unescaped(fields.next()?), unescaped(fields.next()?)))
}

/// Spaces and their like stand as octal numbers in the table.
fn unescaped(field: &str) -> PathBuf {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.iter().fold(field.to_owned(), |field, (code, letter)| field.replace(code, letter)).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    const MOUNTS: &str = "\
        22 1 0:20 / /proc rw - proc proc rw\n\
        30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";

    #[test_case("0::/system.slice/x.service\n", "/sys/fs/cgroup/system.slice/x.service"; "a service")]
    #[test_case("4:memory:/x\n0::/\n", "/sys/fs/cgroup"; "the root, beside old hierarchies")]
    fn the_own_cgroup_is_found(membership: &str, own: &str) {
        let place = Place::of(membership, MOUNTS).unwrap();
        assert_eq!((place.own, place.mount), (PathBuf::from(own), PathBuf::from("/sys/fs/cgroup")));
    }

    #[test]
    fn a_part_of_the_tree_may_be_mounted_somewhere_else() {
        let mounts = "31 24 0:26 /box\\040one /my\\040groups rw - cgroup2 cgroup2 rw\n";
        let place = Place::of("0::/box one/a\n", mounts).unwrap();
        assert_eq!(place.own, Path::new("/my groups/a"));
        assert!(Place::of("0::/elsewhere\n", mounts).unwrap_err().contains("no cgroup v2 file system"));
    }

    #[test]
    fn without_cgroup_v2_there_is_none() {
        assert!(Place::of("1:cpu:/\n", MOUNTS).is_err());
        assert!(Place::of("0::/\n", "22 1 0:20 / /proc rw - proc proc rw\n").is_err());
    }

    #[test]
    fn a_directory_that_is_no_cgroup_is_refused_by_name() {
        let error = survey(&Home::At("/tmp".into())).unwrap_err();
        assert_eq!(error, "/tmp is no cgroup v2 directory");
    }

    #[test]
    fn what_cannot_be_killed_is_refused_before_anything_is_made() {
        let dir = tempfile::tempdir().unwrap();
        for file in ["cgroup.controllers", "cgroup.procs", "cgroup.subtree_control", "cgroup.events"] {
            fs::write(dir.path().join(file), "pids\n").unwrap();
        }
        let home = Home::At(dir.path().to_owned());
        assert!(survey(&home).unwrap_err().contains("cannot be killed"));
        fs::write(dir.path().join("cgroup.kill"), "").unwrap();
        let found = survey(&home).unwrap();
        assert_eq!(found.missing.why_not(Controller::Pids), None);
        let reason = format!("{} has no memory controller", dir.path().display());
        assert_eq!(found.missing.why_not(Controller::Memory), Some(reason.as_str()));
    }

    #[test_case("0::/a/b\n", "/sys/fs/cgroup/a/c", Some("/sys/fs/cgroup/a"); "beside the own one")]
    #[test_case("0::/a/b\n", "/sys/fs/cgroup/a/b/c", Some("/sys/fs/cgroup/a/b"); "below the own one")]
    #[test_case("0::/a\n", "/sys/fs/cgroup/b", Some("/sys/fs/cgroup"); "elsewhere")]
    #[test_case("0::/box/a\n", "/boxes/b", Some("/boxes"); "in a part that is mounted")]
    #[test_case("0::/a\n", "/boxes/b", None; "above the part that is mounted")]
    #[test_case("0::/../a\n", "/sys/fs/cgroup/b", None; "above a namespace")]
    #[test_case("0::/a\n", "/tmp", None; "in no mount")]
    fn the_nearest_cgroup_above_two_is_found(membership: &str, base: &str, expected: Option<&str>) {
        let mounts = format!("{MOUNTS}31 24 0:26 /box /boxes rw - cgroup2 cgroup2 rw\n");
        assert_eq!(common_ancestor_of(membership, &mounts, Path::new(base)), expected.map(PathBuf::from));
    }
}
