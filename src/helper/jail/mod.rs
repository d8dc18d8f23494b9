//! The step inside the sandbox: builds what a plan says around itself, starts the program, and stays as its init.
//!
//! It is the first process of its namespaces, single-threaded until the program runs, and knows nothing of the
//! request but the plan. The order is what makes it safe: network and view, then rules, then no capability left, then the
//! program. Whatever fails ends everything before the program has been executed.

mod connect;
mod devices;
mod diagnosis;
mod init;
mod mounts;
mod network;
mod privileges;
mod program;
mod view;

use std::ffi::OsString;
use std::fs::File;
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::sandbox::landlock::{self, Reach};
use crate::sandbox::plan::{Failure, Plan, REPORT_DESCRIPTORS, Report, Stage};
use crate::sandbox::seccomp::Sockets;

type Done<T> = Result<T, Failure>;

/// What the helper does. `arguments` are those after the hidden word: the descriptors of the plan and of the server.
pub(super) fn main(arguments: impl Iterator<Item = OsString>) {
    // What this process says would be taken for the program's output.
    std::panic::set_hook(Box::new(|_| {}));
    let mut descriptors = arguments.filter_map(|word| owned(word.to_str()?.parse().ok()?));
    let (Some(plan), Some(server)) = (descriptors.next(), descriptors.next()) else { return };
    match run(plan.into(), server.as_fd()) {
        Ok(init) => init.serve(server),
        Err(failure) => report(server.as_fd(), &Report::Failed(failure), &[]),
    }
}

/// A descriptor that the parent has put there for this process alone.
#[expect(unsafe_code, reason = "descriptors that are known by their numbers")]
fn owned(fd: RawFd) -> Option<OwnedFd> {
    if fd < 3 {
        return None;
    }
    // SAFETY: if it is not open, the call says so; nothing else in this process uses it.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    fcntl_setfd(borrowed, FdFlags::CLOEXEC).ok()?;
    // SAFETY: as above; it is open.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn run(plan: File, server: BorrowedFd<'_>) -> Done<init::Init> {
    let plan = read(plan)?;
    let network = plan.network.as_ref().map(network::make).transpose()?;
    view::build(&plan.view, plan.program.terminal)?;
    let reach = Reach { scoped_sockets: plan.filter.sockets != Sockets::Network, tcp_ports: None };
    let ruleset = landlock::ruleset(&plan.grants, reach).map_err(|what| refused("Landlock", &what))?;
    let filter = plan.filter.compile().map_err(|what| refused("seccomp", &what))?;
    let supervised = plan.filter.sockets == Sockets::Supervised;
    privileges::drop_all()?;
    let rules = program::Rules { ruleset, filter, supervised };
    let started = program::start(&plan.program, rules)?;
    init::leave_streams().map_err(facility("/dev/null"))?;
    let supervisor = started.listener.map(connect::Supervisor::new);
    let mut given = vec![started.pidfd.as_fd()];
    given.extend(network.iter().flat_map(network::Made::handed_over));
    report(server, &Report::Started, &given);
    Ok(init::Init { pid: started.pid, supervisor, broker: network.map(network::Made::into_broker) })
}

fn read(mut file: File) -> Done<Plan> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| Failure {
        stage: Stage::Plan,
        errno: error.raw_os_error().unwrap_or(0),
        what: "the plan cannot be read".to_owned(),
    })?;
    postcard::from_bytes(&bytes).map_err(|error| Failure {
        stage: Stage::Plan,
        errno: 0,
        what: format!("the plan does not decode: {error}"),
    })
}

/// A part of the kernel that did not do what it must.
fn facility(what: &str) -> impl Fn(Errno) -> Failure {
    move |errno| Failure { stage: Stage::Facility, errno: errno.raw_os_error(), what: what.to_owned() }
}

fn refused(facility: &str, what: &str) -> Failure {
    Failure { stage: Stage::Facility, errno: 0, what: format!("{facility}: {what}") }
}

fn report(server: BorrowedFd<'_>, report: &Report, descriptors: &[BorrowedFd<'_>]) {
    let Ok(bytes) = postcard::to_allocvec(report) else { return };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(REPORT_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    // A server that is gone needs no answer.
    let _ = sendmsg(server, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL);
}
