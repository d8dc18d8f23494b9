//! Guesses whether a program failed because its sandbox denied it something, from what it wrote.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use crate::protocol::process::ExecOutputStream;

/// What programs write when they are denied something; clients know these.
const WORDS: [&str; 7] = [
    "operation not permitted",
    "permission denied",
    "read-only file system",
    "seccomp",
    "sandbox",
    "landlock",
    "failed to write file",
];
/// All but one letter of the longest: what must be remembered of earlier output.
const TAIL: usize = "operation not permitted".len() - 1;
/// How far back from the end of the output words count, in bytes.
const REACH: u64 = 1 << 20;
/// The exit code of a program that a filter has killed.
const BAD_CALL: i32 = 128 + libc::SIGSYS;

static SEARCH: LazyLock<Option<AhoCorasick>> =
    LazyLock::new(|| AhoCorasick::builder().ascii_case_insensitive(true).build(WORDS).ok());

/// Looks at the output of one program as it comes, in constant memory.
#[derive(Debug, Default)]
pub(super) struct DenialWatch {
    joined: Vec<u8>,
    streams: [Vec<u8>; 3],
    seen: u64,
    /// How much had been seen with the last word.
    last: Option<u64>,
}

impl DenialWatch {
    /// Takes the next output.
    pub(super) fn see(&mut self, stream: ExecOutputStream, bytes: &[u8]) {
        self.seen += bytes.len() as u64;
        let own = match stream {
            ExecOutputStream::Stdout => &mut self.streams[0],
            ExecOutputStream::Stderr => &mut self.streams[1],
            ExecOutputStream::Pty => &mut self.streams[2],
        };
        let across = [crosses(own, bytes), crosses(&mut self.joined, bytes)];
        if across.contains(&true) || holds(bytes) {
            self.last = Some(self.seen);
        }
    }

    /// The guess.
    pub(super) fn denied(&self, code: i32) -> bool {
        let said = self.last.is_some_and(|last| self.seen - last < REACH);
        code == BAD_CALL || (code != 0 && said)
    }
}

fn holds(bytes: &[u8]) -> bool {
    SEARCH.as_ref().is_some_and(|search| search.is_match(bytes))
}

/// Whether a word begins in the tail and ends in the bytes; the tail is then that of the bytes.
fn crosses(tail: &mut Vec<u8>, bytes: &[u8]) -> bool {
    let border = tail.len();
    tail.extend_from_slice(&bytes[..bytes.len().min(TAIL)]);
    let mut words = SEARCH.iter().flat_map(|search| search.find_iter(tail.as_slice()));
    let found = words.any(|word| word.end() > border);
    if bytes.len() > TAIL {
        tail.clear();
        tail.extend_from_slice(&bytes[bytes.len() - TAIL..]);
    }
    tail.drain(..tail.len().saturating_sub(TAIL));
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn watch(chunks: &[(ExecOutputStream, &[u8])]) -> DenialWatch {
        let mut watch = DenialWatch::default();
        chunks.iter().for_each(|(stream, bytes)| watch.see(*stream, bytes));
        watch
    }

    #[test]
    fn words_count_within_reach_and_with_a_failure_only() {
        use ExecOutputStream::{Stderr, Stdout};
        let said = watch(&[(Stderr, b"sh: x: Read-Only file SYSTEM\n")]);
        assert!(said.denied(1) && !said.denied(0));
        assert!(!watch(&[(Stdout, b"fine")]).denied(1) && watch(&[]).denied(159));
        let long = vec![b'x'; 1 << 20];
        assert!(!watch(&[(Stderr, b"seccomp"), (Stdout, &long)]).denied(1));
        assert!(watch(&[(Stderr, b"sand"), (Stdout, b"box")]).denied(1));
        assert!(watch(&[(Stderr, b"sand"), (Stdout, b"-"), (Stderr, b"box")]).denied(1));
    }

    proptest! {
        #[test]
        fn however_output_is_cut_a_word_is_found(
            before in "[a-z ]{0,40}", word in 0..WORDS.len(), after in "[a-z ]{0,40}", cuts in prop::collection::vec(0..120_usize, 0..6)
        ) {
            let text = format!("{before}{}{after}", WORDS[word]);
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(text.len())).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            let chunks: Vec<_> =
                cuts.windows(2).map(|cut| (ExecOutputStream::Pty, &text.as_bytes()[cut[0]..cut[1]])).collect();
            prop_assert!(watch(&chunks).denied(7));
        }
    }
}
