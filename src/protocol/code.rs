//! JSON-RPC error codes of this protocol.

/// A code and what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorCode {
    /// The name of its constant.
    pub name: &'static str,
    /// The number on the wire.
    pub code: i64,
    /// When it is used.
    pub meaning: &'static str,
}

/// Declares a constant for each code, and [`ALL`].
macro_rules! codes {
    ($(#[doc = $meaning:literal] $name:ident = $code:literal;)*) => {
        $(
            #[doc = $meaning]
            pub const $name: i64 = $code;
        )*

        /// All of them.
        pub const ALL: &[ErrorCode] =
            &[$(ErrorCode { name: stringify!($name), code: $code, meaning: $meaning }),*];
    };
}

codes! {
    /// Malformed message, wrong state, unknown or duplicate process, unknown session, refused input.
    INVALID_REQUEST = -32600;
    /// Unknown method.
    METHOD_NOT_FOUND = -32601;
    /// Params that do not decode, or that can never be right.
    INVALID_PARAMS = -32602;
    /// The operation itself failed: a program that cannot be started, an I/O error.
    INTERNAL = -32603;
    /// A path or a file handle that does not exist.
    NOT_FOUND = -32004;
    /// The session is attached to another connection.
    SESSION_ATTACHED = -32010;
}

/// Those that every method of the server has: wrong state, wrong params, trouble.
pub const OF_EVERY_METHOD: [i64; 3] = [INVALID_REQUEST, INVALID_PARAMS, INTERNAL];
