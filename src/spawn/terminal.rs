//! Pseudo-terminals.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use portable_pty::{MasterPty, PtySize, native_pty_system};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer};

/// The server's end of a terminal. Non-blocking and close-on-exec.
pub struct Terminal {
    /// Open for as long as `master`.
    fd: RawFd,
    master: Mutex<Box<dyn MasterPty + Send>>,
}

/// Window size, each side at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

impl From<WindowSize> for PtySize {
    fn from(size: WindowSize) -> Self {
        Self { rows: size.rows, cols: size.cols, pixel_width: 0, pixel_height: 0 }
    }
}

impl Terminal {
    /// Opens a terminal of this size; the second descriptor is the program's end.
    ///
    /// # Errors
    /// When the system has no terminal or descriptor left.
    pub fn open(size: WindowSize) -> io::Result<(Self, OwnedFd)> {
        let pair = native_pty_system().openpty(size.into()).map_err(io::Error::other)?;
        let fd = pair.master.as_raw_fd().ok_or_else(|| io::Error::other("the terminal has no descriptor"))?;
        let terminal = Self { fd, master: Mutex::new(pair.master) };
        let fd = terminal.as_fd();
        fcntl_setfd(fd, FdFlags::CLOEXEC)?;
        fcntl_setfl(fd, OFlags::NONBLOCK | OFlags::RDWR)?;
        // The library opens its own program end without close-on-exec and hides its descriptor, so take another.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let program_end = ioctl_tiocgptpeer(fd, flags)?;
        drop(pair.slave);
        Ok((terminal, program_end))
    }

    /// Sets the window size; the kernel tells the foreground group.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn resize(&self, size: WindowSize) -> io::Result<()> {
        self.master
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .resize(size.into())
            .map_err(io::Error::other)
    }

    /// The process group in the foreground.
    #[must_use]
    pub fn foreground_group(&self) -> Option<i32> {
        rustix::termios::tcgetpgrp(self.as_fd()).ok().map(|pid| pid.as_raw_nonzero().get())
    }
}

impl AsRawFd for Terminal {
    fn as_raw_fd(&self) -> RawFd {
        self.fd
    }
}

impl AsFd for Terminal {
    #[expect(unsafe_code, reason = "the library gives its descriptor as a number only")]
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open for as long as `master`, which this borrow keeps alive.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }
}

impl std::fmt::Debug for Terminal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Terminal({})", self.as_raw_fd())
    }
}
