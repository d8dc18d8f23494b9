//! The program itself: forked, bound by its rules, executed.

#![expect(unsafe_code, reason = "fork, the terminal, Landlock, seccomp and exec have no safe calls")]

use std::ffi::{CStr, CString, c_int};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{Done, facility, refused};
use crate::sandbox::plan::{Failure, Program, Stage};
use crate::sandbox::seccomp;
use crate::spawn::exec::execute;

/// What binds the program.
pub(super) struct Rules {
    pub(super) ruleset: OwnedFd,
    pub(super) filter: seccomp::Program,
    /// Somebody decides what the filter leaves open.
    pub(super) supervised: bool,
}

/// A program that has been executed.
pub(super) struct Started {
    pub(super) pid: Pid,
    pub(super) pidfd: OwnedFd,
    /// Where it asks its supervisor.
    pub(super) listener: Option<OwnedFd>,
}

/// Where the child stopped.
const STEPS: [Stage; 4] = [Stage::Facility, Stage::WorkingDirectory, Stage::Terminal, Stage::Exec];

/// Starts the program; returns when it has been executed.
pub(super) fn start(program: &Program, rules: Rules) -> Done<Started> {
    let kind = SocketType::SEQPACKET;
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).map_err(facility("socketpair"))?;
    let arrays = [&program.candidates, &program.argv, &program.env].map(|strings| pointers(strings));
    // SAFETY: this process has one thread, so the child may do whatever this one could.
    let pid = match unsafe { libc::fork() } {
        0 => {
            let (stage, errno) = become_program(program, &arrays, &rules, theirs.as_fd());
            say(theirs.as_fd(), stage, errno);
            // SAFETY: ends the child without the parent's exit handlers.
            unsafe { libc::_exit(127) }
        }
        pid => Pid::from_raw(pid).ok_or_else(|| facility("fork")(last()))?,
    };
    drop(theirs);
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(facility("pidfd_open"))?;
    let listener = if rules.supervised { Some(listener(ours.as_fd(), program)?) } else { None };
    match heard(ours.as_fd(), program)? {
        Heard::Executed => Ok(Started { pid, pidfd, listener }),
        Heard::Listener(_) => Err(refused("seccomp", "a listener that nobody asked for")),
    }
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn checked(result: libc::c_long) -> Result<c_int, Errno> {
    c_int::try_from(result).ok().filter(|result| *result >= 0).ok_or_else(last)
}

/// The child's life before exec; returns only if that fails.
fn become_program(
    program: &Program,
    arrays: &[Vec<*const libc::c_char>; 3],
    rules: &Rules,
    parent: BorrowedFd<'_>,
) -> (Stage, Errno) {
    // SAFETY: plain system calls on arguments that outlive them; the arrays end with null.
    unsafe {
        libc::setsid();
        if libc::chdir(program.cwd.as_ptr()) != 0 {
            return (Stage::WorkingDirectory, last());
        }
        if program.terminal && libc::ioctl(0, libc::TIOCSCTTY, 0) != 0 {
            return (Stage::Terminal, last());
        }
        // What was ignored for the program's start must not stay so.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        if let Err(errno) = keep_only(&program.inherited).and_then(|()| bind(rules, parent)) {
            return (Stage::Facility, errno);
        }
        let [candidates, argv, env] = arrays;
        let errno = execute(candidates.as_ptr(), argv.as_ptr(), env.as_ptr());
        let errno = Errno::from_raw_os_error(errno);
        if let (Errno::NOENT, Some(text)) = (errno, &program.absence) {
            end_without_program(text);
        }
        (Stage::Exec, errno)
    }
}

/// What a shell does whose command is not there.
fn end_without_program(text: &CStr) -> ! {
    let _ = rustix::io::write(rustix::stdio::stderr(), text.to_bytes());
    // SAFETY: ends the child without the parent's exit handlers.
    unsafe { libc::_exit(127) }
}

/// Has everything closed at exec, and not before, but for the standard streams and what the program inherits.
unsafe fn keep_only(inherited: &[c_int]) -> Result<(), Errno> {
    // SAFETY: system calls on numbers.
    unsafe {
        checked(libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC))?;
        for number in inherited {
            checked(libc::fcntl(*number, libc::F_SETFD, 0).into())?;
        }
    }
    Ok(())
}

/// From here on the rules hold.
unsafe fn bind(rules: &Rules, parent: BorrowedFd<'_>) -> Result<(), Errno> {
    let filter = rules.filter.instructions();
    let len = libc::c_ushort::try_from(filter.len()).map_err(|_| Errno::TOOBIG)?;
    let filter = libc::sock_fprog { len, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the kernel copies the filter, and checks everything else.
    unsafe {
        checked(libc::syscall(libc::SYS_landlock_restrict_self, rules.ruleset.as_raw_fd(), 0))?;
        if !rules.supervised {
            return install(&filter, 0).map(drop);
        }
        let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
        let listener = match install(&filter, listener | WAIT_KILLABLE) {
            Err(Errno::INVAL) => install(&filter, listener)?,
            other => other?,
        };
        give(parent, OwnedFd::from_raw_fd(listener).as_fd())
    }
}

unsafe fn install(filter: &libc::sock_fprog, flags: libc::c_ulong) -> Result<c_int, Errno> {
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: the kernel copies the filter.
    checked(unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, ptr::from_ref(filter)) })
}

/// A call that is being decided is interrupted by a fatal signal only: it may have been done. Since 5.19.
const WAIT_KILLABLE: libc::c_ulong = 1 << 5;

fn say(parent: BorrowedFd<'_>, stage: Stage, errno: Errno) {
    let step = (0_u8..).zip(STEPS).find(|(_, step)| *step == stage).map_or(0, |(number, _)| number);
    let mut message = errno.raw_os_error().to_ne_bytes().to_vec();
    message.push(step);
    let _ = rustix::net::send(parent, &message, SendFlags::NOSIGNAL);
}

fn give(parent: BorrowedFd<'_>, listener: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let given = [listener];
    ancillary.push(SendAncillaryMessage::ScmRights(&given));
    sendmsg(parent, &[IoSlice::new(b"listener")], &mut ancillary, SendFlags::NOSIGNAL).map(drop)
}

/// What the child has said.
enum Heard {
    /// Nothing any more: exec has closed its end.
    Executed,
    Listener(OwnedFd),
}

fn listener(child: BorrowedFd<'_>, program: &Program) -> Done<OwnedFd> {
    match heard(child, program)? {
        Heard::Listener(listener) => Ok(listener),
        Heard::Executed => Err(refused("seccomp", "the program gave no listener")),
    }
}

fn heard(child: BorrowedFd<'_>, program: &Program) -> Done<Heard> {
    let mut bytes = [0; 16];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let message = retry_on_intr(|| {
        recvmsg(child, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })
    .map_err(facility("the program's start"))?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message
            && let Some(descriptor) = descriptors.next()
        {
            return Ok(Heard::Listener(descriptor));
        }
    }
    let Some((errno, [step])) = bytes[..message.bytes].split_first_chunk::<4>() else {
        return Ok(Heard::Executed);
    };
    let stage = STEPS.get(usize::from(*step)).copied().unwrap_or(Stage::Facility);
    let what = match stage {
        Stage::WorkingDirectory => program.cwd.to_string_lossy().into_owned(),
        Stage::Exec => {
            program.argv.first().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
        }
        _ => "the program's rules".to_owned(),
    };
    Err(Failure { stage, errno: i32::from_ne_bytes(*errno), what })
}
