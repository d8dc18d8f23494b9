//! Looks at the processes of the machine.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

/// A value in the environment of the processes of one test, inherited by all that they start.
#[derive(Debug)]
pub(crate) struct Marker(String);

impl Marker {
    pub(crate) const NAME: &str = "EXEC_SERVER_TEST_MARKER";

    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self(format!("mark-{}-{}-", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    pub(crate) fn value(&self) -> &str {
        &self.0
    }

    /// The living processes that carry the marker in their environment or on their command line.
    pub(crate) fn pids(&self) -> Vec<i32> {
        let entry = format!("{}={}", Self::NAME, self.0);
        let carries = |pid: &i32| {
            let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ.split(|byte| *byte == 0).any(|variable| variable == entry.as_bytes())
                || command_line(*pid).contains(&self.0)
        };
        pids().filter(|pid| carries(pid) && !matches!(state(*pid), None | Some('Z' | 'X'))).collect()
    }

    /// Those of them that run this command, not those, such as a shell, that only mention it.
    pub(crate) fn running(&self, command: &str) -> Vec<i32> {
        let runs = |pid: &i32| {
            let line = command_line(*pid);
            line.trim_start_matches("/usr").trim_start_matches("/bin/").starts_with(command)
        };
        self.pids().into_iter().filter(runs).collect()
    }
}

/// Whatever a failed test left must not outlive it.
impl Drop for Marker {
    fn drop(&mut self) {
        for pid in self.pids() {
            if std::thread::panicking() {
                eprintln!("left behind: {pid} {:?} {}", stat(pid), command_line(pid));
            }
            kill(pid, rustix::process::Signal::KILL);
        }
    }
}

pub(crate) fn kill(pid: i32, signal: rustix::process::Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        // It may have ended in the meantime.
        rustix::process::kill_process(pid, signal).ok();
    }
}

fn pids() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc")
        .expect("/proc")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn command_line(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim_end_matches('\0').replace('\0', " ")
}

/// The fields of `/proc/PID/stat` behind the name: state, parent, group, session, ….
fn stat(pid: i32) -> Option<Vec<String>> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    Some(text.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

/// The state letter of a process.
pub(crate) fn state(pid: i32) -> Option<char> {
    stat(pid)?.first()?.chars().next()
}

/// Children of a process that nobody has reaped.
pub(crate) fn zombies_of(parent: i32) -> Vec<i32> {
    let is_zombie =
        |pid: &i32| stat(*pid).is_some_and(|fields| fields[0] == "Z" && fields[1] == parent.to_string());
    pids().filter(is_zombie).collect()
}

/// The helpers that outlive a server.
pub(crate) fn guards_of(parent: i32) -> Vec<i32> {
    let is_guard = |pid: &i32| {
        stat(*pid).is_some_and(|fields| fields[1] == parent.to_string())
            && command_line(*pid).starts_with("exec-server: guard")
    };
    pids().filter(is_guard).collect()
}

/// How much sooner a process is killed when memory runs out.
pub(crate) fn oom_score_adj(pid: i32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).expect("the process lives");
    text.trim().to_owned()
}

/// Processor time used, in ticks of 10 ms.
pub(crate) fn cpu_ticks(pid: i32) -> u64 {
    let fields = stat(pid).expect("the process lives");
    fields[11].parse::<u64>().expect("a number") + fields[12].parse::<u64>().expect("a number")
}

/// Resident memory in bytes.
pub(crate) fn resident(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok()).expect("a number") * 1024
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// What the open descriptors are.
pub(crate) fn open_files(pid: i32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).expect("the process lives").flatten();
    entries.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.display().to_string())).collect()
}

/// Whether a program runs here at all; for tests that need more than every machine gives.
pub(crate) fn succeeds(argv: &[&str]) -> bool {
    let mut command = std::process::Command::new(argv[0]);
    command.args(&argv[1..]).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
