//! Where this process is in the cgroup v2 tree, and whether that part of it was delegated to it. Only looks.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, getxattr};

use super::{Home, LEAF};

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

/// The cgroup that may be divided, or why there is none.
///
/// # Errors
/// A sentence for the operator.
pub fn base(home: &Home) -> Result<PathBuf, String> {
    let base = match home {
        Home::Own => own_base()?,
        Home::At(path) => path.clone(),
    };
    if !base.join("cgroup.controllers").exists() {
        return Err(format!("{} is no cgroup v2 directory", base.display()));
    }
    for file in GIVEN {
        let path = base.join(file);
        let wanted = if file.is_empty() { Access::WRITE_OK | Access::EXEC_OK } else { Access::WRITE_OK };
        access(&path, wanted).map_err(|errno| {
            format!("{} cannot be written: {}", path.display(), std::io::Error::from(errno))
        })?;
    }
    Ok(base)
}

/// The controllers that a cgroup can hand on.
#[must_use]
pub fn controllers(base: &Path) -> Vec<String> {
    let text = fs::read_to_string(base.join("cgroup.controllers")).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
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
        let own = membership.lines().find_map(|line| line.strip_prefix("0::"));
        let own = Path::new(own.ok_or("the kernel has no cgroup v2")?);
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
        // The one that no process has made has no such file.
        if !base.join("cgroup.events").exists() {
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
        let error = base(&Home::At("/tmp".into())).unwrap_err();
        assert_eq!(error, "/tmp is no cgroup v2 directory");
    }
}
