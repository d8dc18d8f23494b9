//! Life as the init of the sandbox: reaps, decides connections, gives the server sockets, and ends when the program has
//! ended.
//!
//! When it ends, the kernel ends everything in its namespace, so nothing that the program left behind lives on.

#![expect(unsafe_code, reason = "a raw wait status and an empty signal mask have no safe calls")]

use std::os::fd::{FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, Result};
use rustix::net::{SendFlags, send};
use rustix::process::Pid;

use super::connect::Supervisor;
use super::network::Broker;

/// The init of a running program.
pub(super) struct Init {
    pub(super) pid: Pid,
    pub(super) supervisor: Option<Supervisor>,
    pub(super) broker: Option<Broker>,
}

/// Lets go of the program's streams, so that they end with the program.
pub(super) fn leave_streams() -> Result<()> {
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)
}

impl Init {
    /// Serves until the program has ended, or the server has. Everything else here ends with the caller.
    pub(super) fn serve(mut self, server: OwnedFd) {
        let Ok(children) = children_ended() else { return };
        loop {
            if let Some(status) = self.reap() {
                let _ = send(&server, &status.to_ne_bytes(), SendFlags::NOSIGNAL);
                return;
            }
            match self.wait(&server, &children) {
                Ok(Event::ServerEnded) | Err(_) => return,
                Ok(Event::Work(work)) => self.work(work),
            }
            // How many have ended does not matter.
            let _ = rustix::io::read(&children, &mut [0_u8; SIGNAL_BYTES]);
        }
    }

    fn wait(&self, server: &OwnedFd, children: &OwnedFd) -> Result<Event> {
        let mut waiting = vec![PollFd::new(server, PollFlags::empty()), PollFd::new(children, PollFlags::IN)];
        let questions = self.supervisor.as_ref().map(Supervisor::listener);
        let requests = self.broker.as_ref().map(Broker::requests);
        waiting.extend(questions.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        waiting.extend(requests.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        match poll(&mut waiting, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let mut happened = waiting.iter().map(PollFd::revents);
        if happened.next().is_some_and(|server| !server.is_empty()) {
            return Ok(Event::ServerEnded);
        }
        let mut happened = happened.skip(1);
        let mut is_ready =
            |there: bool| there && happened.next().is_some_and(|flags| flags.contains(PollFlags::IN));
        let (question, request) = (is_ready(questions.is_some()), is_ready(requests.is_some()));
        Ok(Event::Work(Work { question, request }))
    }

    fn work(&mut self, work: Work) {
        if let Some(supervisor) = self.supervisor.as_ref().filter(|_| work.question) {
            supervisor.take();
        }
        if work.request && !self.broker.as_ref().is_some_and(Broker::serve) {
            self.broker = None;
        }
    }

    /// Reaps what has ended; the program's wait status once it is among them. The program itself is left as it is, so
    /// that its number means nobody else as long as this process lives.
    fn reap(&self) -> Option<i32> {
        loop {
            let (pid, status) = ended()?;
            if pid == self.pid {
                return Some(status);
            }
            let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOHANG;
            let _ = rustix::process::waitid(rustix::process::WaitId::Pid(pid), options);
        }
    }
}

/// What init has waited for.
enum Event {
    ServerEnded,
    Work(Work),
}

/// What is to be done; children that have ended are looked for in any case.
struct Work {
    question: bool,
    request: bool,
}

/// What one read of the descriptor below gives.
const SIGNAL_BYTES: usize = size_of::<libc::signalfd_siginfo>();

/// Readable when a child has ended.
fn children_ended() -> Result<OwnedFd> {
    // SAFETY: the set is filled before it is used, and the kernel makes the descriptor for us.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// A child that has ended, with its wait status, left as it is.
fn ended() -> Option<(Pid, i32)> {
    // SAFETY: a zeroed siginfo_t is valid, the kernel fills it, and both fields are set for every child it reports.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let look = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        if libc::waitid(libc::P_ALL, 0, &raw mut info, look) != 0 {
            return None;
        }
        let code = info.si_status();
        let status = if info.si_code == libc::CLD_EXITED { (code & 0xff) << 8 } else { code & 0x7f };
        Some((Pid::from_raw(info.si_pid())?, status))
    }
}
