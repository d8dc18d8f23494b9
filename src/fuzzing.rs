//! What the fuzz targets need of private parts. No part of the interface: it may change in any release.

use std::net::SocketAddr;

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};
use serde_json::Value;

use crate::discovery;
use crate::network::proxy::http::framing::RequestReader;
use crate::network::proxy::http::target::Target;
use crate::network::proxy::socks::wire::{self, Command, Parsed};
use crate::protocol::envelope::ErrorObject;
use crate::rpc::oversize;
use crate::server::connection;

/// The wire names of all requests that the server understands.
pub const METHODS: &[&str] = connection::METHODS;

/// The largest message, and how much of a larger one's beginning passes, in [`filter`].
pub const FILTER_LIMITS: (u64, u64) = oversize::FUZZING_LIMITS;

/// Decodes the params of a request as the server does, and encodes them again.
///
/// # Errors
/// An unknown method, or params that do not fit.
pub fn recode(method: &str, params: Value) -> Result<Value, ErrorObject> {
    connection::recode(method, params)
}

/// What the filter of large messages lets through of bytes that come in pieces, and the number and end of each message
/// that it cut.
#[must_use]
pub fn filter(input: &[u8], piece: usize) -> (Vec<u8>, Vec<(u64, Bytes)>) {
    oversize::filter_for_fuzzing(input, piece)
}

/// What a text says as the head of a skill (name, description, short description), as its metadata (kinds and names of
/// tools) and as the manifest of a plugin (the names on the way to each declared file).
#[must_use]
pub fn capability(text: &str) -> (Option<[String; 3]>, Vec<String>, Vec<Vec<String>>) {
    discovery::read_for_fuzzing(text)
}

/// Which request of a stream, in the pieces in which it comes, has two readings of its body, counted from 1. 0: none.
#[must_use]
pub fn request_with_two_readings<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> u64 {
    let mut reader = RequestReader::default();
    pieces.for_each(|piece| reader.read(piece));
    reader.ambiguous()
}

/// Where a plain request goes: its host as written, and its port. `None`: it is refused.
#[must_use]
pub fn request_target(target: &str, headers: &[(&str, &[u8])]) -> Option<(String, u16)> {
    let pair = |(name, value): &(&str, &[u8])| {
        Some((name.parse::<HeaderName>().ok()?, HeaderValue::from_bytes(value).ok()?))
    };
    let headers = headers.iter().map(pair).collect::<Option<HeaderMap>>()?;
    let target = Target::of(&target.parse().ok()?, &headers).ok()?;
    Some((target.authority.host.clone(), target.port()))
}

/// A message of SOCKS5, as far as it is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocksMessage {
    /// Not all of it.
    Incomplete,
    /// It is none.
    Invalid,
    /// What it says, and how long it is.
    Complete(String, usize),
}

/// A greeting, and a request.
#[must_use]
pub fn socks_messages(bytes: &[u8]) -> [SocksMessage; 2] {
    let request = |request: wire::Request| match (request.command, request.destination) {
        (Command::Other, _) => "other".to_owned(),
        (command, destination) => format!("{command:?} {destination:?}"),
    };
    [message(wire::greeting(bytes), |suits| suits.to_string()), message(wire::request(bytes), request)]
}

fn message<T>(parsed: Parsed<T>, text: impl FnOnce(T) -> String) -> SocksMessage {
    match parsed {
        Parsed::Incomplete => SocksMessage::Incomplete,
        Parsed::Invalid => SocksMessage::Invalid,
        Parsed::Complete(value, used) => SocksMessage::Complete(text(value), used),
    }
}

/// The destination of a datagram, and where its content begins.
#[must_use]
pub fn socks_datagram(bytes: &[u8]) -> Option<(String, u16, usize)> {
    wire::datagram(bytes).map(|(to, used)| (to.host, to.port, used))
}

/// What stands before a datagram that comes from an address.
#[must_use]
pub fn socks_header(from: SocketAddr) -> Vec<u8> {
    wire::header(from)
}
