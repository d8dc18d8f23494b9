//! The way of output from its process to a connection, and what is read again.

use std::sync::Arc;

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use exec_server::benchmarking::WritableLog;
use exec_server::process::feed::Feed;

/// Pieces of output in one run, and their sizes: a line, a full pipe's page, a large read.
const PIECES: usize = 256;
const SIZES: [usize; 3] = [64, 4 << 10, 64 << 10];

fn watched() -> (WritableLog, Arc<Feed>) {
    let (log, feed) = (WritableLog::new(), Feed::new(true));
    log.log().watch(&feed, true);
    (log, feed)
}

fn bytes(size: usize) -> BytesCount {
    BytesCount::new(PIECES * size)
}

/// Nobody takes anything meanwhile, so pieces are joined.
#[divan::bench(args = SIZES)]
fn append(bencher: Bencher, size: usize) {
    let piece = vec![b'x'; size];
    bencher.counter(bytes(size)).with_inputs(watched).bench_refs(|(log, _)| {
        for _ in 0..PIECES {
            log.append(black_box(&piece));
        }
    });
}

/// A connection takes each piece as soon as it is there.
#[divan::bench(args = SIZES)]
fn append_and_take(bencher: Bencher, size: usize) {
    let piece = vec![b'x'; size];
    bencher.counter(bytes(size)).with_inputs(watched).bench_refs(|(log, feed)| {
        for _ in 0..PIECES {
            log.append(black_box(&piece));
            let ready = feed.pop().unwrap();
            black_box(ready.take(feed, usize::MAX));
        }
    });
}

/// A page from the middle of what is retained.
#[divan::bench(args = [1, 16, 128])]
fn read(bencher: Bencher, chunks: usize) {
    const SIZE: usize = 4 << 10;
    let (log, feed) = watched();
    for _ in 0..PIECES {
        log.append(&[b'x'; SIZE]);
        log.log().take(&feed, usize::MAX);
    }
    bencher
        .counter(BytesCount::new(chunks * SIZE))
        .bench(|| log.log().page(black_box(64), black_box((chunks * SIZE) as u64)));
}
