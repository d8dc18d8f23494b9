//! Requests to the kernel over netlink, and its answers (`netlink(7)`).

use rustix::io::{Errno, Result};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

/// `NLM_F_REQUEST` and `NLM_F_ACK`.
const REQUEST_WITH_ANSWER: u16 = 5;
const REQUEST: u16 = 1;
const ERROR: u16 = 2;
const HEADER_BYTES: usize = 16;
const NESTED: u16 = 1 << 15;

/// Messages that go to the kernel together.
#[derive(Default)]
pub(super) struct Requests {
    bytes: Vec<u8>,
    /// Answers that there will be if none of it fails.
    answers: usize,
}

impl Requests {
    /// Adds one that the kernel answers.
    pub(super) fn add(&mut self, kind: u16, flags: u16, body: &[u8]) -> Result<()> {
        self.answers += 1;
        self.put(kind, REQUEST_WITH_ANSWER | flags, body)
    }

    /// Adds one that the kernel does not answer.
    pub(super) fn add_unanswered(&mut self, kind: u16, body: &[u8]) -> Result<()> {
        self.put(kind, REQUEST, body)
    }

    fn put(&mut self, kind: u16, flags: u16, body: &[u8]) -> Result<()> {
        let length = u32::try_from(HEADER_BYTES + body.len()).map_err(|_| Errno::INVAL)?;
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        self.bytes.extend([0; 8]);
        self.bytes.extend(body);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        Ok(())
    }

    /// Has the kernel do all of it, and hears whether it has. Without a protocol, that of interfaces and routes.
    pub(super) fn send(self, protocol: Option<Protocol>) -> Result<()> {
        let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
        let netlink = socket_with(family, SocketType::RAW, flags, protocol)?;
        sendto(&netlink, &self.bytes, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        let mut missing = self.answers;
        let mut buffer = [0; 4096];
        while missing > 0 {
            let (received, _) = recv(&netlink, &mut buffer, RecvFlags::empty())?;
            missing = missing.saturating_sub(successes(buffer.get(..received).unwrap_or_default())?);
        }
        Ok(())
    }
}

/// How many answers say that something has been done.
fn successes(mut answers: &[u8]) -> Result<usize> {
    let mut count = 0;
    while !answers.is_empty() {
        let length = four(answers, 0).map(u32::from_ne_bytes).and_then(|length| usize::try_from(length).ok());
        let answer = length.and_then(|length| answers.get(..length)).ok_or(Errno::BADMSG)?;
        outcome(answer)?;
        count += 1;
        answers = answers.get(answer.len().next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(count)
}

/// What an answer says: a negative error number, or 0.
fn outcome(answer: &[u8]) -> Result<()> {
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    match (kind, four(answer, HEADER_BYTES).map(i32::from_ne_bytes)) {
        (Some(ERROR), Some(0)) => Ok(()),
        (Some(ERROR), Some(error)) => Err(Errno::from_raw_os_error(error.saturating_neg())),
        _ => Err(Errno::BADMSG),
    }
}

fn four(bytes: &[u8], at: usize) -> Option<[u8; 4]> {
    bytes.get(at..at + 4)?.try_into().ok()
}

/// What a message says beyond its fixed part.
#[derive(Default)]
pub(super) struct Attributes(Vec<u8>);

impl Attributes {
    pub(super) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        // Nothing here comes near the limit.
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(super) fn with_text(self, kind: u16, text: &str) -> Self {
        self.with(kind, &[text.as_bytes(), b"\0"].concat())
    }

    pub(super) fn with_number(self, kind: u16, number: u32) -> Self {
        self.with(kind, &number.to_be_bytes())
    }

    pub(super) fn with_nested(self, kind: u16, attributes: &Self) -> Self {
        self.with(kind | NESTED, &attributes.0)
    }

    /// The attributes behind the fixed part of a message.
    pub(super) fn behind(&self, fixed: &[u8]) -> Vec<u8> {
        [fixed, &self.0].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(kind: u16, error: i32) -> Vec<u8> {
        let header = [36_u32.to_ne_bytes().as_slice(), &kind.to_ne_bytes(), &[0; 10]].concat();
        [header.as_slice(), &error.to_ne_bytes(), &[0; 16]].concat()
    }

    #[test]
    fn only_an_answer_that_says_so_is_a_success() {
        assert_eq!(successes(&answer(ERROR, 0)), Ok(1));
        assert_eq!(successes(&[answer(ERROR, 0), answer(ERROR, 0)].concat()), Ok(2));
        assert_eq!(successes(&[answer(ERROR, 0), answer(ERROR, -1)].concat()), Err(Errno::PERM));
        assert_eq!(successes(&answer(3, 0)), Err(Errno::BADMSG));
        for length in 1..36 {
            assert_eq!(successes(&answer(ERROR, 0)[..length]), Err(Errno::BADMSG), "{length}");
        }
        assert_eq!(successes(&[0; 8]), Err(Errno::BADMSG));
    }

    #[test]
    fn attributes_are_aligned_and_nest() {
        let inner = Attributes::default().with_text(1, "ab");
        let bytes = Attributes::default().with_number(2, 7).with_nested(3, &inner).behind(&[9; 4]);
        let (eight, twelve) = (8_u16.to_ne_bytes(), 12_u16.to_ne_bytes());
        let (one, two, three) = (1_u16.to_ne_bytes(), 2_u16.to_ne_bytes(), (3 | NESTED).to_ne_bytes());
        let seven = 7_u16.to_ne_bytes();
        let inner = [&seven[..], &one, b"ab\0\0"].concat();
        assert_eq!(bytes, [&[9; 4][..], &eight, &two, &[0, 0, 0, 7], &twelve, &three, &inner].concat());
    }
}
