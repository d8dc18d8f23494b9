//! What sets a child apart from this process. Prepared by the parent, applied by the child between clone and exec.

#![expect(unsafe_code, reason = "system calls between clone and exec")]

use std::ffi::{CStr, c_int};
use std::os::fd::{AsRawFd, OwnedFd};

/// How a child is set apart.
#[derive(Debug, Default)]
pub enum Isolation {
    /// Not at all.
    #[default]
    None,
    /// By rules that it cannot lift.
    Restricted(Restrictions),
    /// By namespaces of its own; it is the init of its processes, with every capability over them, and must give
    /// these up itself.
    Namespaces(Namespaces),
}

/// Rules for a child and everything that comes of it; it never gains privileges either.
#[derive(Debug, Default)]
pub struct Restrictions {
    /// A Landlock ruleset.
    pub ruleset: Option<OwnedFd>,
    /// A seccomp filter.
    pub filter: Option<Vec<libc::sock_filter>>,
    /// Take every capability from it.
    pub no_capabilities: bool,
}

/// Mounts, processes and IPC objects are always its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespaces {
    /// A user namespace, in which the ids stay what they are. Without it, this process must have the capabilities.
    pub user: bool,
    /// A network without connection, which it must set up itself.
    pub network: bool,
}

/// Capabilities that must outlive the exec of one that is not root: mounts, interfaces, and giving the rest up.
const KEPT: [u32; 4] = [CAP_SETPCAP, CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_SYS_ADMIN];
const CAP_SETPCAP: u32 = 8;
const CAP_NET_BIND_SERVICE: u32 = 10;
const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;

/// An [`Isolation`], ready for the child.
pub(super) struct Prepared {
    flags: c_int,
    ids: Option<[String; 2]>,
    ruleset: Option<OwnedFd>,
    filter: Option<Vec<libc::sock_filter>>,
    restricted: bool,
    no_capabilities: bool,
}

impl Prepared {
    pub(super) fn new(isolation: Isolation) -> Self {
        let nothing = Self {
            flags: 0,
            ids: None,
            ruleset: None,
            filter: None,
            restricted: false,
            no_capabilities: false,
        };
        match isolation {
            Isolation::None => nothing,
            Isolation::Restricted(Restrictions { ruleset, filter, no_capabilities }) => {
                Self { ruleset, filter, restricted: true, no_capabilities, ..nothing }
            }
            Isolation::Namespaces(namespaces) => {
                let ids = [rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()];
                let ids = namespaces.user.then(|| ids.map(|id| format!("{id} {id} 1\n")));
                Self { flags: flags(namespaces), ids, ..nothing }
            }
        }
    }

    /// For clone.
    pub(super) fn flags(&self) -> c_int {
        self.flags
    }

    /// Gives the child its ids in its own user namespace, and keeps through exec what it needs to go on.
    ///
    /// # Safety
    /// For a child that shares this memory while its parent is suspended: system calls only.
    pub(super) unsafe fn take_ids(&self) -> Result<(), c_int> {
        let Some([uid, gid]) = &self.ids else { return Ok(()) };
        // SAFETY: the strings outlive the calls.
        unsafe {
            write_file(c"/proc/self/setgroups", b"deny")?;
            write_file(c"/proc/self/uid_map", uid.as_bytes())?;
            write_file(c"/proc/self/gid_map", gid.as_bytes())?;
            keep_capabilities()
        }
    }

    /// Binds the child to its rules.
    ///
    /// # Safety
    /// As [`Self::take_ids`].
    pub(super) unsafe fn restrict(&self) -> Result<(), c_int> {
        if !self.restricted {
            return Ok(());
        }
        // SAFETY: descriptor and filter outlive the calls.
        unsafe {
            checked(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())?;
            if self.no_capabilities {
                drop_capabilities()?;
            }
            if let Some(ruleset) = &self.ruleset {
                checked(libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0))?;
            }
            if let Some(filter) = &self.filter {
                install(filter)?;
            }
        }
        Ok(())
    }
}

fn flags(namespaces: Namespaces) -> c_int {
    let optional = |wanted: bool, flag: c_int| if wanted { flag } else { 0 };
    libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | optional(namespaces.user, libc::CLONE_NEWUSER)
        | optional(namespaces.network, libc::CLONE_NEWNET)
}

unsafe fn install(filter: &[libc::sock_filter]) -> Result<(), c_int> {
    let Ok(len) = libc::c_ushort::try_from(filter.len()) else { return Err(libc::E2BIG) };
    let program = libc::sock_fprog { len, filter: filter.as_ptr().cast_mut() };
    // Not by `seccomp`, which the usual filter of a hardened service leaves out.
    // SAFETY: the kernel reads the program, and copies it.
    unsafe {
        let mode = libc::c_ulong::from(libc::SECCOMP_MODE_FILTER);
        checked(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program).into())?;
    }
    Ok(())
}

unsafe fn write_file(path: &CStr, bytes: &[u8]) -> Result<(), c_int> {
    // SAFETY: path and bytes outlive the calls.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        checked(fd.into())?;
        let written = checked(libc::write(fd, bytes.as_ptr().cast(), bytes.len()) as libc::c_long);
        libc::close(fd);
        written?;
    }
    Ok(())
}

/// Leaves no capability, and to root no way to one. Without the capability to empty the bounding set there is nothing
/// in it that this process could gain, since it gains nothing by exec any more.
unsafe fn drop_capabilities() -> Result<(), c_int> {
    const NO_ROOT_LOCKED: libc::c_ulong = 0b11;
    // SAFETY: the structures are the kernel's; everything else is by value.
    unsafe {
        libc::prctl(libc::PR_SET_SECUREBITS, NO_ROOT_LOCKED, 0, 0, 0);
        let mut capability = 0;
        while capability < 64 && libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) == 0 {
            capability += 1;
        }
        checked(libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0).into())?;
        let header = Header { version: VERSION_3, pid: 0 };
        checked(libc::syscall(libc::SYS_capset, &raw const header, [0_u32; 6].as_ptr()))?;
    }
    Ok(())
}

#[repr(C)]
struct Header {
    version: u32,
    pid: c_int,
}

const VERSION_3: u32 = 0x2008_0522;

/// Root keeps its capabilities through exec by itself; others keep what is ambient.
unsafe fn keep_capabilities() -> Result<(), c_int> {
    // Effective, permitted, inheritable: of the first 32 capabilities, then of the others.
    let mut sets = [0_u32; 6];
    let header = Header { version: VERSION_3, pid: 0 };
    // SAFETY: the structures are the kernel's.
    unsafe {
        checked(libc::syscall(libc::SYS_capget, &raw const header, sets.as_mut_ptr()))?;
        for capability in KEPT {
            sets[2] |= 1 << capability;
        }
        checked(libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()))?;
        for capability in KEPT {
            checked(libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, capability, 0, 0).into())?;
        }
    }
    Ok(())
}

fn checked(result: libc::c_long) -> Result<libc::c_long, c_int> {
    if result >= 0 {
        return Ok(result);
    }
    // SAFETY: the location is this thread's.
    Err(unsafe { *libc::__errno_location() })
}
