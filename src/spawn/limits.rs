//! What a child sets for itself before exec, and everything that comes of it inherits. System calls only.

#![expect(unsafe_code, reason = "system calls between clone and exec")]

use std::ptr;

/// The kernel takes memory from it before it takes it from this server. Nothing depends on that, so a system that does
/// not let it be written keeps no program from running. Memory shared until exec does not make it count for the parent.
pub(super) unsafe fn become_a_victim(score: *const libc::c_char) {
    // SAFETY: both strings end with nul.
    unsafe {
        let file = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if file >= 0 {
            libc::write(file, score.cast(), libc::strlen(score));
            libc::close(file);
        }
    }
}

/// From here on no descriptor can be made whose number is not below this.
///
/// # Safety
/// For a child before exec: a system call only.
pub(crate) unsafe fn limit_open_files(count: u64) -> bool {
    let limit = libc::rlimit64 { rlim_cur: count, rlim_max: count };
    // SAFETY: the pointer is to a limit; null means that the old one is not wanted.
    unsafe {
        libc::syscall(
            libc::SYS_prlimit64,
            0,
            libc::RLIMIT_NOFILE,
            &raw const limit,
            ptr::null_mut::<libc::rlimit64>(),
        ) == 0
    }
}

pub(super) unsafe fn set_mark(mark: u64) {
    let limit = libc::rlimit64 { rlim_cur: mark, rlim_max: libc::RLIM64_INFINITY };
    // SAFETY: the pointer is to a limit; null means that the old one is not wanted.
    unsafe {
        libc::syscall(
            libc::SYS_prlimit64,
            0,
            libc::RLIMIT_RSS,
            &raw const limit,
            ptr::null_mut::<libc::rlimit64>(),
        );
    }
}
