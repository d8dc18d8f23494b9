use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use super::Presence;

/// As many links as the kernel follows.
const MAX_LINKS: usize = 40;

/// Where a path leads.
pub(super) struct Trace {
    /// Without links; if links lead nowhere, where the last of them is.
    pub(super) real: PathBuf,
    /// What is there.
    pub(super) presence: Presence,
    /// Where the links are that were followed, in order, each without links on the way to it.
    pub(super) links: Vec<PathBuf>,
}

/// Follows an absolute path link by link, as far as it exists. The path is an answer about this moment only.
pub(super) fn trace(path: &Path) -> Trace {
    Tracer::default().trace(path)
}

/// Follows many paths, and looks at a directory that they share once.
#[derive(Debug, Default)]
pub(super) struct Tracer {
    directories: HashSet<PathBuf>,
}

impl Tracer {
    /// See [`trace`].
    pub(super) fn trace(&mut self, path: &Path) -> Trace {
        let mut links = Vec::new();
        let mut real = PathBuf::from("/");
        let mut presence = Presence::Directory;
        let mut pending = names(path);
        while let Some(name) = pending.pop() {
            if name == ".." {
                real.pop();
                continue;
            }
            let next = real.join(&name);
            let found = if presence == Presence::Directory { self.look(&next) } else { None };
            match found {
                None => {
                    // What is in the way of the rest, or missing.
                    let first = if presence == Presence::Directory { next.clone() } else { real };
                    let real = rest(next, &pending);
                    return Trace { real, presence: Presence::Missing { first }, links };
                }
                Some(Presence::Link) => {
                    links.push(next.clone());
                    match std::fs::read_link(&next) {
                        Ok(target) if links.len() <= MAX_LINKS => {
                            if target.is_absolute() {
                                real = PathBuf::from("/");
                            }
                            pending.extend(names(&target));
                        }
                        _ => return Trace { real: next, presence: Presence::Link, links },
                    }
                }
                Some(found) => (real, presence) = (next, found),
            }
        }
        Trace { real, presence, links }
    }

    /// What an entry is; nothing if it cannot be looked at.
    fn look(&mut self, path: &Path) -> Option<Presence> {
        if self.directories.contains(path) {
            return Some(Presence::Directory);
        }
        let kind = path.symlink_metadata().ok()?.file_type();
        if kind.is_dir() {
            self.directories.insert(path.to_owned());
            return Some(Presence::Directory);
        }
        Some(if kind.is_symlink() { Presence::Link } else { Presence::File })
    }
}

/// The names of a path, the last first.
fn names(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        _ => None,
    });
    let mut names: Vec<_> = names.collect();
    names.reverse();
    names
}

/// What would be the path if the missing part came into being. What goes up from there stops at the missing name.
fn rest(missing: PathBuf, pending: &[OsString]) -> PathBuf {
    if pending.iter().any(|name| name == "..") {
        return missing;
    }
    pending.iter().rev().fold(missing, |path, name| path.join(name))
}
