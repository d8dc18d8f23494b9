//! The process at the other end of a unix socket, as the kernel wrote it down at the connect.

#![expect(unsafe_code, reason = "no safe call asks a socket for the pidfd of its peer")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A process that cannot be taken for another: its id means it for as long as it [`Peer::lives`].
#[derive(Debug)]
pub struct Peer {
    /// Its id.
    pub pid: i32,
    pidfd: OwnedFd,
}

impl Peer {
    /// Who has connected.
    ///
    /// # Errors
    /// When that process has ended, or has no id here.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let nobody = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let pid = option(&socket, libc::SO_PEERCRED, nobody)?.pid;
        let known = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
        let pidfd = match option::<libc::c_int>(&socket, libc::SO_PEERPIDFD, -1) {
            // SAFETY: the kernel has just made this descriptor for us.
            Ok(pidfd) => unsafe { OwnedFd::from_raw_fd(pidfd) },
            // Before Linux 6.5. The id alone can have been given away since the connect.
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                pidfd_open(known, PidfdFlags::empty())?
            }
            Err(error) => return Err(error),
        };
        Ok(Self { pid, pidfd })
    }

    /// Whether it has not ended.
    #[must_use]
    pub fn lives(&self) -> bool {
        let mut ended = [PollFd::new(&self.pidfd, PollFlags::IN)];
        poll(&mut ended, Some(&Timespec::default())) == Ok(0)
    }
}

/// An option whose value is a plain structure of integers.
fn option<T: Copy>(socket: &impl AsFd, name: libc::c_int, mut value: T) -> io::Result<T> {
    let mut length = libc::socklen_t::try_from(size_of::<T>()).map_err(io::Error::other)?;
    // SAFETY: the pointers are to the value and to its length, and both outlive the call.
    let outcome = unsafe {
        let fd = socket.as_fd().as_raw_fd();
        libc::getsockopt(fd, libc::SOL_SOCKET, name, (&raw mut value).cast(), &raw mut length)
    };
    if outcome == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}
