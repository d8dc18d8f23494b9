use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};

use pretty_assertions::assert_eq;

use super::*;

fn text(content: &str) -> Arc<OwnedFd> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content.as_bytes()).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    Arc::new(file.into())
}

fn launch(script: &str, inherited: Vec<Inherited>) -> (Launch, File) {
    let (ours, theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let nothing = || OwnedFd::from(File::options().read(true).write(true).open("/dev/null").unwrap());
    let launch = Launch {
        candidates: vec![c"/bin/bash".to_owned()],
        argv: ["bash", "-c", script].map(|word| CString::new(word).unwrap()).to_vec(),
        env: Vec::new(),
        cwd: c"/".to_owned(),
        stdio: Stdio::Separate { stdin: nothing(), stdout: theirs, stderr: nothing() },
        inherited,
        isolation: Isolation::None,
        tree: Tree::none(),
    };
    (launch, ours.into())
}

fn output(script: &str, inherited: Vec<Inherited>) -> String {
    let (launch, mut ours) = launch(script, inherited);
    let child = spawn(launch).unwrap();
    let mut output = String::new();
    ours.read_to_string(&mut output).unwrap();
    while child.try_reap().is_none() {
        std::thread::yield_now();
    }
    output
}

/// Each is asked for by number: a list of the directory would have one more, for the directory.
const OPEN: &str = "for ((n = 0; n < 1024; n++)); do [[ -e /dev/fd/$n ]] && echo -n \"$n \"; done";

#[test]
fn nothing_else_is_inherited() {
    let leak = File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&leak, rustix::io::FdFlags::empty()).unwrap();
    assert_eq!(output(OPEN, Vec::new()), "0 1 2 ");
    let inherited = [255, 3, 9].map(|number| Inherited { fd: text("x"), number }).to_vec();
    assert_eq!(output(OPEN, inherited), "0 1 2 3 9 255 ");
}

#[test]
fn every_descriptor_gets_its_number() {
    // Sources whose numbers are other descriptors' targets.
    let descriptors: Vec<Arc<OwnedFd>> = ["a", "b", "c", "d"].map(text).to_vec();
    let mut numbers: Vec<RawFd> = descriptors.iter().map(|fd| fd.as_raw_fd()).collect();
    numbers.rotate_left(1);
    let inherited = descriptors.into_iter().zip(numbers.clone());
    let inherited = inherited.map(|(fd, number)| Inherited { fd, number }).collect();
    let script =
        numbers.iter().map(|number| format!("read -r -n 1 x <&{number}; echo -n $x;")).collect::<String>();
    assert_eq!(output(&script, inherited), "abcd");
}

#[test]
fn impossible_numbers_start_nothing() {
    let at = |number| Inherited { fd: text("x"), number };
    for inherited in [vec![at(2)], vec![at(256)], vec![at(-1)], vec![at(9), at(9)]] {
        let (launch, mut ours) = launch("echo ran", inherited);
        assert_eq!(spawn(launch).unwrap_err().stage, SpawnStage::Descriptors);
        assert_eq!(ours.read(&mut [0; 8]).unwrap(), 0);
    }
}
