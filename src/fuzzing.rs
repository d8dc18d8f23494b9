//! What the fuzz targets need of private parts. No part of the interface: it may change in any release.

use bytes::Bytes;
use serde_json::Value;

use crate::discovery;
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
