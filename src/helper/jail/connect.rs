//! Decides what a program without network connects to: what is inside its sandbox, and nothing else.
//!
//! The kernel asks here instead of connecting (`SECCOMP_RET_USER_NOTIF`). The address is copied, so that changing it
//! meanwhile changes nothing, and the connection is made here, on a duplicate of the socket. A path is opened once:
//! what is found there must be bound by a socket of the sandbox's own network namespace, and is then reached through
//! the open descriptor. An inode is bound at most once, and cannot be given away while it is open, so what is checked
//! is what is connected to.

#![expect(unsafe_code, reason = "the kernel's interface for supervisors has no safe calls")]

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat2};
use rustix::io::{Errno, Result};
use rustix::net::{AddressFamily, SocketType, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::diagnosis;

/// `AF_UNIX`, as addresses have it.
const LOCAL: libc::sa_family_t = 1;
/// Connections being made at once; each may wait for a listener that is slow to accept.
const AT_ONCE: usize = 64;

/// Answers the questions that come from one filter.
pub(super) struct Supervisor {
    listener: Arc<OwnedFd>,
    busy: Arc<AtomicUsize>,
}

impl Supervisor {
    pub(super) fn new(listener: OwnedFd) -> Self {
        Self { listener: Arc::new(listener), busy: Arc::default() }
    }

    /// Readable when a program asks.
    pub(super) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Takes one question and has it answered; does not wait for the connection.
    pub(super) fn take(&self) {
        let Ok(question) = Question::receive(&self.listener) else { return };
        if self.busy.fetch_add(1, Ordering::Relaxed) >= AT_ONCE {
            self.busy.fetch_sub(1, Ordering::Relaxed);
            return question.answer(&self.listener, Err(Errno::AGAIN));
        }
        let (listener, busy, unable) = (Arc::clone(&self.listener), Arc::clone(&self.busy), question);
        let decide = move || {
            let outcome = question.connect(&listener);
            question.answer(&listener, outcome);
            busy.fetch_sub(1, Ordering::Relaxed);
        };
        if std::thread::Builder::new().spawn(decide).is_err() {
            self.busy.fetch_sub(1, Ordering::Relaxed);
            unable.answer(&self.listener, Err(Errno::AGAIN));
        }
    }
}

/// What the kernel takes for an `int` of a register.
fn int(register: u64) -> i32 {
    let [a, b, c, d, ..] = register.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

/// A `connect` that waits for an answer.
#[derive(Clone, Copy)]
struct Question {
    id: u64,
    thread: Pid,
    socket: i32,
    address: u64,
    length: usize,
}

impl Question {
    fn receive(listener: &OwnedFd) -> Result<Self> {
        // SAFETY: the kernel wants it zeroed, and fills it.
        let mut seen: libc::seccomp_notif = unsafe { MaybeUninit::zeroed().assume_init() };
        control(listener, libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut seen)?;
        let thread = Pid::from_raw(seen.pid.cast_signed()).ok_or(Errno::SRCH)?;
        let [socket, address, length, ..] = seen.data.args;
        let socket = int(socket);
        // A negative length is as wrong as one that is too large.
        let length = usize::try_from(int(length)).unwrap_or(usize::MAX);
        Ok(Self { id: seen.id, thread, socket, address, length })
    }

    fn answer(&self, listener: &OwnedFd, outcome: Result<()>) {
        let error = outcome.err().map_or(0, |errno| -errno.raw_os_error());
        let mut answer = libc::seccomp_notif_resp { id: self.id, val: 0, error, flags: 0 };
        // Whoever asked may have been killed.
        let _ = control(listener, libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer);
    }

    fn connect(&self, listener: &OwnedFd) -> Result<()> {
        if self.length > size_of::<libc::sockaddr_storage>() {
            return Err(Errno::INVAL);
        }
        let process = self.process()?;
        let address = self.copy_address()?;
        let base = Base::of(self.thread, &address)?;
        // From here on what was read is known to be of the process that asks, and not of one with its number.
        self.still_asked(listener)?;
        let socket = pidfd_getfd(process, self.socket, PidfdGetfdFlags::empty())?;
        if sockopt::socket_domain(&socket)? != AddressFamily::UNIX
            || ![SocketType::STREAM, SocketType::SEQPACKET].contains(&sockopt::socket_type(&socket)?)
        {
            return Err(Errno::PERM);
        }
        match base {
            None => connect(&socket, &address),
            Some(base) => {
                let target = base.find(path(&address))?;
                check(&fstat(&target)?)?;
                connect(&socket, &through(&target))
            }
        }
    }

    fn process(&self) -> Result<OwnedFd> {
        const OF_A_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL.cast_unsigned());
        match pidfd_open(self.thread, OF_A_THREAD) {
            // Before 6.9 there are only those of processes.
            Err(Errno::INVAL) => pidfd_open(self.leader()?, PidfdFlags::empty()),
            other => other,
        }
    }

    fn leader(&self) -> Result<Pid> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.thread.as_raw_pid()));
        let status = status.map_err(|_| Errno::SRCH)?;
        let leader = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
        leader.and_then(|leader| Pid::from_raw(leader.trim().parse().ok()?)).ok_or(Errno::SRCH)
    }

    fn copy_address(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0_u8; self.length];
        let here = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let there = libc::iovec { iov_base: self.address as *mut libc::c_void, iov_len: bytes.len() };
        // SAFETY: `here` is writable for its length; `there` is of the other process, and checked by the kernel.
        let count = unsafe {
            libc::process_vm_readv(self.thread.as_raw_pid(), &raw const here, 1, &raw const there, 1, 0)
        };
        if usize::try_from(count) == Ok(bytes.len()) { Ok(bytes) } else { Err(Errno::FAULT) }
    }

    fn still_asked(&self, listener: &OwnedFd) -> Result<()> {
        let mut id = self.id;
        control(listener, libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw mut id)
    }
}

/// Where a path begins, as the process that asks sees it.
enum Base {
    Root(OwnedFd),
    Current(OwnedFd),
}

impl Base {
    /// None for an address that is no path; the kernel refuses what is no address at all.
    fn of(thread: Pid, address: &[u8]) -> Result<Option<Self>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = |name| open(format!("/proc/{}/{name}", thread.as_raw_pid()), flags, Mode::empty());
        let is_local = address.get(..2).is_some_and(|family| family == LOCAL.to_ne_bytes());
        Ok(match address.get(2) {
            Some(b'/') if is_local => Some(Self::Root(directory("root")?)),
            Some(first) if is_local && *first != 0 => Some(Self::Current(directory("cwd")?)),
            _ => None,
        })
    }

    fn find(&self, path: &Path) -> Result<OwnedFd> {
        let (from, resolve) = match self {
            Self::Root(root) => (root, ResolveFlags::IN_ROOT),
            Self::Current(cwd) => (cwd, ResolveFlags::empty()),
        };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        openat2(from, path, flags, Mode::empty(), resolve | ResolveFlags::NO_MAGICLINKS)
    }
}

fn path(address: &[u8]) -> &Path {
    let path = address.get(2..).unwrap_or_default();
    let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
    Path::new(std::ffi::OsStr::from_bytes(&path[..end]))
}

/// Refuses what is not bound by a socket of this network namespace.
fn check(found: &Stat) -> Result<()> {
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
        return Err(Errno::CONNREFUSED);
    }
    if diagnosis::is_bound_here(found)? { Ok(()) } else { Err(Errno::PERM) }
}

/// The address of an open file.
fn through(target: &OwnedFd) -> Vec<u8> {
    let mut address = LOCAL.to_ne_bytes().to_vec();
    address.extend(format!("/proc/self/fd/{}\0", target.as_raw_fd()).into_bytes());
    address
}

fn connect(socket: &OwnedFd, address: &[u8]) -> Result<()> {
    let length = libc::socklen_t::try_from(address.len()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the address is readable for its length.
    checked(unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), length) })
}

fn control<T>(listener: &OwnedFd, request: libc::c_ulong, argument: *mut T) -> Result<()> {
    // SAFETY: the argument is the structure that the request is for.
    checked(unsafe { libc::ioctl(listener.as_raw_fd(), request as _, argument) })
}

fn checked(result: libc::c_int) -> Result<()> {
    if result >= 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}
