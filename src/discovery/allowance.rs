use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of the largest file that is delivered.
pub(super) const FILE_BYTES: u64 = 1 << 20;
/// Bytes of file contents that one root may deliver.
pub(super) const ROOT_BYTES: usize = 16 << 20;
/// Bytes of JSON that the files and warnings of one answer may take: a message has 64 MiB.
pub(super) const ANSWER_BYTES: usize = 60 << 20;

/// What JSON needs around a file.
const FILE_FRAME: usize = 64;

/// What all roots of an answer have in common.
#[derive(Debug, Default)]
pub(super) struct AnswerAllowance {
    taken: AtomicUsize,
}

impl AnswerAllowance {
    /// Takes room for a text at a URI. Nothing is taken if it does not fit.
    pub(super) fn take(&self, uri: &str, text: &str) -> bool {
        let bytes = FILE_FRAME + uri.len() + encoded_len(text);
        let more = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= ANSWER_BYTES);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Bytes that have been taken.
    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

/// Bytes of a text in JSON, without the quotes.
fn encoded_len(text: &str) -> usize {
    let more = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 1,
        0..0x20 => 5,
        _ => 0,
    };
    text.len() + text.bytes().map(more).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_length_is_that_of_the_encoder(text in any::<String>()) {
            prop_assert_eq!(encoded_len(&text) + 2, serde_json::to_string(&text).unwrap().len());
        }
    }

    #[test]
    fn every_byte_is_measured() {
        for byte in 0..128_u8 {
            let text = char::from(byte).to_string();
            assert_eq!(encoded_len(&text) + 2, serde_json::to_string(&text).unwrap().len(), "{byte}");
        }
    }

    #[test]
    fn what_does_not_fit_takes_nothing() {
        let answer = AnswerAllowance::default();
        let half = "x".repeat(ANSWER_BYTES / 2 - 2 * FILE_FRAME);
        assert!(answer.take("", &half) && answer.take("", &half));
        let taken = answer.taken();
        assert!(!answer.take("", &half));
        assert_eq!(answer.taken(), taken);
        assert!(answer.take("", "small"));
    }
}
