//! From a ground to the view that the helper builds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::error::SandboxError;
use super::ground::{Ground, Presence, Rule, denied_files, links_on_the_way};
use super::placeholders::{Lease, Placeholders, Protection};
use super::plan::{Base, Content, Layer, Skeleton, View};
use crate::policy::{Access, FilePolicy};

/// Permission bits of what stands where nothing may be made.
const BLANK: u32 = 0o555;
/// Those of what hides something.
const CLOSED: u32 = 0;
/// Those of what hides a directory in which something else is open: it can be passed, not listed.
const PASSABLE: u32 = 0o111;

const DEVICES: &str = "/dev";
const PROCESSES: &str = "/proc";
const SHARED_MEMORY: &str = "/dev/shm";

/// What lies on the base at one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Host { writable: bool, directory: bool },
    Held,
    Fixed,
    Blank,
    ClosedFile,
    ClosedDirectory,
}

/// Builds the view of a ground, and takes the placeholders that it stands on; at `stand_in` there is a directory in any
/// case, an empty one where the ground hides it; the directories in `closed_too` are denied as well. Blocks.
///
/// # Errors
/// When something that must be covered cannot be.
pub(super) fn compose(
    ground: &Ground,
    policy: &FilePolicy,
    placeholders: &Placeholders,
    stand_in: Option<&Path>,
    closed_too: Vec<PathBuf>,
) -> Result<(View, Lease), SandboxError> {
    let mut parts = Parts::of(ground);
    let lease = placeholders.acquire(&parts.wanted()).map_err(preparation)?;
    parts.settle(lease.protections());
    for file in denied_files(ground).map_err(preparation)? {
        if ground.access(&file).reads() {
            parts.found.insert(file, Part::ClosedFile);
        }
    }
    parts.found.extend(closed_too.into_iter().map(|directory| (directory, Part::ClosedDirectory)));
    for directory in ground.pinned() {
        parts.found.entry(directory).or_insert(Part::Held);
    }
    Ok((parts.view(ground.access(Path::new("/")), policy, stand_in), lease))
}

fn preparation(error: impl std::error::Error) -> SandboxError {
    SandboxError::Preparation(error.to_string())
}

/// What lies on the base, by path.
struct Parts {
    found: BTreeMap<PathBuf, Part>,
    /// What may be, or may need, a placeholder.
    open: Vec<(PathBuf, Access)>,
}

impl Parts {
    fn of(ground: &Ground) -> Self {
        let mut parts = Self { found: BTreeMap::new(), open: Vec::new() };
        for (path, rule) in ground.rules().iter() {
            let Some(parent) = path.parent().filter(|_| is_covered(path, rule.access)) else { continue };
            parts.add(path, rule, ground.access(parent));
        }
        parts
    }

    /// `above` is what holds around the path.
    fn add(&mut self, path: &Path, rule: &Rule, above: Access) {
        let directory = rule.presence == Presence::Directory;
        let exists = directory || rule.presence == Presence::File;
        let may_be_placeholder = directory || matches!(rule.presence, Presence::Missing { .. });
        let part = match (rule.access, above) {
            (Access::Read | Access::Deny, Access::Write) if may_be_placeholder => {
                return self.open.push((path.to_owned(), rule.access));
            }
            (Access::Write, Access::Write) => Part::Held,
            (Access::Read, Access::Write) => Part::Fixed,
            (Access::Deny, Access::Write) if rule.presence == Presence::Link => Part::Fixed,
            (Access::Deny, Access::Read | Access::Write) if exists => closed(directory),
            (Access::Write, _) if exists => Part::Host { writable: true, directory },
            (Access::Read, Access::Hidden | Access::Deny) if exists => {
                Part::Host { writable: false, directory }
            }
            // Nothing to open, or as it is around it.
            _ => return,
        };
        self.found.insert(path.to_owned(), part);
    }

    fn wanted(&self) -> Vec<PathBuf> {
        self.open.iter().map(|(path, _)| path.clone()).collect()
    }

    /// `protections` are those of [`Self::wanted`], in its order.
    fn settle(&mut self, protections: &[Protection]) {
        for ((wanted, access), protection) in std::mem::take(&mut self.open).into_iter().zip(protections) {
            let (path, part) = match protection {
                Protection::Existing(path) if access == Access::Read => (path, Part::Fixed),
                Protection::Existing(path) => (path, closed(!path.is_file())),
                Protection::Placeholder(path, _) if access == Access::Deny && *path == wanted => {
                    (path, Part::ClosedDirectory)
                }
                Protection::Placeholder(path, _) => (path, Part::Blank),
            };
            let strongest = self.found.get(path).copied().map_or(part, |other| other.max(part));
            self.found.insert(path.clone(), strongest);
        }
    }

    fn view(self, root: Access, policy: &FilePolicy, stand_in: Option<&Path>) -> View {
        let mut builder = Builder::new(root);
        for (path, part) in &self.found {
            builder.add(path, *part);
        }
        if let Some(path) = stand_in {
            builder.stand_in(path);
        }
        builder.finish(policy)
    }
}

fn closed(directory: bool) -> Part {
    if directory { Part::ClosedDirectory } else { Part::ClosedFile }
}

/// `/proc` and `/dev` are the run's own: rules count there only where they close the whole, or for shared memory.
fn is_covered(path: &Path, access: Access) -> bool {
    let own = [DEVICES, PROCESSES].map(Path::new).into_iter().find(|own| path.starts_with(own));
    let Some(own) = own else { return true };
    let in_shared_memory = path.starts_with(SHARED_MEMORY) && path != Path::new(SHARED_MEMORY);
    in_shared_memory || (path == own && access == Access::Deny)
}

/// Lays parts out as layers, and makes the places where they go.
struct Builder {
    base: Base,
    layers: Vec<Layer>,
    shared_memory: Skeleton,
}

impl Builder {
    fn new(root: Access) -> Self {
        let base = match root {
            Access::Write => Base::Host { writable: true },
            Access::Read => Base::Host { writable: false },
            Access::Hidden | Access::Deny => {
                let own = [DEVICES, PROCESSES].map(|path| below(Path::new("/"), Path::new(path)).into());
                Base::Empty(Skeleton { directories: own.to_vec(), ..Skeleton::default() })
            }
        };
        Self { base, layers: Vec::new(), shared_memory: Skeleton::default() }
    }

    /// Paths come in order, those above first.
    fn add(&mut self, path: &Path, part: Part) {
        let is_directory = !matches!(part, Part::ClosedFile | Part::Host { directory: false, .. });
        if let Some((top, skeleton)) = self.made_here(path) {
            skeleton.place(&below(&top, path), is_directory);
        }
        let content = match part {
            Part::Host { writable, .. } => Content::Host { writable },
            Part::Held => Content::Held,
            Part::Fixed => Content::Fixed,
            Part::Blank => Content::Directory { mode: BLANK, skeleton: Skeleton::default() },
            Part::ClosedFile => Content::File { mode: CLOSED },
            Part::ClosedDirectory => Content::Directory { mode: CLOSED, skeleton: Skeleton::default() },
        };
        self.layers.push(Layer { path: path.into(), content });
    }

    fn stand_in(&mut self, path: &Path) {
        let there = self.layers.iter_mut().find(|layer| layer.path.as_path() == path);
        match there.map(|layer| &mut layer.content) {
            Some(Content::Directory { mode, .. }) => *mode |= PASSABLE,
            Some(_) => {}
            None => {
                if let Some((top, skeleton)) = self.made_here(path) {
                    skeleton.place(&below(&top, path), true);
                }
            }
        }
    }

    /// The directory made by the view itself in which a path lies, if it does.
    fn made_here(&mut self, path: &Path) -> Option<(PathBuf, &mut Skeleton)> {
        let around = |layer: &&mut Layer| path.starts_with(layer.path.as_path());
        if let Some(layer) = self.layers.iter_mut().rev().find(around) {
            let top = layer.path.as_path().to_owned();
            let Content::Directory { mode, skeleton } = &mut layer.content else { return None };
            *mode |= PASSABLE;
            return Some((top, skeleton));
        }
        if path.starts_with(SHARED_MEMORY) {
            return Some((PathBuf::from(SHARED_MEMORY), &mut self.shared_memory));
        }
        match &mut self.base {
            Base::Host { .. } => None,
            Base::Empty(skeleton) => Some((PathBuf::from("/"), skeleton)),
        }
    }

    /// The links by which the policy's paths were spelled lead on in a view that has nothing else there.
    fn finish(mut self, policy: &FilePolicy) -> View {
        let layers = &self.layers;
        let is_in_a_layer = |path: &Path| layers.iter().any(|layer| path.starts_with(layer.path.as_path()));
        if let Base::Empty(skeleton) = &mut self.base {
            let links: BTreeMap<PathBuf, PathBuf> =
                policy.rules().iter().flat_map(|(path, _)| links_on_the_way(path)).collect();
            for (path, target) in links.into_iter().filter(|(path, _)| !is_in_a_layer(path)) {
                let path = below(Path::new("/"), &path);
                skeleton.make_parents(&path);
                skeleton.links.push((path.into(), target.into()));
            }
        }
        View { base: self.base, layers: self.layers, shared_memory: self.shared_memory }
    }
}

fn below(top: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(top).unwrap_or(path).to_owned()
}

impl Skeleton {
    fn place(&mut self, path: &Path, directory: bool) {
        self.make_parents(path);
        if directory {
            self.directories.push(path.into());
        } else {
            self.files.push(path.into());
        }
    }

    fn make_parents(&mut self, path: &Path) {
        let mut parents: Vec<&Path> = path.ancestors().skip(1).collect();
        parents.reverse();
        self.directories
            .extend(parents.into_iter().filter(|path| !path.as_os_str().is_empty()).map(Into::into));
    }
}

#[cfg(test)]
mod tests;
