//! How much of everything there is.

use std::path::Path;

use rustix::process::{Resource, getrlimit};

use super::surroundings::number;
use super::{Check, Status};

/// A process takes some six descriptors, a connection one.
const ENOUGH_FILES: u64 = 16_384;
const ENOUGH_PROCESSES: u64 = 8_192;

pub(super) fn checks(state_dir: Option<&Path>) -> Vec<Check> {
    let limit = |resource| getrlimit(resource).current;
    vec![
        open_files(limit(Resource::Nofile)),
        processes(limit(Resource::Nproc), number("/proc/sys/kernel/pid_max")),
        marks(getrlimit(Resource::Rss).maximum),
        state(state_dir),
    ]
}

fn open_files(limit: Option<u64>) -> Check {
    const NAME: &str = "open files";
    match limit {
        Some(limit) if limit < ENOUGH_FILES => Check::new(
            NAME,
            Status::Warning,
            format!("The server may open {limit} files: some {} processes.", limit / 6),
        )
        .fix(format!("ulimit -n {ENOUGH_FILES}"))
        .fix(format!("LimitNOFILE={ENOUGH_FILES} in the unit of the service"))
        .fix(format!("docker run --ulimit nofile={ENOUGH_FILES}:{ENOUGH_FILES} …")),
        limit => Check::ok(NAME, format!("The server may open {} files.", shown(limit))),
    }
}

fn processes(limit: Option<u64>, pid_max: Option<u64>) -> Check {
    const NAME: &str = "processes";
    let least = limit.into_iter().chain(pid_max).min();
    match least {
        Some(least) if least < ENOUGH_PROCESSES => Check::new(
            NAME,
            Status::Warning,
            format!("There may be {least} processes at a time."),
        )
        .fix(format!(
            "ulimit -u {ENOUGH_PROCESSES}, or LimitNPROC={ENOUGH_PROCESSES} in the unit of the service"
        )),
        least => Check::ok(NAME, format!("There may be {} processes at a time.", shown(least))),
    }
}

fn marks(hard_limit: Option<u64>) -> Check {
    const NAME: &str = "process marks";
    match hard_limit {
        None => Check::ok(NAME, "Everything that a run starts can be found by its mark."),
        Some(_) => Check::new(
            NAME,
            Status::Warning,
            "RLIMIT_RSS has a hard limit, so processes carry no marks: some may live on when the server is killed.",
        )
        .fix("ulimit -m unlimited, or LimitRSS=infinity in the unit of the service"),
    }
}

fn state(directory: Option<&Path>) -> Check {
    const NAME: &str = "state directory";
    match directory {
        Some(path) => Check::ok(NAME, format!("State is kept in {}.", path.display())),
        None => Check::new(
            NAME,
            Status::Warning,
            "No state directory can be written: what a sandbox holds in a workspace stays there if the server and its \
             guard are killed in the same moment, and no token can be made.",
        )
        .fix("--state-dir DIR, or StateDirectory=exec-server in the unit of the service"),
    }
}

fn shown(limit: Option<u64>) -> String {
    limit.map_or_else(|| "any number of".to_owned(), |limit| limit.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_limits_are_warnings_with_a_fix() {
        let files = open_files(Some(1024));
        assert_eq!(files.status, Status::Warning);
        assert!(files.message.contains("1024 files: some 170 processes"), "{}", files.message);
        assert!(files.fixes.iter().any(|fix| fix.contains("LimitNOFILE")));
        assert_eq!(open_files(None).status, Status::Ok);
        assert_eq!(processes(None, Some(4096)).status, Status::Warning);
        assert_eq!(processes(Some(100_000), Some(32_768)).message, "There may be 32768 processes at a time.");
        assert_eq!(marks(Some(1)).status, Status::Warning);
    }

    #[test]
    fn no_place_for_state_is_a_warning() {
        assert_eq!(state(None).status, Status::Warning);
    }
}
