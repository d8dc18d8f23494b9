use serde::{Serialize, de::DeserializeOwned};

/// A request method: its wire name, what it takes and what it answers.
pub trait Method {
    /// The name on the wire, such as `process/start`.
    const NAME: &'static str;
    /// The decoded `params`.
    type Params: Serialize + DeserializeOwned + Send + 'static;
    /// The `result` of success.
    type Output: Serialize + DeserializeOwned + Send + 'static;
}

/// A notification: its wire name and its params.
pub trait NotificationMethod {
    /// The name on the wire, such as `process/exited`.
    const NAME: &'static str;
    /// The decoded `params`.
    type Params: Serialize + DeserializeOwned + Send + 'static;
}

/// Declares marker types for methods: `Name = "wire/name": Params => Output;`.
macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident = $wire:literal : $params:ty => $output:ty;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy)]
            pub struct $name;
            impl $crate::protocol::Method for $name {
                const NAME: &'static str = $wire;
                type Params = $params;
                type Output = $output;
            }
        )*
    };
}

/// Declares marker types for notifications: `Name = "wire/name": Params;`.
macro_rules! notifications {
    ($($(#[$doc:meta])* $name:ident = $wire:literal : $params:ty;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy)]
            pub struct $name;
            impl $crate::protocol::NotificationMethod for $name {
                const NAME: &'static str = $wire;
                type Params = $params;
            }
        )*
    };
}

pub(crate) use {methods, notifications};
