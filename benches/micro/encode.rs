//! From events and results to the text of messages.

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use exec_server::benchmarking::{AnswerEncoder, notification};
use exec_server::process::log::{Chunk, Event};
use exec_server::protocol::fs::{Metadata, ReadFileResponse};
use exec_server::protocol::process::{ExecOutputStream, ProcessId};
use exec_server::session::ReadOutcome;

const SIZES: [usize; 3] = [64, 4 << 10, 64 << 10];

fn chunk(seq: u64, size: usize) -> Chunk {
    Chunk { seq, stream: ExecOutputStream::Stdout, bytes: vec![b'x'; size].into() }
}

#[divan::bench(args = SIZES)]
fn output_notification(bencher: Bencher, size: usize) {
    let (process, event) = (ProcessId::from("process-1"), Event::Output(chunk(1_000_000, size)));
    bencher.counter(BytesCount::new(size)).bench(|| notification(black_box(&process), black_box(&event)));
}

#[divan::bench(args = SIZES)]
fn read_file_answer(bencher: Bencher, size: usize) {
    let (encoder, result) =
        (AnswerEncoder::new(1_000_000), ReadFileResponse { data_base64: vec![b'x'; size].into() });
    bencher.counter(BytesCount::new(size)).bench(|| encoder.file(black_box(&result)));
}

#[divan::bench(args = [1, 16, 256])]
fn process_read_answer(bencher: Bencher, chunks: u64) {
    const SIZE: usize = 4 << 10;
    let encoder = AnswerEncoder::new(1_000_000);
    let outcome = ReadOutcome {
        chunks: (1..=chunks).map(|seq| chunk(seq, SIZE)).collect(),
        next_seq: chunks + 1,
        exit: None,
        closed: false,
        lost: None,
    };
    bencher.counter(BytesCount::new(chunks * SIZE as u64)).bench(|| encoder.read(black_box(&outcome)));
}

#[divan::bench]
fn metadata_answer(bencher: Bencher) {
    let encoder = AnswerEncoder::new(1_000_000);
    let text = r#"{"isDirectory":false,"isFile":true,"isSymlink":false,"size":1024,"createdAtMs":1,"modifiedAtMs":1}"#;
    let result: Metadata = serde_json::from_str(text).unwrap();
    bencher.bench(|| encoder.result(black_box(&result)));
}
