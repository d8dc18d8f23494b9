use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;

use pretty_assertions::assert_eq;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::*;
use crate::process::ProcessSpec;
use crate::process::env::Variables;
use crate::process::handle::execute;
use crate::protocol::limits::ProcessLimits;
use crate::spawn::Stdio;
use crate::spawn::mark::RunMark;

/// A shell with a child in a session of its own, whose id it has written.
fn running(terms: &Terms) -> (Child, Tree, OwnedFd) {
    let (ours, stdout) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let nothing = || OwnedFd::from(File::options().read(true).write(true).open("/dev/null").unwrap());
    let script = "setsid sh -c 'echo $$; exec sleep 304' & wait";
    let spec = ProcessSpec {
        id: "p".into(),
        argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        arg0: None,
        cwd: "/".into(),
        env: Variables::new(),
        terminal: None,
        pipe_stdin: false,
        inherited: Vec::new(),
        introduction: None,
    };
    let (child, tree) =
        execute(&spec, Stdio::Separate { stdin: nothing(), stdout, stderr: nothing() }, terms, None).unwrap();
    let mut line = String::new();
    BufReader::new(File::from(ours)).read_line(&mut line).unwrap();
    let stray = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
    (child, tree, pidfd_open(stray, PidfdFlags::empty()).unwrap())
}

#[test]
fn a_start_that_is_undone_leaves_nothing() {
    let terms =
        Terms { mark: RunMark::none(), groups: None, limits: ProcessLimits::default(), oom_score_adj: 0 };
    let (child, tree, stray) = running(&terms);
    undo(&child, &terms, &tree);
    let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(&stray, PollFlags::IN)], Some(&limit)).unwrap();
    assert_eq!(ended, 1, "the child of the program is still there");
}
