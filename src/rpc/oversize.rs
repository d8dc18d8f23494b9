//! Drops messages above the size limit before the WebSocket library sees them.
//!
//! The library ends a connection on the header of a message that is too large. This protocol answers such a message
//! with an error that carries its id, so the bytes have to be looked at without being kept. This filter sits below
//! the library and reads frame headers only: it cuts a message that grows beyond the limit to a short one, remembers
//! which it was, and keeps a little of its end. Everything else, malformed frames included, passes unchanged.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::protocol::MAX_MESSAGE_BYTES;

/// What stays of a cut message's beginning.
const HEAD_BYTES: u64 = 64 << 10;
/// What is remembered of its end.
const TAIL_BYTES: usize = 512;
const MAX_HEADER: usize = 14;

const FIN: u8 = 0x80;
const MASKED: u8 = 0x80;
const BINARY: u8 = 0x2;

/// See the module's description.
pub(super) struct OversizeGuard<S> {
    io: S,
    enabled: bool,
    limits: Limits,
    place: Place,
    /// A header that has not come completely.
    header: Vec<u8>,
    /// Data bytes of the message so far.
    message_bytes: u64,
    /// Number of the current data message.
    message: u64,
    cutting: bool,
    tail: VecDeque<u8>,
    finished: VecDeque<(u64, Bytes)>,
    /// Bytes that came in.
    seen: u64,
}

/// What a message may weigh, and how much of a cut one's beginning passes. A limit below what needs the long form of a
/// header (65,535) would let a short header outgrow the one it stands for.
#[derive(Debug, Clone, Copy)]
struct Limits {
    message: u64,
    head: u64,
}

/// Where in the stream of frames the next byte belongs.
#[derive(Debug, Clone, Copy)]
enum Place {
    Header,
    /// Payload that passes, then payload that is dropped.
    Payload {
        pass: u64,
        drop: u64,
        mask: [u8; 4],
        at: u64,
        ends_message: bool,
    },
}

impl<S> OversizeGuard<S> {
    pub(super) fn new(io: S, enabled: bool) -> Self {
        let limits = Limits { message: MAX_MESSAGE_BYTES as u64, head: HEAD_BYTES };
        Self {
            io,
            enabled,
            limits,
            place: Place::Header,
            header: Vec::new(),
            message_bytes: 0,
            message: 0,
            cutting: false,
            tail: VecDeque::new(),
            finished: VecDeque::new(),
            seen: 0,
        }
    }

    pub(super) fn get_ref(&self) -> &S {
        &self.io
    }

    /// Bytes seen in all, while a message has begun and not ended; at any time where frames are not looked at.
    pub(super) fn incoming_progress(&self) -> Option<u64> {
        let within = !self.enabled || self.message_bytes > 0 || !matches!(self.place, Place::Header);
        within.then_some(self.seen)
    }

    /// Whether a data message, counted from 0, was or is being cut.
    pub(super) fn cuts(&self, message: u64) -> bool {
        (self.cutting && self.message == message)
            || self.finished.iter().any(|(number, _)| *number == message)
    }

    /// The end of a cut message, once it has been dropped completely.
    pub(super) fn take_tail(&mut self, message: u64) -> Option<Bytes> {
        let place = self.finished.iter().position(|(number, _)| *number == message)?;
        self.finished.remove(place).map(|(_, tail)| tail)
    }

    /// Filters bytes in place and returns how many stay.
    fn filter(&mut self, bytes: &mut [u8]) -> usize {
        let (mut from, mut to) = (0, 0);
        self.seen += bytes.len() as u64;
        while from < bytes.len() {
            match self.place {
                Place::Header => {
                    self.header.push(bytes[from]);
                    from += 1;
                    if let Some(length) =
                        header_length(&self.header).filter(|length| *length == self.header.len())
                    {
                        let header = self.decide(length);
                        bytes[to..to + header.len()].copy_from_slice(&header);
                        to += header.len();
                    }
                }
                Place::Payload { pass, drop, mask, at, ends_message } if pass > 0 => {
                    let count = (bytes.len() - from).min(usize::try_from(pass).unwrap_or(usize::MAX));
                    bytes.copy_within(from..from + count, to);
                    (from, to) = (from + count, to + count);
                    let count = count as u64;
                    self.place =
                        Place::Payload { pass: pass - count, drop, mask, at: at + count, ends_message };
                    self.end_payload();
                }
                Place::Payload { drop, mask, at, ends_message, .. } => {
                    let count = (bytes.len() - from).min(usize::try_from(drop).unwrap_or(usize::MAX));
                    self.remember(&bytes[from..from + count], mask, at);
                    from += count;
                    let count = count as u64;
                    self.place =
                        Place::Payload { pass: 0, drop: drop - count, mask, at: at + count, ends_message };
                    self.end_payload();
                }
            }
        }
        to
    }

    /// Decides about a complete header; returns what the library gets of it.
    fn decide(&mut self, length: usize) -> Vec<u8> {
        let mut header = std::mem::take(&mut self.header);
        let (first, payload) = (header[0], payload_length(&header));
        let is_data = first & 0x08 == 0;
        if !is_data || header[1] & MASKED == 0 {
            self.place = Place::Payload { pass: payload, drop: 0, mask: [0; 4], at: 0, ends_message: false };
            self.end_payload();
            return header;
        }
        let mask: [u8; 4] = header[length - 4..].try_into().unwrap_or_default();
        let ends_message = first & FIN != 0;
        let before = self.message_bytes;
        self.message_bytes = before.saturating_add(payload);
        if self.cutting {
            self.place = Place::Payload { pass: 0, drop: payload, mask, at: 0, ends_message };
            header.clear();
        } else if self.message_bytes > self.limits.message {
            self.cutting = true;
            // An empty fragment may have gone ahead, so the bytes so far do not tell alone.
            let begins = before == 0 && first & 0x0f != 0;
            let pass = if begins { payload.min(self.limits.head) } else { 0 };
            self.place = Place::Payload { pass, drop: payload - pass, mask, at: 0, ends_message };
            // A text cut within a character would be refused as invalid; as bytes it is not looked at.
            let kind = if begins { (first & !0x0f) | BINARY } else { first };
            header = short_header(kind | FIN, pass, mask);
        } else {
            self.place = Place::Payload { pass: payload, drop: 0, mask, at: 0, ends_message };
        }
        self.end_payload();
        header
    }

    fn end_payload(&mut self) {
        if let Place::Payload { pass: 0, drop: 0, ends_message, .. } = self.place {
            self.place = Place::Header;
            if ends_message {
                self.message_bytes = 0;
                if std::mem::take(&mut self.cutting) {
                    let tail: Vec<u8> = self.tail.drain(..).collect();
                    self.finished.push_back((self.message, tail.into()));
                }
                self.message += 1;
            }
        }
    }

    fn remember(&mut self, bytes: &[u8], mask: [u8; 4], at: u64) {
        let skip = bytes.len().saturating_sub(TAIL_BYTES);
        for (offset, byte) in bytes.iter().enumerate().skip(skip) {
            if self.tail.len() == TAIL_BYTES {
                self.tail.pop_front();
            }
            let key = mask[usize::try_from((at + offset as u64) % 4).unwrap_or(0)];
            self.tail.push_back(byte ^ key);
        }
    }
}

/// The length of a header, as soon as its first two bytes are there.
fn header_length(header: &[u8]) -> Option<usize> {
    let second = *header.get(1)?;
    let extended = match second & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    Some(2 + extended + if second & MASKED == 0 { 0 } else { 4 })
}

fn payload_length(header: &[u8]) -> u64 {
    match header[1] & 0x7f {
        126 => u64::from(u16::from_be_bytes([header[2], header[3]])),
        127 => header[2..10].try_into().map_or(u64::MAX, u64::from_be_bytes),
        short => u64::from(short),
    }
}

fn short_header(first: u8, length: u64, mask: [u8; 4]) -> Vec<u8> {
    let mut header = vec![first];
    // The same form as the original, so that the filtered bytes never outgrow what came.
    if length == 0 {
        header.push(MASKED);
    } else {
        header.push(MASKED | 127);
        header.extend_from_slice(&length.to_be_bytes());
    }
    header.extend_from_slice(&mask);
    header
}

impl<S: AsyncRead + Unpin> AsyncRead for OversizeGuard<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.enabled || buffer.remaining() < MAX_HEADER {
            // Less room than a header only comes within a payload, which passes as it is.
            return this.poll_read_narrow(cx, buffer);
        }
        loop {
            let start = buffer.filled().len();
            // Bytes of an unfinished header are given again in front of what follows them.
            let held = std::mem::take(&mut this.header);
            buffer.put_slice(&held);
            match Pin::new(&mut this.io).poll_read(cx, buffer) {
                Poll::Ready(Ok(())) if buffer.filled().len() > start + held.len() => {}
                other => {
                    buffer.set_filled(start);
                    this.header = held;
                    return other;
                }
            }
            let kept = this.filter(&mut buffer.filled_mut()[start..]);
            buffer.set_filled(start + kept);
            if kept > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + Unpin> OversizeGuard<S> {
    fn poll_read_narrow(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let start = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        if self.enabled {
            let kept = self.filter(&mut buffer.filled_mut()[start..]);
            buffer.set_filled(start + kept);
        } else {
            self.seen += (buffer.filled().len() - start) as u64;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for OversizeGuard<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}

/// What passes of bytes that come in pieces, and the number and end of each message that was cut: for the fuzz targets,
/// with limits that small inputs reach.
pub(crate) fn filter_for_fuzzing(input: &[u8], piece: usize) -> (Vec<u8>, Vec<(u64, Bytes)>) {
    let mut guard = OversizeGuard::new(Pieces { rest: input, piece: piece.max(1) }, true);
    guard.limits = Limits { message: FUZZING_LIMITS.0, head: FUZZING_LIMITS.1 };
    let mut passed = Vec::new();
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let mut space = vec![0; 8192];
    loop {
        let mut buffer = ReadBuf::new(&mut space);
        match Pin::new(&mut guard).poll_read(&mut cx, &mut buffer) {
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => passed.extend_from_slice(buffer.filled()),
            _ => return (passed, guard.finished.into()),
        }
    }
}

/// The largest message and what passes of a cut one, in [`filter_for_fuzzing`].
pub(crate) const FUZZING_LIMITS: (u64, u64) = (1 << 16, 1000);

/// A stream that gives a few bytes at a time.
struct Pieces<'a> {
    rest: &'a [u8],
    piece: usize,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (now, later) = self.rest.split_at(self.rest.len().min(self.piece).min(buffer.remaining()));
        buffer.put_slice(now);
        self.rest = later;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(first: u8, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
        let mut bytes = vec![first];
        match payload.len() {
            short @ 0..126 => bytes.push(MASKED | u8::try_from(short).unwrap()),
            long => {
                bytes.push(MASKED | 127);
                bytes.extend_from_slice(&(long as u64).to_be_bytes());
            }
        }
        bytes.extend_from_slice(&mask);
        bytes.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]));
        bytes
    }

    /// Feeds bytes in pieces, as `poll_read` does.
    fn pass(guard: &mut OversizeGuard<()>, bytes: &[u8], piece: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for piece in bytes.chunks(piece) {
            let mut buffer = std::mem::take(&mut guard.header);
            buffer.extend_from_slice(piece);
            let kept = guard.filter(&mut buffer);
            out.extend_from_slice(&buffer[..kept]);
        }
        out
    }

    proptest! {
        #[test]
        fn ordinary_frames_pass_unchanged(
            payloads in proptest::collection::vec((0_u8..16, any::<bool>(), proptest::collection::vec(any::<u8>(), 0..300)), 0..6),
            mask: [u8; 4],
            piece in 1_usize..50,
        ) {
            let bytes: Vec<u8> = payloads
                .iter()
                .flat_map(|(opcode, fin, payload)| frame(opcode | if *fin { FIN } else { 0 }, payload, mask))
                .collect();
            let mut guard = OversizeGuard::new((), true);
            prop_assert_eq!(pass(&mut guard, &bytes, piece), bytes);
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>, piece in 1_usize..40) {
            pass(&mut OversizeGuard::new((), true), &bytes, piece);
        }
    }

    #[test]
    fn a_large_frame_is_cut_and_the_next_passes() {
        let mask = [1, 2, 3, 4];
        let mut large = vec![b' '; MAX_MESSAGE_BYTES + 1];
        let end = large.len();
        large[end - 8..].copy_from_slice(b"\"id\": 7}");
        let small = frame(FIN | 1, b"next", mask);
        let mut bytes = frame(FIN | 1, &large, mask);
        bytes.extend_from_slice(&small);
        let mut guard = OversizeGuard::new((), true);
        let out = pass(&mut guard, &bytes, 100_000);
        assert!(guard.cuts(0) && !guard.cuts(1));
        assert!(guard.take_tail(0).unwrap().ends_with(b"\"id\": 7}"));
        assert!(!guard.cuts(0));
        assert_eq!(out[0], FIN | BINARY);
        assert_eq!(payload_length(&out), HEAD_BYTES);
        assert_eq!(out[14 + usize::try_from(HEAD_BYTES).unwrap()..], small);
    }

    #[test]
    fn fragments_beyond_the_limit_are_dropped() {
        let mask = [9, 8, 7, 6];
        let part = vec![b'x'; MAX_MESSAGE_BYTES];
        let mut bytes = frame(1, &part, mask);
        bytes.extend(frame(0, b"more", mask));
        bytes.extend(frame(FIN | 9, b"ping", mask));
        bytes.extend(frame(FIN, b"end", mask));
        bytes.extend(frame(FIN | 1, b"next", mask));
        let mut guard = OversizeGuard::new((), true);
        let out = pass(&mut guard, &bytes, 65_536);
        let mut expected = frame(1, &part, mask);
        expected.extend(frame(FIN, b"", mask));
        expected.extend(frame(FIN | 9, b"ping", mask));
        expected.extend(frame(FIN | 1, b"next", mask));
        assert!(out == expected);
        assert_eq!(guard.take_tail(0).unwrap(), &b"moreend"[..]);
    }

    #[test]
    fn a_fragment_behind_an_empty_one_begins_no_message() {
        let mask = [5, 6, 7, 8];
        let large = vec![b'x'; MAX_MESSAGE_BYTES + 1];
        let bytes = [frame(1, b"", mask), frame(FIN, &large, mask), frame(FIN | 1, b"next", mask)].concat();
        let mut guard = OversizeGuard::new((), true);
        let out = pass(&mut guard, &bytes, 65_536);
        assert_eq!(out, [frame(1, b"", mask), frame(FIN, b"", mask), frame(FIN | 1, b"next", mask)].concat());
        assert!(guard.cuts(0) && !guard.cuts(1));
    }
}
