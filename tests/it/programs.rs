//! Environments that are a program of this machine, spoken to over its standard input and output.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use exec_server::backend::{ExecProcess, ExecServerError};
use exec_server::environment::{ClientOptions, Environment, EnvironmentObservedStatus, ProgramCommand};
use pretty_assertions::assert_eq;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use test_case::test_case;

use crate::support::events::{Told, complete, next, rest, stdout};
use crate::support::params::script;
use crate::support::{runs, soon, until};

const SERVER: &str = env!("CARGO_BIN_EXE_exec-server");

/// A shell script that is the program of an environment; `$SERVER` is what to run in it.
fn shell(text: &str) -> ProgramCommand {
    ProgramCommand {
        program: "sh".into(),
        args: vec!["-c".into(), text.into()],
        env: BTreeMap::from([("SERVER".into(), format!("{SERVER} --listen stdio"))]),
        cwd: None,
    }
}

fn environment(command: ProgramCommand) -> Environment {
    Environment::program(command, ClientOptions::default()).unwrap()
}

async fn start(environment: &Environment, id: &str, text: &str) -> Arc<dyn ExecProcess> {
    soon(environment.get_exec_backend().start(script(id, text))).await.unwrap().process
}

/// The process id of the server of an environment.
async fn server_of(environment: &Environment, id: &str) -> i32 {
    let process = start(environment, id, "echo $PPID").await;
    complete(&rest(&mut process.subscribe_events()).await).0.trim().parse().unwrap()
}

fn written(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

async fn pid_in(path: &Path) -> i32 {
    until(|| written(path).ends_with('\n')).await;
    written(path).trim().parse().unwrap()
}

#[tokio::test]
async fn a_program_serves_with_its_arguments_its_variables_and_its_directory() {
    let room = TempDir::new().unwrap();
    let mut command = shell("echo \"$GREETING from $PWD\" > told; exec $SERVER");
    command.env.insert("GREETING".into(), "hello".into());
    command.cwd = Some(room.path().canonicalize().unwrap());
    let environment = environment(command);
    let process = start(&environment, "p", "echo out; echo err >&2; exit 7").await;
    let told = rest(&mut process.subscribe_events()).await;
    assert_eq!(told.len(), 4);
    assert_eq!(told[2], Told::Exited(3, 7));
    assert_eq!(
        written(&room.path().join("told")),
        format!("hello from {}\n", room.path().canonicalize().unwrap().display())
    );
    assert!(environment.is_remote());
}

/// A descendant that holds the streams does not hide the end of the program.
#[tokio::test]
async fn the_next_use_after_its_end_starts_it_again() {
    let room = TempDir::new().unwrap();
    let other = room.path().join("other");
    let environment =
        environment(shell(&format!("sleep 1000 & echo $! > {}; exec $SERVER", other.display())));
    assert_eq!(environment.status().await, EnvironmentObservedStatus::Pending);
    let first = server_of(&environment, "p").await;
    let holder = pid_in(&other).await;
    let process = start(&environment, "q", "echo ready; sleep 1000").await;
    let mut events = process.subscribe_events();
    assert_eq!(next(&mut events).await, stdout(1, "ready\n"));
    assert_eq!(environment.status().await, EnvironmentObservedStatus::Ready);

    kill_process(Pid::from_raw(first).unwrap(), Signal::KILL).unwrap();
    let Told::Failed(why) = next(&mut events).await else { panic!("it goes on") };
    assert!(why.contains("the program has ended"), "{why}");
    let read = soon(process.read(None, None, Some(0))).await.unwrap();
    assert_eq!((read.failure, read.closed), (Some(why), true));
    assert!(matches!(environment.status().await, EnvironmentObservedStatus::Disconnected { .. }));
    until(|| !runs(holder)).await;

    let second = server_of(&environment, "p").await;
    assert_ne!(second, first);
    assert_eq!(environment.status().await, EnvironmentObservedStatus::Ready);
}

#[tokio::test]
async fn a_program_is_asked_to_end_before_it_is_made_to() {
    let room = TempDir::new().unwrap();
    let told = room.path().join("told");
    // The shell gets to its trap when the server, which is in its group, has ended.
    let environment =
        environment(shell(&format!("trap 'echo asked > {}; exit' TERM; $SERVER", told.display())));
    let server = server_of(&environment, "p").await;
    drop(environment);
    until(|| written(&told) == "asked\n").await;
    until(|| !runs(server)).await;
}

/// With everything that is in its group.
#[test_case(true; "when its environment is dropped")]
#[test_case(false; "when the runtime ends")]
fn a_program_that_does_not_listen_is_killed(orderly: bool) {
    let room = TempDir::new().unwrap();
    let (shell_pid, sleeper) = (room.path().join("shell"), room.path().join("sleeper"));
    let text = format!(
        "trap '' TERM; echo $$ > {}; sleep 1000 & echo $! > {}; $SERVER; sleep 1000",
        shell_pid.display(),
        sleeper.display()
    );
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (environment, pids) = runtime.block_on(async {
        let environment = environment(shell(&text));
        soon(environment.wait_until_ready()).await.unwrap();
        (environment, [pid_in(&shell_pid).await, pid_in(&sleeper).await])
    });
    assert!(pids.iter().all(|pid| runs(*pid)));
    if orderly {
        drop(environment);
        runtime.block_on(until(|| !pids.iter().any(|pid| runs(*pid))));
    } else {
        drop(runtime);
        drop(environment);
        let outside = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        outside.block_on(until(|| !pids.iter().any(|pid| runs(*pid))));
    }
}

#[test_case("/nonexistent/program", "No such file"; "that is not there")]
#[test_case("false", "ended"; "that ends at once")]
#[test_case("echo", "ended"; "that says no message and ends")]
#[tokio::test]
async fn each_use_tries_a_program(program: &str, why: &str) {
    let environment = environment(ProgramCommand { program: program.into(), ..Default::default() });
    for _ in 0..2 {
        let error = soon(environment.wait_until_ready()).await.unwrap_err().to_string();
        assert!(error.contains(&format!("the program `{program}`")), "{error}");
        assert!(error.contains(why) || error.contains("closed by the peer"), "{error}");
    }
    assert!(environment.startup_finished());
}

#[tokio::test]
async fn a_program_that_is_silent_is_given_up_and_ended() {
    let room = TempDir::new().unwrap();
    let pid = room.path().join("pid");
    let options =
        ClientOptions { initialize_timeout: Duration::from_millis(300), ..ClientOptions::default() };
    let command = shell(&format!("echo $$ > {}; exec sleep 1000", pid.display()));
    let environment = Environment::program(command, options).unwrap();
    let ExecServerError::ConnectionAttempt(error) = soon(environment.wait_until_ready()).await.unwrap_err()
    else {
        panic!("another error");
    };
    assert!(matches!(*error, ExecServerError::InitializeTimeout(_)), "{error}");
    let pid = pid_in(&pid).await;
    until(|| !runs(pid)).await;
}

#[tokio::test]
async fn blank_lines_and_noise_on_standard_error_do_no_harm() {
    let environment = environment(shell("echo; echo '  '; yes | head -c 3000000 >&2; exec $SERVER"));
    soon(environment.info()).await.unwrap();
}

/// What is behind its end, in the pipe, is read before the end is told; a descendant holds the pipe open.
#[tokio::test]
async fn the_last_lines_of_a_program_are_not_lost() {
    const PROCESSES: usize = 10;
    const LINES: u64 = 200;
    let room = TempDir::new().unwrap();
    let other = room.path().join("other");
    let text = format!(
        r#"sleep 1000 & echo $! > {}
        answer() {{ read -r line; id=${{line#*\"id\":}}; echo "{{\"id\":${{id%%[,\}}]*}},\"result\":$1}}"; }}
        answer '{{"sessionId":"s","environmentInfo":{{"shell":{{"name":"sh","path":"/bin/sh"}},"capabilities":{{}}}}}}'
        read -r initialized
        for p in $(seq {PROCESSES}); do answer '{{"processId":"'$p'"}}'; done
        for p in $(seq {PROCESSES}); do
            seq -f '{{"method":"process/output","params":{{"processId":"'$p'","seq":%.0f,"stream":"stdout","chunk":"eA=="}}}}' {LINES}
        done"#,
        other.display()
    );
    let environment = environment(shell(&text));
    let mut processes = Vec::new();
    for id in 1..=PROCESSES {
        processes.push(start(&environment, &id.to_string(), "").await);
    }
    for process in processes {
        let told = rest(&mut process.subscribe_events()).await;
        let (end, lines) = told.split_last().unwrap();
        assert!(matches!(end, Told::Failed(_)), "{end:?}");
        assert_eq!(lines, (1..=LINES).map(|seq| stdout(seq, "x")).collect::<Vec<_>>());
    }
    let holder = pid_in(&other).await;
    until(|| !runs(holder)).await;
}

#[test_case("echo before >&2; echo 'no such image' >&2; exit 3"; "a line")]
#[test_case("printf 'no such image' >&2; exit 3"; "without an end")]
#[test_case("exec <&-; echo 'no such image' >&2; sleep 1000 & exit 3"; "while a descendant holds the stream")]
#[tokio::test]
async fn a_program_that_fails_at_once_says_why(text: &str) {
    let error = soon(environment(shell(text)).wait_until_ready()).await.unwrap_err().to_string();
    assert!(error.contains("the program has ended: no such image"), "{error}");
}

#[tokio::test]
async fn what_a_program_says_at_its_end_is_logged() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_writer({
            let log = log.clone();
            move || log.clone()
        })
        .finish();
    let _here = tracing::subscriber::set_default(subscriber);
    let environment = environment(shell("trap 'echo farewell >&2; exit' TERM; $SERVER"));
    soon(environment.wait_until_ready()).await.unwrap();
    drop(environment);
    until(|| log.text().contains("farewell")).await;
}

/// What was logged on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
