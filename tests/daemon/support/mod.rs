//! What the tests of the daemon share: the daemon itself, a raw client, and looks at the machine's processes.

pub(crate) mod cgroup;
pub(crate) mod client;
pub(crate) mod daemon;
pub(crate) mod exposition;
pub(crate) mod http;
pub(crate) mod machine;
pub(crate) mod proxy;
pub(crate) mod sandbox;
pub(crate) mod start;
pub(crate) mod stdio;
pub(crate) mod tls;

use std::time::{Duration, Instant};

pub(crate) use client::{Client, End, Refused, RpcError, Run};
pub(crate) use daemon::Daemon;
pub(crate) use machine::Marker;
pub(crate) use start::Start;

/// How long anything that must happen may take, wherever no time of its own is promised.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

const POLL: Duration = Duration::from_millis(10);

/// Waits until the condition holds; fails the test when it does not in time.
#[track_caller]
pub(crate) fn eventually(
    what: &str,
    limit: Duration,
    mut holds: impl FnMut() -> bool,
) -> impl Future<Output = ()> {
    let place = std::panic::Location::caller();
    let what = what.to_owned();
    async move {
        let deadline = Instant::now() + limit;
        while !holds() {
            assert!(Instant::now() < deadline, "{place}: not in {limit:?}: {what}");
            tokio::time::sleep(POLL).await;
        }
    }
}

/// A directory of the test's own, gone with the value.
pub(crate) fn work_dir() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("exec-server-test-").tempdir().expect("a temporary directory")
}

/// The `file:` URI of an absolute path, each byte outside the plainest set escaped.
pub(crate) fn uri(path: &std::path::Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    let mut text = String::from("file://");
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                text.push(char::from(byte))
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    base64_simd::STANDARD.encode_to_string(bytes)
}

pub(crate) fn unbase64(text: &str) -> Vec<u8> {
    base64_simd::STANDARD.decode_to_vec(text).expect("standard base64 with padding")
}

/// A small generator for tests that must be repeatable from a printed seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number from the range, its end excluded.
    pub(crate) fn within(&mut self, range: std::ops::Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }
}
