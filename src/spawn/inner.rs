//! The program behind a child that is the init of a sandbox: what signals mean is meant for it, and so is the status.

#![expect(unsafe_code, reason = "one signal to a group through a pidfd has no safe call yet")]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use super::exec::ExitStatus;

/// See the module's description.
#[derive(Debug)]
pub struct Inner {
    program: OwnedFd,
    status: OwnedFd,
}

impl Inner {
    /// The program's pidfd, and where its init leaves its wait status: four bytes, before it ends.
    #[must_use]
    pub fn new(program: OwnedFd, status: OwnedFd) -> Self {
        Self { program, status }
    }

    pub(super) fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Signals the group that the program leads, without a number that could mean another.
    pub(super) fn signal_group(&self, signal: Signal) -> bool {
        const PIDFD_SIGNAL_PROCESS_GROUP: u32 = 1 << 2;
        // SAFETY: a null siginfo is allowed; everything else is by value.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.program.as_raw_fd(),
                signal.as_raw(),
                ptr::null::<libc::siginfo_t>(),
                PIDFD_SIGNAL_PROCESS_GROUP,
            )
        };
        if sent == 0 {
            return true;
        }
        let unknown_flag = Errno::from_io_error(&std::io::Error::last_os_error()) == Some(Errno::INVAL);
        unknown_flag && self.signal_by_id(signal)
    }

    /// For kernels before 6.9. The program is not reaped before its init ends, so its id is its own until then.
    fn signal_by_id(&self, signal: Signal) -> bool {
        self.pid().is_some_and(|pid| kill_process_group(pid, signal).is_ok())
    }

    /// Its process id as this process sees it; none once it is reaped.
    fn pid(&self) -> Option<Pid> {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", self.program.as_raw_fd())).ok()?;
        let number = info.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()?;
        Pid::from_raw(number).filter(|pid| pid.as_raw_nonzero().get() > 1)
    }

    /// How the program ended, if its init has told.
    pub(super) fn status(&self) -> Option<ExitStatus> {
        let mut bytes = [0; 4];
        let (count, _) =
            rustix::net::recv(&self.status, &mut bytes, rustix::net::RecvFlags::DONTWAIT).ok()?;
        let status = (count == bytes.len()).then(|| i32::from_ne_bytes(bytes))?;
        if libc::WIFSIGNALED(status) {
            return Some(ExitStatus::Signal(libc::WTERMSIG(status)));
        }
        Some(ExitStatus::Code(libc::WEXITSTATUS(status)))
    }
}
