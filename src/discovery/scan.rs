//! Finds skills and manifests in a tree: level by level, links to directories followed, each real directory once.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::rc::Rc;

use super::manifest::{MANIFEST_DIRS, MANIFEST_FILE};
use super::notice::{Matter, Notices};
use super::place::Place;
use super::stop::Stop;
use crate::fs::{FsError, Scope};
use crate::fsops::{self, Entry, Links, Listing};
use crate::path_uri::PathUri;

/// Levels of directories below the root.
pub(super) const MAX_DEPTH: u32 = 6;
/// Directories that are listed, the root among them.
pub(super) const MAX_DIRECTORIES: usize = 2_000;
/// Entries that are looked at. Links to files are none.
pub(super) const MAX_ENTRIES: usize = 20_000;

/// Entries that are read of one directory, links to files included.
const MAX_LISTED: usize = 5 * MAX_ENTRIES;

/// The file that makes a directory a skill.
pub(super) const SKILL_FILE: &str = "SKILL.md";
/// The directory in which skills are expected.
const SKILLS_DIR: &str = "skills";

/// What is in a tree.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Directories with a skill file, by the URI of that file.
    pub(super) skills: Vec<Rc<Place>>,
    /// Manifests below the root, by the directory that they are about.
    pub(super) manifests: BTreeMap<PathUri, Place>,
    pub(super) notices: Notices,
    is_cut: bool,
}

/// Scans a tree. Should a limit leave something out, that is what is least likely to be of use.
///
/// # Errors
///
/// The root is no directory, or cannot be listed.
pub(super) fn scan(root: &Place, scope: &Scope, stop: &Stop) -> Result<Scan, FsError> {
    let whole = Walk::new(root, scope, Order::ByLevel).run(stop)?;
    if whole.is_cut { Walk::new(root, scope, Order::LikelyFirst).run(stop) } else { Ok(whole) }
}

/// Which directory is next. It decides what a limit leaves out, and which of two paths a directory is told by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// The one with the shortest path.
    ByLevel,
    /// One where skills are expected, and of these the one with the shortest path.
    LikelyFirst,
}

/// A directory that is to be listed. There may be many, so the paths are put together when their turn comes.
struct Pending {
    above: Rc<Place>,
    name: OsString,
    depth: u32,
    /// It is a link, in a directory that is really below the root.
    is_link: bool,
    below_skills: bool,
}

/// A directory that is being listed.
struct Directory {
    place: Rc<Place>,
    /// The directory that it is in; none for the root.
    above: Option<Rc<Place>>,
    depth: u32,
    is_link: bool,
    below_skills: bool,
}

impl Pending {
    fn place(&self) -> Place {
        self.above.child(&self.name)
    }
}

impl From<Pending> for Directory {
    fn from(pending: Pending) -> Self {
        let place = Rc::new(pending.place());
        let Pending { above, depth, is_link, below_skills, .. } = pending;
        Self { place, above: Some(above), depth, is_link, below_skills }
    }
}

struct Walk<'a> {
    root: Rc<Place>,
    scope: &'a Scope,
    order: Order,
    likely: VecDeque<Pending>,
    others: VecDeque<Pending>,
    /// Directories that have been listed.
    visited: HashSet<(u64, u64)>,
    entries: usize,
    real_root: PathBuf,
    scan: Scan,
    /// Rank of each manifest among those of its directory.
    ranks: BTreeMap<PathUri, usize>,
    is_too_deep: bool,
}

/// A limit was reached.
struct Full;

impl<'a> Walk<'a> {
    fn new(root: &Place, scope: &'a Scope, order: Order) -> Self {
        Self {
            root: Rc::new(root.clone()),
            scope,
            order,
            likely: VecDeque::new(),
            others: VecDeque::new(),
            visited: HashSet::new(),
            entries: 0,
            real_root: PathBuf::new(),
            scan: Scan::default(),
            ranks: BTreeMap::new(),
            is_too_deep: false,
        }
    }

    fn run(mut self, stop: &Stop) -> Result<Scan, FsError> {
        let top = Directory {
            place: Rc::clone(&self.root),
            above: None,
            depth: 0,
            is_link: false,
            below_skills: false,
        };
        let listing = self.list(&top.place, MAX_LISTED)?;
        self.real_root.clone_from(&listing.real_path);
        let mut outcome = self.enter(&top, listing);
        while outcome.is_ok() && stop.is_wanted() {
            let Some(next) = self.likely.pop_front().or_else(|| self.others.pop_front()) else { break };
            outcome = self.visit(&next.into());
        }
        self.scan.skills.sort_by_cached_key(|directory| directory.child(SKILL_FILE).uri);
        Ok(self.scan)
    }

    fn list(&self, place: &Place, limit: usize) -> Result<Listing, FsError> {
        fsops::list_some(self.scope.route(&place.path), limit)
    }

    fn visit(&mut self, directory: &Directory) -> Result<(), Full> {
        let listing = match self.list(&directory.place, MAX_LISTED) {
            Ok(listing) if self.visited.contains(&listing.identity) => return Ok(()),
            Ok(listing) => listing,
            Err(error) => {
                self.note(&directory.place, Matter::Unlisted(error));
                return Ok(());
            }
        };
        if self.visited.len() == MAX_DIRECTORIES {
            return self.stop(Matter::Directories);
        }
        if directory.is_link && !listing.real_path.starts_with(&self.real_root) {
            self.note(&directory.place, Matter::LinkOut(listing.real_path.display().to_string()));
        }
        self.enter(directory, listing)
    }

    fn enter(&mut self, directory: &Directory, listing: Listing) -> Result<(), Full> {
        self.visited.insert(listing.identity);
        let is_inside = listing.real_path.starts_with(&self.real_root);
        for entry in listing.entries {
            let is_linked_file = entry.link_target.is_some() && !entry.is_directory;
            if is_linked_file {
                continue;
            }
            if self.entries == MAX_ENTRIES {
                return self.stop(Matter::Entries);
            }
            self.entries += 1;
            if entry.is_directory {
                self.enqueue(directory, entry, is_inside);
            } else if entry.is_file {
                self.file(directory, &entry.name);
            }
        }
        if listing.is_cut { self.stop(Matter::Entries) } else { Ok(()) }
    }

    fn stop(&mut self, limit: Matter) -> Result<(), Full> {
        self.scan.is_cut = true;
        let root = Rc::clone(&self.root);
        self.note(&root, limit);
        Err(Full)
    }

    fn enqueue(&mut self, parent: &Directory, entry: Entry, is_inside: bool) {
        let pending = Pending {
            above: Rc::clone(&parent.place),
            depth: parent.depth + 1,
            is_link: is_inside && entry.link_target.is_some(),
            below_skills: parent.below_skills || entry.name == SKILLS_DIR,
            name: entry.name,
        };
        if pending.depth > MAX_DEPTH {
            return self.too_deep(&pending);
        }
        let is_likely = self.order == Order::LikelyFirst && self.is_likely(&pending);
        if is_likely { self.likely.push_back(pending) } else { self.others.push_back(pending) }
    }

    /// Whether there may be skills or manifests.
    fn is_likely(&self, directory: &Pending) -> bool {
        let is_directory = |place: &Place| {
            fsops::metadata(self.scope.route(&place.path), Links::Follow)
                .is_ok_and(|found| found.is_directory)
        };
        let has_manifest = || {
            let place = directory.place();
            MANIFEST_DIRS.iter().any(|kind| is_directory(&place.child(kind)))
        };
        directory.below_skills || MANIFEST_DIRS.iter().any(|kind| directory.name == *kind) || has_manifest()
    }

    /// Says once that something is too deep, unless it has been listed by another path.
    fn too_deep(&mut self, directory: &Pending) {
        if self.is_too_deep {
            return;
        }
        let listing = self.list(&directory.place(), 0);
        if listing.is_ok_and(|listing| !self.visited.contains(&listing.identity)) {
            self.is_too_deep = true;
            self.note(&directory.above, Matter::TooDeep);
        }
    }

    fn file(&mut self, directory: &Directory, name: &OsStr) {
        if name == SKILL_FILE {
            self.scan.skills.push(Rc::clone(&directory.place));
        } else if name == MANIFEST_FILE {
            self.manifest(directory, name);
        }
    }

    /// A manifest counts below the root, and where there is none before it.
    fn manifest(&mut self, directory: &Directory, name: &OsStr) {
        let Some(plugin) = directory.above.as_ref().filter(|above| **above != self.root) else { return };
        let holder = directory.place.path.file_name();
        let Some(rank) = MANIFEST_DIRS.iter().position(|kind| holder == Some(OsStr::new(kind))) else {
            return;
        };
        if self.ranks.get(&plugin.uri).is_none_or(|before| rank < *before) {
            self.ranks.insert(plugin.uri.clone(), rank);
            self.scan.manifests.insert(plugin.uri.clone(), directory.place.child(name));
        }
    }

    fn note(&mut self, about: &Place, matter: Matter) {
        self.scan.notices.add(&about.uri, matter);
    }
}
