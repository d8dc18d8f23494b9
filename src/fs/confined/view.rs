use std::path::Path;

use rustix::fs::FileType;
use rustix::io::{Errno, Result};

use crate::fsops::{Guard, Look, Want};
use crate::policy::{Access, DenyGlob, PathTree};
use crate::sandbox::ground::Ground;

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
pub(in crate::fs) struct View {
    rules: PathTree<Access>,
    globs: Vec<DenyGlob>,
}

impl View {
    pub(super) fn of(ground: &Ground) -> Self {
        let is_fixed = |path: &Path| path.starts_with("/dev") || path.starts_with("/proc");
        let own = ground.rules().iter().filter(|(path, _)| !is_fixed(path));
        let mut rules: PathTree<Access> = own.map(|(path, rule)| (path.to_owned(), rule.access)).collect();
        let denied = |path: &str| ground.access(Path::new(path)) == Access::Deny;
        let listed = DEVICES.map(|path| (path, Access::Write)).into_iter();
        let listed = listed.chain(STATISTICS.map(|path| (path, Access::Read)));
        let listed = listed.map(|(path, access)| (path, if denied(path) { Access::Deny } else { access }));
        let hidden = [("/dev", Access::Hidden), ("/proc", Access::Hidden)];
        for (path, access) in hidden.into_iter().chain(listed) {
            rules.entry(path.into()).insert_entry(access);
        }
        Self { rules, globs: ground.globs().to_vec() }
    }

    fn access(&self, path: &Path) -> Access {
        self.rules.covering(path).map_or(Access::Hidden, |(_, access)| *access)
    }

    fn leads_on(&self, path: &Path) -> bool {
        self.rules.below(path).any(|(_, access)| access.reads())
    }

    fn denied_by_glob(&self, path: &Path, kind: Option<FileType>) -> bool {
        kind != Some(FileType::Directory) && self.denies_name(path)
    }

    fn permits_displacing(&self, path: &Path, kind: Option<FileType>) -> Result<()> {
        let access = self.access(path);
        let is_root = self.rules.at(path).is_some();
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

impl Guard for View {
    fn permits(&self, path: &Path, kind: Option<FileType>, want: Want) -> Result<()> {
        if want == Want::Displace {
            return self.permits_displacing(path, kind);
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
            (Access::Deny, Want::Approach) if self.rules.at(path).is_some() => Ok(()),
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
            Access::Deny if self.rules.at(path).is_some() => Ok(DENIED),
            Access::Deny => Err(Errno::ACCESS),
        }
    }

    fn shows(&self, path: &Path) -> bool {
        self.access(path) != Access::Hidden || self.leads_on(path)
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
