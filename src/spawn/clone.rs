//! The clone that makes a child: sharing memory until exec, and where asked for in a cgroup from its first moment.
//!
//! Moving a process into a cgroup later makes the kernel wait for all processors, some ten milliseconds. Only `clone3`
//! can make it there, and no C library offers that with a stack of the child's own, so the call is written out here.

#![expect(unsafe_code, reason = "clone")]

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// What the child runs; it must not return.
pub(super) type Entry = extern "C" fn(*mut c_void) -> c_int;

const STACK_WORDS: usize = 4096; // 64 KiB; a child needs well under one.

/// Makes a child that runs `entry` in this memory, and waits until it has executed or ended.
///
/// # Errors
/// The error number. `ENOSYS` where it cannot be made in a cgroup here.
///
/// # Safety
/// `entry` makes system calls only, ends by exec or exit, and `argument` is what it takes.
pub(super) unsafe fn child(
    entry: Entry,
    argument: *mut c_void,
    namespaces: c_int,
    cgroup: Option<BorrowedFd<'_>>,
) -> Result<(i32, OwnedFd), c_int> {
    let mut stack: Vec<MaybeUninit<u128>> = Vec::with_capacity(STACK_WORDS);
    let stack = stack.spare_capacity_mut();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | namespaces;
    let mut pidfd: c_int = -1;
    // SAFETY: the stack is large enough, aligned and outlives the calls, which return only when the child has left
    // this memory; the rest is promised by the caller.
    let pid = unsafe {
        match cgroup {
            None => {
                let top = stack.as_mut_ptr_range().end.cast::<c_void>();
                libc::clone(entry, top, flags | libc::SIGCHLD, argument, &raw mut pidfd)
            }
            Some(cgroup) => {
                let arguments = CloneArguments {
                    flags: u64::from(flags.cast_unsigned()) | CLONE_INTO_CGROUP,
                    pidfd: (&raw mut pidfd).expose_provenance() as u64,
                    exit_signal: u64::from(libc::SIGCHLD.cast_unsigned()),
                    stack: stack.as_mut_ptr().expose_provenance() as u64,
                    stack_size: size_of_val(stack) as u64,
                    cgroup: u64::from(cgroup.as_raw_fd().cast_unsigned()),
                    ..CloneArguments::default()
                };
                match clone3(&arguments, entry, argument) {
                    result @ 0.. => c_int::try_from(result).unwrap_or(c_int::MAX),
                    error => return Err(c_int::try_from(-error).unwrap_or(libc::EIO)),
                }
            }
        }
    };
    if pid < 0 {
        return Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO));
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok((pid, unsafe { OwnedFd::from_raw_fd(pidfd) }))
}

/// As the kernel has it, up to the cgroup.
#[repr(C)]
#[derive(Default)]
struct CloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// The child begins behind the call with nothing but its registers, and goes on in `entry` on its own stack.
///
/// # Safety
/// As [`child`]; the arguments name a stack of the child's own.
#[cfg(target_arch = "x86_64")]
unsafe fn clone3(arguments: &CloneArguments, entry: Entry, argument: *mut c_void) -> libc::c_long {
    let result: libc::c_long;
    // SAFETY: the kernel keeps all registers but the three that are named. What the child does is on its own stack.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 => result,
            in("rdi") arguments,
            in("rsi") size_of::<CloneArguments>(),
            in("r12") entry,
            in("r13") argument,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

/// See the other one.
///
/// # Safety
/// As there.
#[cfg(target_arch = "aarch64")]
unsafe fn clone3(arguments: &CloneArguments, entry: Entry, argument: *mut c_void) -> libc::c_long {
    let result: libc::c_long;
    // SAFETY: the kernel keeps all registers but the first. What the child does is on its own stack.
    unsafe {
        std::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, x21",
            "blr x20",
            "brk 1",
            "2:",
            in("x8") libc::SYS_clone3,
            inlateout("x0") std::ptr::from_ref(arguments).expose_provenance() as libc::c_long => result,
            in("x1") size_of::<CloneArguments>(),
            in("x20") entry,
            in("x21") argument,
        );
    }
    result
}

/// Elsewhere a child comes into its cgroup after it was made.
///
/// # Safety
/// None is needed.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn clone3(_: &CloneArguments, _: Entry, _: *mut c_void) -> libc::c_long {
    -libc::c_long::from(libc::ENOSYS)
}
