use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::{Errno, Result};

use crate::fsops::{Guard, Look, Want};
use crate::policy::{Access, DenyGlob, PathTree};
use crate::sandbox::ground::Ground;
use crate::sandbox::placeholders::{Identity, Placeholders};

/// All that is there of `/dev` and `/proc`, whatever the policy says: the rest is about the server or the machine.
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
const STATISTICS: [&str; 7] = [
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/uptime",
    "/proc/version",
];

/// A directory that is there only because something below it may be seen.
const PASSAGE: Look = Look::Bare(0o755);
/// A denied directory with something below it that may be seen.
const DENIED_PASSAGE: Look = Look::Bare(0o111);
/// A denied entry.
const DENIED: Look = Look::Bare(0);

/// What a file call sees of the file system: the rules of a policy, as a sandboxed process would see them.
#[derive(Debug)]
pub(crate) struct View {
    rules: PathTree<Access>,
    globs: Vec<DenyGlob>,
    /// The rules that forbid something, by their paths in lower case.
    folded: HashMap<String, PathBuf>,
    /// Directories that stand for nothing: they keep running sandboxes from creating what is protected.
    placeholders: HashSet<PathBuf>,
}

impl View {
    pub(super) fn of(ground: &Ground, placeholders: Option<&Placeholders>) -> Self {
        let is_fixed = |path: &Path| path.starts_with("/dev") || path.starts_with("/proc");
        let own = ground.rules().iter().filter(|(path, _)| !is_fixed(path));
        let mut rules: PathTree<Access> = own.map(|(path, rule)| (path.to_owned(), rule.access)).collect();
        let denied = |path: &str| ground.access(Path::new(path)) == Access::Deny;
        let listed = DEVICES.map(|path| (path, Access::Write)).into_iter();
        let listed = listed.chain(STATISTICS.map(|path| (path, Access::Read)));
        let listed = listed.map(|(path, access)| (path, if denied(path) { Access::Deny } else { access }));
        let fixed = [("/dev", Access::Hidden), ("/proc", Access::Hidden)].into_iter().chain(listed);
        for (path, access) in fixed {
            rules.entry(path.into()).insert_entry(access);
        }
        // As in a sandbox; by it the superuser could change the machine.
        if ground.access(Path::new("/sys")) == Access::Write && ground.rules().at(Path::new("/sys")).is_none()
        {
            rules.entry("/sys".into()).insert_entry(Access::Read);
        }
        let closed = rules.iter().filter(|(_, access)| matches!(access, Access::Read | Access::Deny));
        let folded = closed.map(|(path, _)| (fold(path), path.to_owned())).collect();
        let placeholders = placeholders.map(|known| standing(ground, known)).unwrap_or_default();
        Self { rules, globs: ground.globs().to_vec(), folded, placeholders }
    }

    /// Denies a directory that the policy says nothing of.
    pub(super) fn deny(&mut self, directory: PathBuf) {
        self.folded.insert(fold(&directory), directory.clone());
        self.rules.entry(directory).insert_entry(Access::Deny);
    }

    fn access(&self, path: &Path) -> Access {
        self.rule_at_or_above(path).map_or(Access::Hidden, |(_, access)| access)
    }

    /// The rule that decides about a path, and where it is. Where case does not count, another spelling of the path of a
    /// rule is that path.
    fn rule_at_or_above(&self, path: &Path) -> Option<(&Path, Access)> {
        let spelled = self.rules.covering(path).map(|(at, access)| (at, *access));
        let below = path.ancestors().take_while(|above| spelled.is_none_or(|(at, _)| at != *above));
        let other = below.filter_map(|above| Some((above, self.folded.get(&fold(above))?)));
        let mut same = other.filter(|(above, rule)| is_same(above, rule));
        match same.next() {
            Some((_, rule)) => Some((rule, *self.rules.at(rule)?)),
            None => spelled,
        }
    }

    /// Whether a rule is about exactly this path.
    fn is_ruled(&self, path: &Path) -> bool {
        self.rule_at_or_above(path).is_some_and(|(at, _)| fold(at) == fold(path))
    }

    /// Whether a path is there only to keep something from being there.
    fn stands_for_nothing(&self, path: &Path) -> bool {
        !self.placeholders.is_empty() && path.ancestors().any(|above| self.placeholders.contains(above))
    }

    fn leads_on(&self, path: &Path) -> bool {
        self.rules.below(path).any(|(_, access)| access.reads())
    }

    fn denied_by_glob(&self, path: &Path, kind: Option<FileType>) -> bool {
        kind != Some(FileType::Directory) && self.denies_name(path)
    }

    fn permits_displacing(&self, path: &Path, kind: Option<FileType>) -> Result<()> {
        let access = self.access(path);
        let is_root = self.is_ruled(path);
        let above = path.parent().map_or(Access::Hidden, |parent| self.access(parent));
        match access {
            Access::Hidden if self.leads_on(path) => Err(Errno::ROFS),
            Access::Hidden => Err(Errno::NOENT),
            Access::Read if !is_root || above != Access::Write => Err(Errno::ROFS),
            Access::Deny if !is_root => Err(Errno::ACCESS),
            // What lies below would be judged by other rules elsewhere.
            _ if is_root || self.rules.below(path).next().is_some() => Err(Errno::BUSY),
            _ if self.denied_by_glob(path, kind) => Err(Errno::BUSY),
            _ => Ok(()),
        }
    }
}

/// The placeholders at the rules of a ground, or where what is missing of their paths begins.
fn standing(ground: &Ground, known: &Placeholders) -> HashSet<PathBuf> {
    let closed = ground.rules().iter().filter(|(_, rule)| rule.access != Access::Write);
    let paths = closed.flat_map(|(path, _)| {
        let in_writable = move |above: &&Path| *above == path || ground.access(above) == Access::Write;
        path.ancestors().take_while(in_writable)
    });
    let is_placeholder = |path: &&Path| {
        path.symlink_metadata().is_ok_and(|metadata| {
            known.is_placeholder(Identity { device: metadata.dev(), inode: metadata.ino() })
        })
    };
    paths.filter(is_placeholder).map(Path::to_owned).collect()
}

fn fold(path: &Path) -> String {
    path.to_string_lossy().to_lowercase()
}

/// Whether two spellings that differ in case name the same entry. What is missing could come to be by either.
fn is_same(spelling: &Path, rule: &Path) -> bool {
    match (spelling.symlink_metadata(), rule.symlink_metadata()) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        (Err(_), Ok(_)) => false,
        (_, Err(_)) => true,
    }
}

impl Guard for View {
    fn permits(&self, path: &Path, kind: Option<FileType>, want: Want) -> Result<()> {
        if want == Want::Displace {
            return self.permits_displacing(path, kind);
        }
        if want != Want::Write && self.stands_for_nothing(path) {
            return Err(Errno::NOENT);
        }
        match (self.access(path), want) {
            (Access::Read | Access::Write, Want::Read) | (Access::Write, Want::Write)
                if self.denied_by_glob(path, kind) =>
            {
                Err(Errno::ACCESS)
            }
            (Access::Write, _) => Ok(()),
            (Access::Read | Access::Hidden, Want::Write) => Err(Errno::ROFS),
            (Access::Read, _) => Ok(()),
            (Access::Hidden, _) if self.leads_on(path) => Ok(()),
            (Access::Hidden, _) => Err(Errno::NOENT),
            (Access::Deny, Want::Approach) if self.is_ruled(path) => Ok(()),
            (Access::Deny, Want::Approach | Want::Pass) if self.leads_on(path) => Ok(()),
            (Access::Deny, _) => Err(Errno::ACCESS),
        }
    }

    fn look(&self, path: &Path, kind: FileType) -> Result<Look> {
        match self.access(path) {
            Access::Read | Access::Write if self.denied_by_glob(path, Some(kind)) => Ok(DENIED),
            Access::Read | Access::Write => Ok(Look::Plain),
            Access::Hidden if self.leads_on(path) => Ok(PASSAGE),
            Access::Hidden => Err(Errno::NOENT),
            Access::Deny if self.leads_on(path) => Ok(DENIED_PASSAGE),
            Access::Deny if self.is_ruled(path) => Ok(DENIED),
            Access::Deny => Err(Errno::ACCESS),
        }
    }

    fn shows(&self, path: &Path) -> bool {
        let is_covered = self.rules.covering(path).is_some_and(|(_, access)| *access != Access::Hidden);
        (is_covered || self.leads_on(path)) && !self.stands_for_nothing(path)
    }

    fn denies_name(&self, path: &Path) -> bool {
        self.globs.iter().any(|glob| glob.matches(path))
    }

    fn would_expose(&self, from: &Path, to: &Path) -> bool {
        self.denies_name(from) && !self.denies_name(to)
    }

    fn denies_names(&self) -> bool {
        !self.globs.is_empty()
    }
}
