//! What a method is, and the tables of them.
//!
//! Each module of the protocol declares its methods once, with [`methods`] and [`notifications`]. A row makes a marker
//! type, which the dispatcher and the client use, and a [`Signature`], which tells the same as a value.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, de::DeserializeOwned};

/// A request method: its wire name, what it takes and what it answers.
pub trait Method {
    /// The name on the wire, such as `process/start`.
    const NAME: &'static str;
    /// The decoded `params`.
    type Params: Serialize + DeserializeOwned + JsonSchema + Send + 'static;
    /// The `result` of success.
    type Output: Serialize + DeserializeOwned + JsonSchema + Send + 'static;
}

/// A notification: its wire name and its params.
pub trait NotificationMethod {
    /// The name on the wire, such as `process/exited`.
    const NAME: &'static str;
    /// The decoded `params`.
    type Params: Serialize + DeserializeOwned + JsonSchema + Send + 'static;
}

/// Who sends a request or a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// The client.
    Client,
    /// The server.
    Server,
}

/// Gives the schema of one type, and leaves those that it refers to with the generator.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// How a method fails, beyond what every method has in common.
#[derive(Debug, Clone, Copy)]
pub struct Failures {
    /// Codes that not every method has.
    pub codes: &'static [i64],
    /// The `data` of its errors, where they have any.
    pub data: Option<SchemaOf>,
}

impl Failures {
    /// Nothing of its own.
    pub const COMMON: Self = Self { codes: &[], data: None };

    /// Codes of its own, and the type of the `data`.
    #[must_use]
    pub const fn with<T: JsonSchema>(codes: &'static [i64]) -> Self {
        Self { codes, data: Some(schema_of::<T>) }
    }
}

/// A row of a table of methods: the types of a method as their schemas.
#[derive(Debug, Clone, Copy)]
pub struct Signature {
    /// The name on the wire.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub summary: &'static str,
    /// Who sends it.
    pub sender: Sender,
    /// The `params`.
    pub params: SchemaOf,
    /// The `result`; a notification has none.
    pub result: Option<SchemaOf>,
    /// Its errors.
    pub failures: Failures,
}

impl Signature {
    /// That of a request.
    pub(super) const fn request<M: Method>(
        summary: &'static str,
        sender: Sender,
        failures: Failures,
    ) -> Self {
        let (params, result) = (schema_of::<M::Params>, schema_of::<M::Output>);
        Self { name: M::NAME, summary, sender, params, result: Some(result), failures }
    }

    /// That of a notification.
    pub(super) const fn notification<N: NotificationMethod>(summary: &'static str, sender: Sender) -> Self {
        let params = schema_of::<N::Params>;
        Self { name: N::NAME, summary, sender, params, result: None, failures: Failures::COMMON }
    }
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// Declares marker types for methods, and `METHODS`, the table of them: who sends them, then
/// `Name = "wire/name": Params => Output;`, with `, Failures` behind it where a method has failures of its own.
macro_rules! methods {
    (from $sender:ident; $(
        #[doc = $summary:literal]
        $name:ident = $wire:literal : $params:ty => $output:ty $(, $failures:expr)?;
    )*) => {
        $(
            #[doc = $summary]
            #[derive(Debug, Clone, Copy)]
            pub struct $name;
            impl $crate::protocol::Method for $name {
                const NAME: &'static str = $wire;
                type Params = $params;
                type Output = $output;
            }
        )*

        pub(super) const METHODS: &[$crate::protocol::Signature] = &[$(
            $crate::protocol::Signature::request::<$name>(
                $summary,
                $crate::protocol::Sender::$sender,
                $crate::protocol::method::failures!($($failures)?),
            )
        ),*];
    };
}

/// The failures of a row.
macro_rules! failures {
    () => {
        $crate::protocol::Failures::COMMON
    };
    ($failures:expr) => {
        $failures
    };
}

/// Declares marker types for notifications, and `NOTIFICATIONS`, the table of them: who sends them, then
/// `Name = "wire/name": Params;`.
macro_rules! notifications {
    (from $sender:ident; $(
        #[doc = $summary:literal]
        $name:ident = $wire:literal : $params:ty;
    )*) => {
        $(
            #[doc = $summary]
            #[derive(Debug, Clone, Copy)]
            pub struct $name;
            impl $crate::protocol::NotificationMethod for $name {
                const NAME: &'static str = $wire;
                type Params = $params;
            }
        )*

        pub(super) const NOTIFICATIONS: &[$crate::protocol::Signature] = &[$(
            $crate::protocol::Signature::notification::<$name>($summary, $crate::protocol::Sender::$sender)
        ),*];
    };
}

pub(super) use {failures, methods, notifications};
