//! JSON-RPC error codes of this protocol.

/// Malformed message, wrong state, unknown or duplicate process, unknown session, refused input.
pub const INVALID_REQUEST: i64 = -32600;
/// Unknown method.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// Params that do not decode, or that can never be right.
pub const INVALID_PARAMS: i64 = -32602;
/// The operation itself failed: a program that cannot be started, an I/O error.
pub const INTERNAL: i64 = -32603;
/// A path or a file handle that does not exist.
pub const NOT_FOUND: i64 = -32004;
/// The session is attached to another connection.
pub const SESSION_ATTACHED: i64 = -32010;
