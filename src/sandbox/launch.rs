//! Starts a helper with a plan, and hears what came of it.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, IoSliceMut, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{fcntl_dupfd_cloexec, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};

use super::WORD;
use super::entrance::{Entrance, Handed};
use super::plan::{Failure, Plan, Program, REPORT_BYTES, REPORT_DESCRIPTORS, Report, Stage};
use super::prepare::{Absence, Jail, Measures, Prepared};
use crate::spawn::inner::Inner;
use crate::spawn::isolation::{Isolation, Namespaces};
use crate::spawn::mark::RunMark;
use crate::spawn::{Child, HIGHEST_INHERITED, Inherited, Launch, SpawnError, Stdio, spawn};

/// What of a run is no part of its plan.
#[derive(Debug)]
pub struct Streams {
    /// Standard streams.
    pub stdio: Stdio,
    /// What the program inherits besides, as its plan says.
    pub inherited: Vec<Inherited>,
    /// The mark of its tree.
    pub mark: RunMark,
}

/// Why a sandboxed program did not start. Nothing runs.
#[derive(Debug)]
pub enum LaunchError {
    /// The helper was not started.
    Spawn(SpawnError),
    /// The helper could not do what the plan says.
    Failed(Failure),
}

impl From<io::Error> for LaunchError {
    fn from(error: io::Error) -> Self {
        let errno = error.raw_os_error().unwrap_or(0);
        Self::Failed(Failure { stage: Stage::Plan, errno, what: "the plan cannot be handed over".to_owned() })
    }
}

/// A program that has been executed.
#[derive(Debug)]
pub(super) struct Launched {
    pub(super) child: Child,
    /// What leads into its private network.
    pub(super) network: Option<Handed>,
}

/// Starts a program in the sandbox that was prepared for it; returns when it has been executed.
///
/// Blocks for the few milliseconds that this takes; call it in a runtime, where blocking is allowed.
///
/// # Errors
/// [`LaunchError`]. Nothing is left behind.
pub fn start(launch: Launch, prepared: Prepared) -> Result<Child, LaunchError> {
    let Launched { child, network } = with(launch, prepared.measures)?;
    if let Some(run) = prepared.run {
        run.led_by(child.pid());
    }
    if let (Some(handed), Some(promise)) = (network, prepared.entrance) {
        let entrance = Entrance::open(handed).inspect_err(|_| child.kill_and_reap())?;
        // Who does not want it any more gets nothing, and the network stays closed.
        drop(promise.give.send(entrance));
    }
    Ok(child)
}

fn with(launch: Launch, measures: Measures) -> Result<Launched, LaunchError> {
    let alone = |child| Launched { child, network: None };
    match measures {
        Measures::None => spawn(launch).map(alone).map_err(LaunchError::Spawn),
        Measures::Rules(rules) => spawn(Launch { isolation: Isolation::Restricted(rules), ..launch })
            .map(alone)
            .map_err(LaunchError::Spawn),
        Measures::View(jail) => in_a_view(launch, *jail),
    }
}

fn in_a_view(start: Launch, jail: Jail) -> Result<Launched, LaunchError> {
    let cwd = CString::new(jail.cwd.as_os_str().as_bytes()).map_err(io::Error::from)?;
    let refused = matches!(jail.absence, Absence::Refused(_));
    let program = Program {
        // There is nothing at the empty path.
        candidates: if refused { vec![CString::default()] } else { start.candidates },
        absence: said(jail.absence, &start.argv)?,
        argv: start.argv,
        env: at_home(start.env, &cwd),
        terminal: matches!(start.stdio, Stdio::Terminal(_)),
        inherited: start.inherited.iter().map(|one| one.number).collect(),
        cwd,
    };
    let Jail { view, grants, network, filter, .. } = jail;
    let plan = Plan { view, grants, network, filter, program };
    let streams = Streams { stdio: start.stdio, inherited: start.inherited, mark: start.mark };
    launch(&plan, streams, jail.namespaces, jail.helper)
}

/// What a program that is not there says of itself.
fn said(absence: Absence, argv: &[CString]) -> io::Result<Option<CString>> {
    let text = match absence {
        Absence::Fails => return Ok(None),
        Absence::Ends => {
            let name = argv.first().map_or(b"".as_slice(), |name| name.as_bytes());
            [name, b": No such file or directory\n"].concat()
        }
        Absence::Refused(why) => format!("exec-server: not executed: {why}\n").into_bytes(),
    };
    Ok(Some(CString::new(text)?))
}

/// The environment with the working directory's real name: others may not exist in the view.
fn at_home(mut env: Vec<CString>, cwd: &CString) -> Vec<CString> {
    env.retain(|variable| !variable.as_bytes().starts_with(b"PWD="));
    env.extend(CString::new([b"PWD=", cwd.as_bytes()].concat()));
    env
}

/// Has a helper start a program as a plan says, in namespaces of its own; returns when it has been executed. The child is the
/// init of its namespaces.
///
/// Blocks for the few milliseconds that this takes; call it where blocking is allowed.
///
/// # Errors
/// [`LaunchError`]. Nothing is left behind.
pub(super) fn launch(
    plan: &Plan,
    streams: Streams,
    namespaces: Namespaces,
    helper: CString,
) -> Result<Launched, LaunchError> {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(io::Error::from)?;
    let Streams { stdio, mut inherited, mark } = streams;
    let mut free = (3..=HIGHEST_INHERITED).filter(|number| !plan.program.inherited.contains(number));
    let mut numbers = Vec::new();
    for (fd, number) in [handed_over(plan)?, theirs].into_iter().zip(&mut free) {
        inherited.push(Inherited { fd: Arc::new(fd), number });
        numbers.push(number.to_string());
    }
    let words = ["exec-server: sandbox", WORD].into_iter().chain(numbers.iter().map(String::as_str));
    let child = spawn(Launch {
        candidates: vec![helper],
        argv: words.filter_map(|word| CString::new(word).ok()).collect(),
        env: Vec::new(),
        cwd: c"/".to_owned(),
        stdio: without_control(stdio)?,
        inherited,
        isolation: Isolation::Namespaces(namespaces),
        mark,
    })
    .map_err(LaunchError::Spawn)?;
    match hear(ours.as_fd(), plan) {
        Ok((program, network)) => Ok(Launched { child: child.running(Inner::new(program, ours)), network }),
        Err(failure) => {
            child.kill_and_reap();
            Err(LaunchError::Failed(failure))
        }
    }
}

/// The plan as a file in memory: it may be larger than what a socket holds.
fn handed_over(plan: &Plan) -> io::Result<OwnedFd> {
    let bytes = postcard::to_allocvec(plan).map_err(io::Error::other)?;
    let mut file = File::from(memfd_create("plan", MemfdFlags::CLOEXEC)?);
    file.write_all(&bytes)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file.into())
}

/// The terminal is for the program to take, not for its init.
fn without_control(stdio: Stdio) -> io::Result<Stdio> {
    let Stdio::Terminal(terminal) = stdio else { return Ok(stdio) };
    let another = || fcntl_dupfd_cloexec(&terminal, 3);
    Ok(Stdio::Separate { stdin: another()?, stdout: another()?, stderr: another()? })
}

/// Waits for the helper's report: the program's pidfd, and what leads into its private network.
fn hear(helper: BorrowedFd<'_>, plan: &Plan) -> Result<(OwnedFd, Option<Handed>), Failure> {
    let mut bytes = vec![0; REPORT_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(REPORT_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let message = retry_on_intr(|| {
        recvmsg(helper, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    });
    let silent = |errno| Failure { stage: Stage::Plan, errno, what: "the helper gave no answer".to_owned() };
    let length = message.map_err(|errno| silent(errno.raw_os_error()))?.bytes;
    let mut descriptors = ancillary.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
        _ => Vec::new(),
    });
    match postcard::from_bytes(&bytes[..length]) {
        Ok(Report::Started) => given(plan, &mut descriptors).ok_or_else(|| silent(0)),
        Ok(Report::Failed(failure)) => Err(failure),
        Err(_) => Err(silent(0)),
    }
}

/// Sorts what came with the report; none if something is missing.
fn given(plan: &Plan, descriptors: &mut dyn Iterator<Item = OwnedFd>) -> Option<(OwnedFd, Option<Handed>)> {
    let program = descriptors.next()?;
    Some(match &plan.network {
        Some(network) => (program, Some(Handed::of(network, descriptors)?)),
        None => (program, None),
    })
}
