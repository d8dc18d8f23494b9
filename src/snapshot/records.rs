//! Finds what a capture says in what its shell prints.
//!
//! The capture prints a mark that nobody can guess, then fields, then the mark again; a NUL byte ends each. What comes
//! before the first mark is what the start-up files printed. Nothing after the second is waited for.

use std::vec::IntoIter;

use memchr::memmem;

/// What a capture may print in all, the start-up files' own output included.
pub(super) const MAX_OUTPUT: usize = 8 << 20;

/// What sets a capture's fields off from everything else: 32 hexadecimal digits, new for each.
#[derive(Debug, Clone)]
pub(super) struct Mark(String);

impl Mark {
    pub(super) fn new() -> Self {
        Self(uuid::Uuid::new_v4().simple().to_string())
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Whether a variable's name is one of the capture's own.
    pub(super) fn names(&self, variable: &[u8]) -> bool {
        let own = variable.strip_prefix(b"_");
        own.is_some_and(|rest| rest.starts_with(self.0.as_bytes()))
    }
}

/// What came of a piece of output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// More is needed.
    More,
    /// The fields, whole.
    Complete(Fields),
    /// There is more output than a capture may have.
    TooLarge,
}

/// Reads the output in pieces of any size.
#[derive(Debug)]
pub(super) struct Scanner {
    mark: Vec<u8>,
    held: Vec<u8>,
    begun: bool,
    /// Up to here what is held has no closing mark.
    searched: usize,
    taken: usize,
}

impl Scanner {
    pub(super) fn new(mark: &Mark) -> Self {
        let mark = [mark.text().as_bytes(), b"\0"].concat();
        Self { mark, held: Vec::new(), begun: false, searched: 0, taken: 0 }
    }

    /// Whether nothing at all has been printed.
    pub(super) fn is_untouched(&self) -> bool {
        self.taken == 0
    }

    pub(super) fn push(&mut self, bytes: &[u8]) -> Progress {
        self.taken += bytes.len();
        if self.taken > MAX_OUTPUT {
            return Progress::TooLarge;
        }
        self.held.extend_from_slice(bytes);
        if !self.begun {
            self.begin();
        }
        if self.begun { self.end() } else { Progress::More }
    }

    /// Drops everything up to the first mark, but for what may be the beginning of it.
    fn begin(&mut self) {
        match memmem::find(&self.held, &self.mark) {
            Some(place) => {
                self.held.drain(..place + self.mark.len());
                self.begun = true;
            }
            None => {
                let kept = self.held.len().min(self.mark.len());
                self.held.drain(..self.held.len() - kept);
            }
        }
    }

    fn end(&mut self) -> Progress {
        // The mark is a field of its own: a NUL stands before it, unless there are no fields.
        if self.held.starts_with(&self.mark) {
            return Progress::Complete(Fields::of(&[]));
        }
        let closing = [b"\0", self.mark.as_slice()].concat();
        if let Some(place) = memmem::find(&self.held[self.searched..], &closing) {
            return Progress::Complete(Fields::of(&self.held[..=self.searched + place]));
        }
        self.searched = self.held.len().saturating_sub(closing.len());
        Progress::More
    }
}

/// The fields of a capture, in order.
#[derive(Debug)]
pub(super) struct Fields(IntoIter<Vec<u8>>);

impl Fields {
    /// Of bytes that end with a NUL, or are empty.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut fields: Vec<Vec<u8>> = bytes.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
        fields.pop();
        Self(fields.into_iter())
    }

    /// Checks and takes away the last two, `total` and the length of all that stand before, as decimal digits.
    pub(super) fn undisturbed(self) -> Option<Self> {
        let mut fields = self.0;
        let said = fields.next_back()?;
        let is_total = fields.next_back()? == b"total";
        let total: usize = fields.as_slice().iter().map(Vec::len).sum();
        (is_total && said == total.to_string().as_bytes()).then_some(Self(fields))
    }
}

impl PartialEq for Fields {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_slice() == other.0.as_slice()
    }
}

impl Eq for Fields {}

impl Iterator for Fields {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        self.0.next()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn printed(mark: &Mark, noise: &[u8], fields: &[Vec<u8>]) -> Vec<u8> {
        let mut output = noise.to_vec();
        for field in std::iter::once(mark.text().as_bytes())
            .chain(fields.iter().map(Vec::as_slice))
            .chain([mark.text().as_bytes()])
        {
            output.extend_from_slice(field);
            output.push(0);
        }
        output
    }

    proptest! {
        #[test]
        fn fields_come_back_however_they_arrive(
            noise in proptest::collection::vec(any::<u8>(), 0..100),
            fields in proptest::collection::vec(proptest::collection::vec(1_u8..=255, 0..20), 0..10),
            after in proptest::collection::vec(any::<u8>(), 0..50),
            piece in 1_usize..50,
        ) {
            let mark = Mark::new();
            let mut output = printed(&mark, &noise, &fields);
            output.extend(after);
            let mut scanner = Scanner::new(&mark);
            let complete = output.chunks(piece).find_map(|piece| match scanner.push(piece) {
                Progress::Complete(fields) => Some(fields.collect::<Vec<_>>()),
                _ => None,
            });
            prop_assert_eq!(complete, Some(fields));
        }
    }

    #[test]
    fn what_is_printed_in_between_is_noticed() {
        let undisturbed = |text: &[u8]| Fields::of(text).undisturbed().map(Iterator::collect::<Vec<_>>);
        assert_eq!(undisturbed(b"a\0bc\0total\x003\0"), Some(vec![b"a".to_vec(), b"bc".to_vec()]));
        for disturbed in [
            b"a\0spam\nbc\0total\x003\0".as_slice(),
            b"a\0bc\0total\x00spam\n3\0",
            b"a\0bc\0spam\ntotal\x003\0",
            b"a\0bc\0",
            b"a\0",
            b"",
        ] {
            assert_eq!(undisturbed(disturbed), None);
        }
    }

    #[test]
    fn output_without_an_end_is_not_complete() {
        let mark = Mark::new();
        let whole = printed(&mark, b"noise", &[b"a".to_vec(), b"b".to_vec()]);
        for end in 0..whole.len() {
            assert_eq!(Scanner::new(&mark).push(&whole[..end]), Progress::More, "{end}");
        }
    }

    #[test]
    fn noise_is_not_kept_and_still_counts() {
        let mark = Mark::new();
        let mut scanner = Scanner::new(&mark);
        for _ in 0..MAX_OUTPUT >> 16 {
            assert_eq!(scanner.push(&[b'x'; 1 << 16]), Progress::More);
            assert!(scanner.held.len() < 100);
        }
        assert_eq!(scanner.push(b"x"), Progress::TooLarge);
    }
}
