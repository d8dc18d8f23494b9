//! How much a request allocates: a bound on allocations, which a busy machine does not change, rather than on time.
//!
//! The server runs in this process, and its client allocates nothing, so what is counted is the server's, the runtime
//! included. `ALLOCATIONS_PROFILE=FILE` writes where the allocations of a test come from, for the viewer of DHAT.

#![expect(clippy::unwrap_used, reason = "a test, which the lint cannot see without the usual harness")]

mod client;
mod served;

use std::process::ExitCode;
use std::sync::mpsc::sync_channel;

use libtest_mimic::{Arguments, Trial};
use serde_json::{Value, json};

use self::client::{frame, is_output, is_result};
use self::served::Served;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// Before counting, so that buffers have grown and threads have been started.
const WARM_UP: usize = 100;
/// What is counted.
const COUNTED: usize = 200;
/// How far a bound may be above what is counted: so many more allocations are noticed.
const SLACK: f64 = 3.0;

fn main() -> ExitCode {
    if exec_server::helper::dispatch() {
        return ExitCode::SUCCESS;
    }
    let tests = vec![
        Trial::test("environment_status", environment_status),
        Trial::test("get_metadata", get_metadata),
        Trial::test("read_file", read_file),
        Trial::test("process_read", process_read),
        Trial::test("write_and_its_echo", write_and_its_echo),
        Trial::test("output_of_a_chatty_process", output_of_a_chatty_process),
        Trial::test("more_is_noticed_and_much_less_as_well", more_is_noticed_and_much_less_as_well),
    ];
    // What is counted is of the whole process.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, tests).exit_code()
}

type Outcome = Result<(), libtest_mimic::Failed>;

/// Seen: 9.
fn environment_status() -> Outcome {
    let mut served = Served::start();
    calls(&mut served, 10.0, "environment/status", |_| json!({}))
}

/// Seen: 25.
fn get_metadata() -> Outcome {
    let mut served = Served::start();
    let path = served.file(b"content");
    calls(&mut served, 26.0, "fs/getMetadata", |_| json!({"path": path}))
}

/// Seen: 32.0 to 32.1.
fn read_file() -> Outcome {
    let mut served = Served::start();
    let path = served.file(&[b'x'; 1024]);
    calls(&mut served, 33.0, "fs/readFile", |_| json!({"path": path}))
}

/// Seen: 17.
fn process_read() -> Outcome {
    let mut served = Served::start();
    served.start_process(&["sh", "-c", "echo line; exec cat"]);
    assert!(is_output(served.client.receive()));
    calls(&mut served, 18.0, "process/read", |_| json!({"processId": "p", "waitMs": 0}))
}

/// The answer to a write, and what `cat` makes of it. Seen: 26.0 to 26.1.
fn write_and_its_echo() -> Outcome {
    let mut served = Served::start();
    served.start_process(&["cat"]);
    let params = |number| json!({"processId": "p", "chunk": "bGluZQo=", "writeId": format!("w{number}")});
    let requests = requests("process/write", params);
    bounded(27.0, &requests, |request| {
        served.client.send(request);
        let (mut results, mut outputs) = (0, 0);
        while (results, outputs) != (1, 1) {
            let message = served.client.receive();
            results += usize::from(is_result(message));
            outputs += usize::from(is_output(message));
        }
    })
}

/// Notifications of a process that writes lines without a pause. Seen: 8.0 to 8.6, by how its output comes together.
fn output_of_a_chatty_process() -> Outcome {
    let mut served = Served::start();
    served.start_process(&["yes"]);
    bounded(9.5, &[(); WARM_UP + COUNTED], |()| assert!(is_output(served.client.receive())))
}

fn more_is_noticed_and_much_less_as_well() -> Outcome {
    let with_bound = |bound| {
        // By another thread, as the server does it.
        let (ask, asked) = sync_channel(0);
        let (answer, answered) = sync_channel(0);
        let worker = std::thread::spawn(move || {
            while asked.recv().is_ok() {
                answer.send([[1]; 3].map(|content| content.to_vec())).unwrap();
            }
        });
        let outcome = bounded(bound, &[(); WARM_UP + COUNTED], |()| {
            ask.send(()).unwrap();
            assert_eq!(answered.recv().unwrap().len(), 3);
        });
        drop(ask);
        worker.join().unwrap();
        outcome
    };
    assert!(with_bound(2.9).is_err());
    assert!(with_bound(6.1).is_err());
    with_bound(3.9)
}

fn requests(method: &str, params: impl Fn(usize) -> Value) -> Vec<Vec<u8>> {
    let request = |number| frame(&json!({"id": number, "method": method, "params": params(number)}));
    (1..=WARM_UP + COUNTED).map(request).collect()
}

/// Calls, one after the other.
fn calls(served: &mut Served, bound: f64, method: &str, params: impl Fn(usize) -> Value) -> Outcome {
    bounded(bound, &requests(method, params), |request| {
        served.client.send(request);
        assert!(is_result(served.client.receive()));
    })
}

/// Does something with each input, and counts what is allocated meanwhile, but for the first ones.
fn bounded<T>(bound: f64, inputs: &[T], mut run: impl FnMut(&T)) -> Outcome {
    let (first, counted) = inputs.split_at(WARM_UP);
    first.iter().for_each(&mut run);
    let profile = profile();
    counted.iter().for_each(&mut run);
    let each = dhat::HeapStats::get().total_blocks as f64 / counted.len() as f64;
    drop(profile);
    println!("{each:.2} allocations each");
    if each > bound {
        return Err(format!("{each:.2} allocations each, the bound is {bound}").into());
    }
    if each + SLACK <= bound {
        return Err(format!(
            "{each:.2} allocations each: lower the bound of {bound}, so that it still means something"
        )
        .into());
    }
    Ok(())
}

fn profile() -> dhat::Profiler {
    match std::env::var_os("ALLOCATIONS_PROFILE") {
        Some(file) => dhat::Profiler::builder().file_name(file).build(),
        None => dhat::Profiler::builder().testing().build(),
    }
}
