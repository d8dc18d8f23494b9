//! The server's part of the cgroup v2 tree: a cgroup for every run.
//!
//! ```text
//! the delegated cgroup
//! ├── exec-server          the server itself, since a cgroup with processes hands on no controllers
//! └── runs-5f0c91e2        one server's runs, locked for as long as it lives
//!     └── 3                a session
//!         └── 12           a run: its processes, whatever they do to groups, sessions and parents
//! ```
//!
//! Killing a directory kills everything below it, so a run, a session and a server are each ended by one write. What a
//! server leaves behind is removed by its guard, else by the next server that divides the same cgroup: it knows dead
//! ones by their lock, which no process id can be mistaken for.

mod group;
mod survey;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::protocol::limits::ProcessLimit;

pub use self::group::Group;
pub use self::survey::{Missing, Survey, survey};

/// Where the server itself goes.
const LEAF: &str = "exec-server";
/// What the directories of runs begin with.
const RUNS: &str = "runs-";
/// How long removing waits for killed processes to be gone.
const GONE: Duration = Duration::from_secs(5);
/// Runs with something left in them that are looked at again when another has ended.
const LOOKED_AT: usize = 2;

/// Which cgroup is divided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Home {
    /// The one that the server is in, if it was delegated to it.
    Own,
    /// This one; whoever names it vouches for it.
    At(PathBuf),
}

/// A part of the kernel that counts and limits something for a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    /// Memory.
    Memory,
    /// Processes and threads.
    Pids,
}

impl Controller {
    /// All that are used.
    pub const ALL: [Self; 2] = [Self::Memory, Self::Pids];

    /// The kernel's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
        }
    }
}

/// What it takes to hold a whole tree to a limit.
///
/// Resource limits are no way out: those of memory and processor time count each process alone, that of processes counts
/// all of the user's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nothing of the machine.
    Nothing,
    /// A cgroup, which counts processor time by itself.
    Group,
    /// A cgroup with this controller.
    Controller(Controller),
}

impl Need {
    /// What a limit takes.
    #[must_use]
    pub const fn of(limit: ProcessLimit) -> Self {
        match limit {
            ProcessLimit::WallMs | ProcessLimit::OutputBytes | ProcessLimit::OpenFiles => Self::Nothing,
            ProcessLimit::CpuMs => Self::Group,
            ProcessLimit::MemoryBytes => Self::Controller(Controller::Memory),
            ProcessLimit::Processes => Self::Controller(Controller::Pids),
        }
    }
}

/// One server's cgroups.
#[derive(Debug)]
pub struct Hierarchy {
    runs: Group,
    missing: Missing,
    /// Sessions so far.
    sessions: AtomicU64,
    /// Held until this process ends.
    _lock: File,
}

impl Hierarchy {
    /// Takes a cgroup for this server: moves the server out of the way, removes what dead servers left, and hands on
    /// the controllers. Blocks for some milliseconds; to be called before there are children.
    ///
    /// # Errors
    /// A sentence for the operator. Nothing but the server's own place has changed then.
    pub fn set_up(home: &Home) -> Result<Arc<Self>, String> {
        let Survey { base, missing } = survey(home)?;
        let in_base = |what: &str, error: &io::Error| format!("{}: {what}: {error}", base.display());
        let turn = lock(&base, true).map_err(|error| in_base("cannot be locked", &error))?;
        let group = Group::at(base.clone());
        sweep(&base);
        if survey::is_own(&base) {
            step_aside(&group).map_err(|error| in_base("the server cannot move into a leaf", &error))?;
        }
        let name = format!("{RUNS}{:08x}", uuid::Uuid::new_v4().as_fields().0);
        let runs = group.create(&name).map_err(|error| in_base("no cgroup can be made", &error))?;
        let taken = Self::take(&group, runs.clone(), &missing);
        drop(turn);
        taken.inspect_err(|_| {
            let _ = runs.remove();
        })
    }

    fn take(base: &Group, runs: Group, missing: &Missing) -> Result<Arc<Self>, String> {
        survey::check_killable(runs.dir())?;
        let lock = lock(runs.dir(), false).map_err(|error| format!("{}: {error}", runs.dir().display()))?;
        let missing = Missing::of(|controller| match missing.why_not(controller) {
            Some(reason) => Some(reason.to_owned()),
            None => hand_on(controller, base, &runs).err(),
        });
        Ok(Arc::new(Self { runs, missing, sessions: AtomicU64::new(0), _lock: lock }))
    }

    /// The cgroup of all runs.
    #[must_use]
    pub fn runs(&self) -> &Group {
        &self.runs
    }

    /// Why a controller cannot be had; `None` if it can.
    #[must_use]
    pub fn why_not(&self, controller: Controller) -> Option<&str> {
        self.missing.why_not(controller)
    }

    /// The cgroups of the next session. They are made when they are needed.
    #[must_use]
    pub fn session(self: &Arc<Self>) -> Arc<SessionGroups> {
        let number = self.sessions.fetch_add(1, Ordering::Relaxed);
        Arc::new(SessionGroups {
            hierarchy: Arc::clone(self),
            number,
            made: OnceLock::new(),
            runs: AtomicU64::new(0),
            left: Mutex::default(),
        })
    }

    /// Kills what is left of all runs, and removes their cgroups. Blocks.
    pub fn end(&self) {
        kill_and_remove(&self.runs);
    }
}

/// The cgroups of one session.
#[derive(Debug)]
pub struct SessionGroups {
    hierarchy: Arc<Hierarchy>,
    number: u64,
    made: OnceLock<Group>,
    runs: AtomicU64,
    /// Of runs that are over but in which something lives.
    left: Mutex<Vec<Group>>,
}

impl SessionGroups {
    /// The cgroup of all its runs, if there ever was one.
    #[must_use]
    pub fn group(&self) -> Option<&Group> {
        self.made.get()
    }

    /// Makes the cgroup of a run. For blocking threads.
    ///
    /// # Errors
    /// The system's.
    pub fn create_run(&self) -> io::Result<Group> {
        let session = match self.made.get() {
            Some(session) => session,
            None => self.make()?,
        };
        session.create(&self.runs.fetch_add(1, Ordering::Relaxed).to_string())
    }

    fn make(&self) -> io::Result<&Group> {
        let name = self.number.to_string();
        let runs = &self.hierarchy.runs;
        let session = match runs.create(&name) {
            // Another start of the session was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Group::at(runs.dir().join(name)),
            made => made?,
        };
        for controller in Controller::ALL {
            if self.hierarchy.why_not(controller).is_none() {
                session.set("cgroup.subtree_control", &format!("+{}", controller.name()))?;
            }
        }
        Ok(self.made.get_or_init(|| session))
    }

    /// Removes the cgroup of a run that is over, later if something still lives in it. For blocking threads.
    pub fn retire(&self, run: Group) {
        let looked_at = {
            let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
            let count = left.len().min(LOOKED_AT);
            left.drain(..count).collect::<Vec<_>>()
        };
        let left: Vec<Group> = looked_at.into_iter().chain([run]).filter(|run| !run.remove()).collect();
        self.left.lock().unwrap_or_else(PoisonError::into_inner).extend(left);
    }

    /// Kills what is left of its runs, and removes their cgroups. Blocks.
    pub fn end(&self) {
        if let Some(session) = self.made.get() {
            kill_and_remove(session);
        }
    }
}

/// Kills what is in a directory of runs, and removes it: what the guard does. A path that is no such directory is left
/// alone.
pub fn end_runs(runs: &Path) {
    let is_runs = runs.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(RUNS));
    if is_runs && runs.join("cgroup.kill").exists() {
        kill_and_remove(&Group::at(runs.to_owned()));
    }
}

fn kill_and_remove(group: &Group) {
    let deadline = Instant::now() + GONE;
    // Where it cannot be killed, it may be empty all the same.
    let _ = group.kill();
    while !group.remove() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Removes what servers have left behind that are dead.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(RUNS))
            && let Ok(lock) = lock(&entry.path(), false)
        {
            end_runs(&entry.path());
            drop(lock);
        }
    }
}

/// Takes the lock of a directory, for as long as the file is open.
fn lock(dir: &Path, wait: bool) -> io::Result<File> {
    let dir = File::open(dir)?;
    flock(&dir, if wait { FlockOperation::LockExclusive } else { FlockOperation::NonBlockingLockExclusive })?;
    Ok(dir)
}

/// Moves this process, and those that it came of, from a cgroup into a leaf of it.
fn step_aside(base: &Group) -> io::Result<()> {
    let leaf = match base.create(LEAF) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Group::at(base.dir().join(LEAF)),
        made => made?,
    };
    leaf.set("cgroup.procs", "0")?;
    // A shell or an init that waits for the server would keep the controllers from being handed on.
    let mut ancestor = rustix::process::getppid();
    let here = own_pids(base);
    while let Some(pid) = ancestor.map(|pid| pid.as_raw_nonzero().get()).filter(|pid| here.contains(pid)) {
        leaf.set("cgroup.procs", &pid.to_string())?;
        ancestor = super::tree::stat(pid).and_then(|seen| rustix::process::Pid::from_raw(seen.parent));
    }
    Ok(())
}

fn own_pids(base: &Group) -> Vec<i32> {
    let text = fs::read_to_string(base.dir().join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Lets runs have a controller.
fn hand_on(controller: Controller, base: &Group, runs: &Group) -> Result<(), String> {
    let (name, place) = (controller.name(), base.dir().display());
    for group in [base, runs] {
        group.set("cgroup.subtree_control", &format!("+{name}")).map_err(|error| {
            match own_pids(base).as_slice() {
                [] => format!("{place} does not hand on its {name} controller ({error})"),
                [pid, ..] => {
                    format!("process {pid} is in {place}, so that it cannot hand on its {name} controller")
                }
            }
        })?;
    }
    Ok(())
}
