//! One child: clone, arrange, exec.
//!
//! The child shares this process's memory until it executes (`CLONE_VM | CLONE_VFORK`, what `posix_spawn` does),
//! so a start costs the same however large the server is. Until then it runs `child` alone: system calls on data
//! that the parent prepared, no allocation, no lock, no panic. Every signal is blocked meanwhile, so no handler of
//! the parent can run in shared memory. A failure is written into that memory, so no pipe is needed to report it.

#![expect(unsafe_code, reason = "clone and what must happen between clone and exec")]

use std::ffi::{CString, c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use super::cgroup::Group;
use super::clone;
use super::inner::Inner;
use super::isolation::{Isolation, Prepared};
use super::limits::{become_a_victim, limit_open_files, set_mark};
use super::mark::RunMark;
use super::reaper;
use super::tree::{Scope, signal_group};

/// A program, ready to execute.
#[derive(Debug)]
pub struct Launch {
    /// Paths to try in order; those that are missing or not executable are passed over.
    pub candidates: Vec<CString>,
    /// Arguments, with what the program sees as its own name first.
    pub argv: Vec<CString>,
    /// The whole environment, as `NAME=value`.
    pub env: Vec<CString>,
    /// Working directory.
    pub cwd: CString,
    /// Standard streams.
    pub stdio: Stdio,
    /// What it inherits besides; nothing else stays open in it.
    pub inherited: Vec<Inherited>,
    /// What sets it apart.
    pub isolation: Isolation,
    /// What its tree is known by, and what it may use.
    pub tree: Tree,
}

/// What a child and everything that comes of it have in common.
#[derive(Debug, Clone)]
pub struct Tree {
    /// Its mark.
    pub mark: RunMark,
    /// The cgroup that it begins in.
    pub group: Option<Group>,
    /// How many files each of its processes may have open.
    pub open_files: Option<u64>,
    /// How much sooner than others it is killed when memory runs out, 0 to 1000; never less than this process is.
    pub oom_score_adj: u16,
}

impl Tree {
    /// A child that belongs to no run and is treated as this process is.
    #[must_use]
    pub fn none() -> Self {
        Self { mark: RunMark::none(), group: None, open_files: None, oom_score_adj: 0 }
    }

    /// Everything that came of a child with this process id.
    #[must_use]
    pub fn scope(&self, leader: i32) -> Scope {
        let group = self.group.clone();
        Scope { group, marks: self.mark.range(), leaders: vec![leader], ..Scope::default() }
    }
}

/// A descriptor that a child inherits besides its standard streams.
#[derive(Debug, Clone)]
pub struct Inherited {
    /// What it refers to.
    pub fd: Arc<OwnedFd>,
    /// Its number in the child, 3 to [`HIGHEST_INHERITED`], different from the others'.
    pub number: RawFd,
}

/// The highest number that an inherited descriptor may have in the child.
pub const HIGHEST_INHERITED: RawFd = 255;

/// Standard streams of a child.
#[derive(Debug)]
pub enum Stdio {
    /// One descriptor each.
    Separate {
        /// Standard input.
        stdin: OwnedFd,
        /// Standard output.
        stdout: OwnedFd,
        /// Standard error.
        stderr: OwnedFd,
    },
    /// The program's end of a terminal, which becomes its controlling terminal.
    Terminal(OwnedFd),
}

/// A running child: leader of a session and group of its own.
#[derive(Debug)]
pub struct Child {
    pid: i32,
    pidfd: OwnedFd,
    /// The program, where the child itself is the init of its namespaces.
    inner: Option<Inner>,
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// Where a start failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpawnStage {
    /// No process could be made.
    Clone,
    /// It could not be put into its cgroup.
    Group,
    /// It could not be set apart.
    Isolation,
    /// The working directory could not be entered.
    WorkingDirectory,
    /// The terminal could not become the controlling one.
    Terminal,
    /// The descriptors could not be arranged.
    Descriptors,
    /// The program could not be executed.
    Exec,
}

/// A start that failed; nothing runs.
#[derive(Debug)]
pub struct SpawnError {
    /// Where.
    pub stage: SpawnStage,
    /// Why.
    pub source: io::Error,
}

impl SpawnError {
    fn os(stage: SpawnStage, errno: c_int) -> Self {
        Self { stage, source: io::Error::from_raw_os_error(errno) }
    }
}

/// What the child reads and, on failure, writes. It lives in the parent's frame until the child has executed.
struct Job {
    candidates: *const *const libc::c_char,
    argv: *const *const libc::c_char,
    env: *const *const libc::c_char,
    cwd: *const libc::c_char,
    stdin: RawFd,
    stdout: RawFd,
    stderr: RawFd,
    inherited: *const Move,
    inherited_count: usize,
    isolation: *const Prepared,
    terminal: bool,
    mark: Option<u64>,
    oom_score_adj: *const libc::c_char,
    /// Where to come into the cgroup; -1 if it is in it already, or in none.
    entrance: RawFd,
    open_files: Option<u64>,
    failed_stage: SpawnStage,
    failed_errno: c_int,
}

/// A descriptor of the parent and the number that it gets in the child.
#[derive(Debug, Clone, Copy)]
struct Move {
    from: RawFd,
    to: RawFd,
}

/// Executes a program and returns when it has been executed.
///
/// Blocks the calling thread for the time that the kernel needs to find and load the program, usually well under a
/// millisecond; call it where blocking is allowed.
///
/// # Errors
/// [`SpawnError`] with the stage and the OS error. Nothing is left behind.
pub fn spawn(launch: Launch) -> Result<Child, SpawnError> {
    let no_descriptors = |source| SpawnError { stage: SpawnStage::Descriptors, source };
    let descriptors = Descriptors::above_standard(&launch.stdio).map_err(no_descriptors)?;
    let inherited = Moves::above_targets(&launch.inherited).map_err(no_descriptors)?;
    let candidates = pointers(&launch.candidates);
    let argv = pointers(&launch.argv);
    let env = pointers(&launch.env);
    let (stdin, stdout, stderr) = descriptors.numbers();
    let terminal = matches!(launch.stdio, Stdio::Terminal(_));
    let isolation = Prepared::new(launch.isolation);
    let oom_score_adj = oom_score_adj(launch.tree.oom_score_adj);
    let mut job = Job {
        candidates: candidates.as_ptr(),
        argv: argv.as_ptr(),
        env: env.as_ptr(),
        cwd: launch.cwd.as_ptr(),
        stdin,
        stdout,
        stderr,
        inherited: inherited.moves.as_ptr(),
        inherited_count: inherited.moves.len(),
        isolation: &raw const isolation,
        terminal,
        mark: launch.tree.mark.limit(),
        oom_score_adj: oom_score_adj.as_ref().map_or(ptr::null(), |text| text.as_ptr()),
        entrance: -1,
        open_files: launch.tree.open_files.map(within_hard_limit),
        failed_stage: SpawnStage::Exec,
        failed_errno: 0,
    };
    let spawning = reaper::spawning();
    let (pid, pidfd) = clone_into(&mut job, isolation.flags(), launch.tree.group.as_ref())?;
    let child = Child { pid, pidfd, inner: None };
    if job.failed_errno != 0 {
        child.reap_blocking();
        return Err(SpawnError::os(job.failed_stage, job.failed_errno));
    }
    spawning.register(pid);
    Ok(child)
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

/// The child's streams, none of them at a number that the child is going to replace.
struct Descriptors<'a> {
    given: [BorrowedFd<'a>; 3],
    moved: [Option<OwnedFd>; 3],
}

impl<'a> Descriptors<'a> {
    fn above_standard(stdio: &'a Stdio) -> io::Result<Self> {
        let given = match stdio {
            Stdio::Separate { stdin, stdout, stderr } => [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
            Stdio::Terminal(terminal) => [terminal.as_fd(); 3],
        };
        let mut moved = [None, None, None];
        for (fd, moved) in given.iter().zip(&mut moved) {
            if fd.as_raw_fd() <= 2 {
                *moved = Some(fcntl_dupfd_cloexec(fd, 3)?);
            }
        }
        Ok(Self { given, moved })
    }

    fn numbers(&self) -> (RawFd, RawFd, RawFd) {
        let number = |index: usize| match (&self.moved[index], self.given[index]) {
            (Some(fd), _) => fd.as_raw_fd(),
            (None, fd) => fd.as_raw_fd(),
        };
        (number(0), number(1), number(2))
    }
}

/// Inherited descriptors in the order of their numbers in the child. What is moved lies above all of these numbers, so
/// that no move overwrites the source of another.
struct Moves {
    moves: Vec<Move>,
    _sources: Vec<OwnedFd>,
}

impl Moves {
    fn above_targets(inherited: &[Inherited]) -> io::Result<Self> {
        let mut inherited: Vec<&Inherited> = inherited.iter().collect();
        inherited.sort_by_key(|one| one.number);
        let distinct = inherited.windows(2).all(|pair| pair[0].number != pair[1].number);
        if !distinct || inherited.iter().any(|one| !(3..=HIGHEST_INHERITED).contains(&one.number)) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let above = inherited.last().map_or(3, |last| last.number + 1);
        let duplicate = |one: &&Inherited| fcntl_dupfd_cloexec(&one.fd, above);
        let sources = inherited.iter().map(duplicate).collect::<Result<Vec<_>, _>>()?;
        let moves = sources.iter().zip(&inherited);
        let moves = moves.map(|(from, one)| Move { from: from.as_raw_fd(), to: one.number }).collect();
        Ok(Self { moves, _sources: sources })
    }
}

/// Runs [`child`] in a new process, in the cgroup if there is one, and waits until it has executed or ended.
fn clone_into(job: &mut Job, namespaces: c_int, group: Option<&Group>) -> Result<(i32, OwnedFd), SpawnError> {
    let no_group = |source| SpawnError { stage: SpawnStage::Group, source };
    let directory = group.map(Group::open).transpose().map_err(no_group)?;
    let _blocked = BlockedSignals::new();
    match clone_once(job, namespaces, directory.as_ref().map(AsFd::as_fd)) {
        // Filters of system calls answer so for `clone3`, of which they cannot see the flags.
        Err(libc::ENOSYS | libc::EPERM) if group.is_some() => {
            let entrance = group.map(Group::open_entrance).transpose().map_err(no_group)?;
            job.entrance = entrance.as_ref().map_or(-1, AsRawFd::as_raw_fd);
            clone_once(job, namespaces, None)
        }
        made => made,
    }
    .map_err(|errno| SpawnError::os(stage_of_clone(errno, namespaces, group.is_some()), errno))
}

/// What a clone was refused for.
fn stage_of_clone(errno: c_int, namespaces: c_int, in_group: bool) -> SpawnStage {
    match errno {
        // Threaded, not to be reached from here, handing on controllers, or gone.
        libc::EOPNOTSUPP | libc::EACCES | libc::ENOENT | libc::EBUSY | libc::ENODEV if in_group => {
            SpawnStage::Group
        }
        _ if namespaces == 0 => SpawnStage::Clone,
        _ => SpawnStage::Isolation,
    }
}

fn clone_once(
    job: &mut Job,
    namespaces: c_int,
    cgroup: Option<BorrowedFd<'_>>,
) -> Result<(i32, OwnedFd), c_int> {
    // SAFETY: `child` keeps to system calls and ends by exec or exit; `job` and what it points to outlive the call, which
    // returns only when the child has left this memory.
    unsafe { clone::child(child, ptr::from_mut(job).cast::<c_void>(), namespaces, cgroup) }
}

/// What the child writes for the kernel; nothing if it is to be as this process is.
fn oom_score_adj(wanted: u16) -> Option<CString> {
    let own = std::fs::read_to_string("/proc/self/oom_score_adj").ok()?.trim().parse::<i32>().ok()?;
    (own < i32::from(wanted)).then(|| CString::new(wanted.to_string()).ok())?
}

/// A process may lower its hard limit but not raise it; a lower one keeps to the number as well.
fn within_hard_limit(open_files: u64) -> u64 {
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    hard.map_or(open_files, |hard| hard.min(open_files))
}

/// All signals blocked on this thread, the C library's own included; restored on drop.
struct BlockedSignals(u64);

const KERNEL_SIGSET_BYTES: usize = 8;

impl BlockedSignals {
    fn new() -> Self {
        let (all, mut before) = (u64::MAX, 0_u64);
        // SAFETY: both pointers are to words of the size given.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigprocmask,
                libc::SIG_SETMASK,
                &raw const all,
                &raw mut before,
                KERNEL_SIGSET_BYTES,
            );
        }
        Self(before)
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the pointer is to a word of the size given; null means that the old mask is not wanted.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigprocmask,
                libc::SIG_SETMASK,
                &raw const self.0,
                ptr::null_mut::<u64>(),
                KERNEL_SIGSET_BYTES,
            );
        }
    }
}

/// The child's whole life before exec. System calls only.
extern "C" fn child(job: *mut c_void) -> c_int {
    // SAFETY: the parent passed its `Job` and is suspended, so this is the only user of it.
    let job = unsafe { &mut *job.cast::<Job>() };
    // SAFETY: every pointer in `job` is to nul-terminated strings or null-terminated lists that the parent keeps.
    unsafe {
        job.failed_stage = SpawnStage::Exec;
        if job.entrance >= 0 && libc::write(job.entrance, c"0".as_ptr().cast(), 1) != 1 {
            return fail(job, SpawnStage::Group);
        }
        default_signals();
        libc::setsid();
        if !job.oom_score_adj.is_null() {
            become_a_victim(job.oom_score_adj);
        }
        if let Some(mark) = job.mark {
            set_mark(mark);
        }
        if let Err(errno) = (*job.isolation).take_ids() {
            return fail_with(job, SpawnStage::Isolation, errno);
        }
        if libc::chdir(job.cwd) != 0 {
            return fail(job, SpawnStage::WorkingDirectory);
        }
        if let Err(errno) = (*job.isolation).restrict() {
            return fail_with(job, SpawnStage::Isolation, errno);
        }
        for (from, to) in [(job.stdin, 0), (job.stdout, 1), (job.stderr, 2)] {
            if libc::dup2(from, to) != to {
                return fail(job, SpawnStage::Descriptors);
            }
        }
        if job.terminal && libc::ioctl(0, libc::TIOCSCTTY, 0) != 0 {
            return fail(job, SpawnStage::Terminal);
        }
        if !keep_inherited(job) {
            return fail(job, SpawnStage::Descriptors);
        }
        if job.open_files.is_some_and(|count| !limit_open_files(count)) {
            return fail(job, SpawnStage::Descriptors);
        }
        let none = 0_u64;
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const none,
            ptr::null_mut::<u64>(),
            KERNEL_SIGSET_BYTES,
        );
        let errno = execute(job.candidates, job.argv, job.env);
        job.failed_errno = errno;
        libc::_exit(127)
    }
}

/// Puts the inherited descriptors in their places and closes everything else above the standard streams.
unsafe fn keep_inherited(job: &Job) -> bool {
    let mut unkept: u32 = 3;
    let mut index = 0;
    while index < job.inherited_count {
        // SAFETY: below the count that the parent gave; the copy is of plain numbers.
        let Move { from, to } = unsafe { *job.inherited.add(index) };
        let number = to.cast_unsigned();
        // SAFETY: system calls on numbers; a range between two neighbours may be empty, which is skipped.
        let kept =
            unsafe { (number == unkept || close_range(unkept, number - 1)) && libc::dup2(from, to) == to };
        if !kept {
            return false;
        }
        unkept = number + 1;
        index += 1;
    }
    // SAFETY: as above.
    unsafe { close_range(unkept, u32::MAX) }
}

unsafe fn close_range(first: u32, last: u32) -> bool {
    // SAFETY: a system call on numbers; this process owns none of what it closes.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0_u32) == 0 }
}

/// Tries the candidates as `execvp` does: missing ones are passed over, a forbidden one is remembered. Returns only
/// with the error.
///
/// # Safety
/// The lists end with null, the first is not empty, and their strings end with nul. It makes system calls only.
pub(crate) unsafe fn execute(
    candidates: *const *const libc::c_char,
    argv: *const *const libc::c_char,
    env: *const *const libc::c_char,
) -> c_int {
    let mut outcome = libc::ENOENT;
    let mut candidate = candidates;
    // SAFETY: the caller's promise.
    unsafe {
        let on_a_search_path = !(*candidates.add(1)).is_null();
        while !(*candidate).is_null() {
            libc::execve(*candidate, argv, env);
            match *libc::__errno_location() {
                libc::EACCES => outcome = libc::EACCES,
                libc::ENOENT => {}
                // A component of the only candidate is a file; on a search path it is passed over.
                libc::ENOTDIR if on_a_search_path => {}
                other => return other,
            }
            candidate = candidate.add(1);
        }
    }
    outcome
}

unsafe fn fail(job: &mut Job, stage: SpawnStage) -> c_int {
    // SAFETY: the location is this thread's.
    unsafe { fail_with(job, stage, *libc::__errno_location()) }
}

unsafe fn fail_with(job: &mut Job, stage: SpawnStage, errno: c_int) -> c_int {
    job.failed_stage = stage;
    job.failed_errno = errno;
    // SAFETY: the process ends here; its exit handlers are the parent's.
    unsafe { libc::_exit(127) }
}

/// Handlers vanish at exec by themselves; ignored signals would stay ignored in every program we start.
unsafe fn default_signals() {
    #[repr(C)]
    struct KernelSigaction {
        handler: usize,
        flags: libc::c_ulong,
        restorer: usize,
        mask: u64,
    }
    let action = KernelSigaction { handler: libc::SIG_DFL, flags: 0, restorer: 0, mask: 0 };
    let mut signal: c_int = 1;
    while signal <= 64 {
        // SAFETY: the structure is the kernel's; SIGKILL and SIGSTOP are refused without harm.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                &raw const action,
                ptr::null_mut::<KernelSigaction>(),
                KERNEL_SIGSET_BYTES,
            );
        }
        signal += 1;
    }
}

impl Child {
    /// Takes the child as the init of its namespaces, and this as the program that it runs there.
    #[must_use]
    pub fn running(mut self, inner: Inner) -> Self {
        self.inner = Some(inner);
        self
    }

    /// Process id, group id and session id of the child.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Becomes readable when the child has ended.
    #[must_use]
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Signals the program; true if it got it. For a child that is not reaped yet.
    #[must_use]
    pub fn signal(&self, signal: Signal) -> bool {
        let program = self.inner.as_ref().map_or(self.pidfd(), Inner::program);
        pidfd_send_signal(program, signal).is_ok()
    }

    /// Signals the program's own process group; true if somebody got it. For a child that is not reaped yet.
    #[must_use]
    pub fn signal_group(&self, signal: Signal) -> bool {
        match &self.inner {
            None => signal_group(self.pid, signal),
            Some(inner) => inner.signal_group(signal),
        }
    }

    /// Collects the exit status if the child has ended; its process id is free afterwards.
    #[must_use]
    pub fn try_reap(&self) -> Option<ExitStatus> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::PidFd(self.pidfd.as_fd()), options).ok().flatten()?;
        reaper::reaped(self.pid);
        if let Some(status) = self.inner.as_ref().and_then(Inner::status) {
            return Some(status);
        }
        Some(match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => ExitStatus::Code(code),
            (None, Some(signal)) => ExitStatus::Signal(signal),
            (None, None) => ExitStatus::Code(-1),
        })
    }

    /// Kills the child's group and collects its status. Blocks for the moment that this takes.
    pub fn kill_and_reap(&self) {
        signal_group(self.pid, Signal::KILL);
        self.reap_blocking();
        reaper::reaped(self.pid);
    }

    /// Waits for the child's end; true if it ended by itself with 0.
    #[must_use]
    pub fn wait(&self) -> bool {
        let ended = rustix::event::PollFd::new(&self.pidfd, rustix::event::PollFlags::IN);
        let mut ended = [ended];
        while rustix::event::poll(&mut ended, None).is_err() {}
        self.try_reap() == Some(ExitStatus::Code(0))
    }

    fn reap_blocking(&self) {
        while let Err(rustix::io::Errno::INTR) =
            waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED)
        {}
    }
}

impl AsRawFd for Child {
    fn as_raw_fd(&self) -> RawFd {
        self.pidfd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests;
