//! What a writable root must not lose: its metadata, which programs of the user trust and run.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::trace::{Trace, Tracer};
use super::{Ground, Origin, Presence, Rule};
use crate::policy::{Access, DenyGlob, FilePolicy, PathTree};

/// Protected at the top of every writable root.
pub const METADATA: [&str; 4] = [".git", ".codex", ".agents", ".aws"];

/// A `.git` file is short.
const MAX_GIT_FILE: u64 = 16 << 10;

/// What is to be a file may be a pipe by now.
const NEVER_WAIT: i32 = libc::O_NONBLOCK | libc::O_NOCTTY;

/// The rules of a ground while they are laid.
pub(super) struct Layout {
    rules: PathTree<Rule>,
    /// Real paths that entries let write, existing or not.
    granted: BTreeSet<PathBuf>,
    /// Those among them that are the `.git` of something.
    git_granted: BTreeSet<PathBuf>,
    /// Links on the way to rules, and whether what they lead to may be read.
    links: Vec<(PathBuf, bool)>,
    globs: Vec<DenyGlob>,
    tracer: Tracer,
}

impl Layout {
    pub(super) fn of(policy: &FilePolicy) -> Self {
        let mut layout = Self {
            rules: PathTree::default(),
            granted: BTreeSet::new(),
            git_granted: BTreeSet::new(),
            links: Vec::new(),
            globs: Vec::new(),
            tracer: Tracer::default(),
        };
        for (path, access) in policy.rules().iter() {
            layout.entry(path, *access);
        }
        for glob in policy.globs() {
            let root = layout.tracer.trace(glob.root());
            if root.real != glob.root() {
                layout.globs.push(glob.below(root.real));
            }
            layout.globs.push(glob.clone());
            layout.links.extend(root.links.into_iter().map(|link| (link, false)));
        }
        layout
    }

    fn entry(&mut self, path: &Path, access: Access) {
        let Trace { real, presence, links } = self.tracer.trace(path);
        let is_there = !matches!(presence, Presence::Missing { .. } | Presence::Link);
        self.links.extend(links.into_iter().map(|link| (link, is_there && access.reads())));
        if access == Access::Write {
            if is_git(path) || is_git(&real) {
                self.git_granted.insert(real.clone());
            }
            self.granted.insert(real.clone());
            if !is_there {
                return;
            }
        }
        let rule = Rule { access, origin: Origin::Entry, presence };
        let joined = |old: &mut Rule| old.access = old.access.or_stronger(access);
        self.rules.entry(real).and_modify(joined).or_insert(rule);
    }

    pub(super) fn finish(mut self) -> Ground {
        for root in self.writable_roots() {
            for name in METADATA {
                self.metadata(&root, name);
            }
        }
        for git in self.git_granted.clone() {
            self.protect(&git.join("hooks"));
        }
        for (link, leads_on) in std::mem::take(&mut self.links) {
            if leads_on {
                self.show(&link);
            }
            self.hold(link, Presence::Link);
        }
        Ground { rules: self.rules, globs: self.globs }
    }

    /// Directories that may be written. One that is metadata itself has none.
    fn writable_roots(&self) -> Vec<PathBuf> {
        let is_metadata =
            |path: &Path| METADATA.iter().any(|name| path.file_name() == Some(OsStr::new(name)));
        let writable = self.rules.iter().filter(|(path, rule)| {
            rule.access == Access::Write && rule.presence == Presence::Directory && !is_metadata(path)
        });
        writable.map(|(path, _)| path.to_owned()).collect()
    }

    fn metadata(&mut self, root: &Path, name: &str) {
        let place = root.join(name);
        if name == ".git"
            && let Some(target) = git_file_target(&place)
        {
            let target = if self.is_in_granted_git(&target) { target.join("hooks") } else { target };
            self.protect(&target);
        }
        self.protect(&place);
    }

    fn is_in_granted_git(&mut self, path: &Path) -> bool {
        let real = self.tracer.trace(path).real;
        let decides = |above: &&Path| self.rules.at(above).is_some() || self.git_granted.contains(*above);
        real.ancestors().find(decides).is_some_and(|above| self.git_granted.contains(above))
    }

    /// Keeps a path, the links that it leads over and what it leads to from being changed, where they could be.
    fn protect(&mut self, place: &Path) {
        let Trace { real, presence, links } = self.tracer.trace(place);
        for link in links {
            self.hold(link, Presence::Link);
        }
        self.hold(real, presence);
    }

    /// What may be read can be read by the name that the policy gives it.
    fn show(&mut self, link: &Path) {
        if self.rules.covering(link).is_none() {
            let rule = Rule { access: Access::Read, origin: Origin::Entry, presence: Presence::Link };
            self.rules.entry(link.to_owned()).or_insert(rule);
        }
    }

    /// An entry that names the path itself has the last word.
    fn hold(&mut self, path: PathBuf, presence: Presence) {
        let writable = self.rules.covering(&path).is_some_and(|(_, rule)| rule.access == Access::Write);
        if writable && self.rules.at(&path).is_none() && !self.granted.contains(&path) {
            let rule = Rule { access: Access::Read, origin: Origin::Protected, presence };
            self.rules.entry(path).or_insert(rule);
        }
    }
}

fn is_git(path: &Path) -> bool {
    path.file_name() == Some(OsStr::new(".git"))
}

/// The directory that a `.git` file names.
fn git_file_target(place: &Path) -> Option<PathBuf> {
    let file = File::options().read(true).custom_flags(NEVER_WAIT).open(place).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    file.take(MAX_GIT_FILE).read_to_end(&mut text).ok()?;
    let target = text.strip_prefix(b"gitdir: ")?.trim_ascii_end();
    Some(place.parent()?.join(OsStr::from_bytes(target)))
}
