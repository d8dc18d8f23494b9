//! One cgroup: what is in it, what it may use, and its end.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

/// A cgroup by its directory. Copies name the same one; nothing ends with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    dir: Arc<Path>,
}

impl Group {
    /// The cgroup of a directory that is one.
    pub(super) fn at(dir: PathBuf) -> Self {
        Self { dir: dir.into() }
    }

    /// Makes a cgroup in this one.
    pub(super) fn create(&self, name: &str) -> io::Result<Self> {
        let dir = self.dir.join(name);
        fs::create_dir(&dir)?;
        Ok(Self::at(dir))
    }

    /// Its directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The directory as clone takes it.
    pub(in crate::spawn) fn open(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(open(self.dir.as_ref(), flags, Mode::empty())?)
    }

    /// Where a process writes `0` to come into this cgroup.
    pub(in crate::spawn) fn open_entrance(&self) -> io::Result<OwnedFd> {
        Ok(File::options().write(true).open(self.dir.join("cgroup.procs"))?.into())
    }

    /// Writes one of its settings.
    ///
    /// # Errors
    /// The system's, with the name of the setting.
    pub fn set(&self, setting: &str, value: &str) -> io::Result<()> {
        write(&self.dir.join(setting), value)
            .map_err(|error| io::Error::new(error.kind(), format!("{setting}: {error}")))
    }

    /// Whether it has such a setting.
    #[must_use]
    pub fn has(&self, setting: &str) -> bool {
        self.dir.join(setting).exists()
    }

    /// Whether as much as its limit was ever in use of what a controller counts; `None` where the kernel does not keep
    /// the highest number, as before Linux 6.1, or where there is no limit.
    #[must_use]
    pub fn was_at_max(&self, controller: &str) -> Option<bool> {
        let value = |file| {
            fs::read_to_string(self.dir.join(format!("{controller}.{file}"))).ok()?.trim().parse::<u64>().ok()
        };
        Some(value("peak")? >= value("max")?)
    }

    /// A file of events: readable with priority when a number in it has changed since it was read.
    ///
    /// # Errors
    /// The system's.
    pub fn open_events(&self, file: &str) -> io::Result<OwnedFd> {
        Ok(File::open(self.dir.join(file))?.into())
    }

    /// A number of a file of lines `name number`. Such files are made up by the kernel, so reading waits for nothing.
    #[must_use]
    pub fn count(&self, file: &str, name: &str) -> Option<u64> {
        number(&fs::read_to_string(self.dir.join(file)).ok()?, name)
    }

    /// Processor time of everything that was ever in it, children that have ended included. Adds up what each
    /// processor has counted; for blocking threads.
    #[must_use]
    pub fn cpu_time(&self) -> Option<Duration> {
        self.count("cpu.stat", "usage_usec").map(Duration::from_micros)
    }

    /// Whether anything lives in it or below it.
    #[must_use]
    pub fn is_populated(&self) -> bool {
        self.count("cgroup.events", "populated").is_some_and(|count| count > 0)
    }

    /// The processes in it and below it.
    #[must_use]
    pub fn pids(&self) -> Vec<i32> {
        let own = fs::read_to_string(self.dir.join("cgroup.procs")).unwrap_or_default();
        // 0 stands for a process that this one cannot name.
        let own = own.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0);
        own.chain(self.below().iter().flat_map(Self::pids)).collect()
    }

    /// Kills everything in it and below it, also what is forked meanwhile. False where it cannot: the cgroup is gone, or
    /// a program has made it a threaded one.
    #[must_use]
    pub fn kill(&self) -> bool {
        self.set("cgroup.kill", "1").is_ok()
    }

    /// Removes it and those below it, as far as nothing lives in them; true if it is gone. For blocking threads.
    #[must_use]
    pub fn remove(&self) -> bool {
        for below in self.below() {
            let _ = below.remove();
        }
        match fs::remove_dir(&self.dir) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    fn below(&self) -> Vec<Self> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        directories.map(|entry| Self::at(entry.path())).collect()
    }
}

/// One `write` call, which is what the files of cgroups take.
pub(super) fn write(path: &Path, value: &str) -> io::Result<()> {
    let file = open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    match rustix::io::write(&file, value.as_bytes()) {
        Ok(count) if count == value.len() => Ok(()),
        Ok(_) => Err(Errno::IO.into()),
        Err(errno) => Err(errno.into()),
    }
}

fn number(text: &str, name: &str) -> Option<u64> {
    let of_name = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
    text.lines().find_map(of_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case("30\n", "30\n", Some(true); "it was")]
    #[test_case("29\n", "30\n", Some(false); "it was not")]
    #[test_case("30\n", "max\n", None; "no limit")]
    fn what_was_in_use_is_compared_with_the_limit(peak: &str, max: &str, expected: Option<bool>) {
        let dir = tempfile::tempdir().unwrap();
        let group = Group::at(dir.path().to_owned());
        fs::write(dir.path().join("pids.max"), max).unwrap();
        assert_eq!(group.was_at_max("pids"), None, "an old kernel");
        fs::write(dir.path().join("pids.peak"), peak).unwrap();
        assert_eq!(group.was_at_max("pids"), expected);
    }

    #[test]
    fn a_number_is_found_by_its_whole_name() {
        let text = "low 0\noom 3\noom_kill 12\noom_group_kill 1\n";
        assert_eq!(number(text, "oom"), Some(3));
        assert_eq!(number(text, "oom_kill"), Some(12));
        assert_eq!(number(text, "max"), None);
    }
}
