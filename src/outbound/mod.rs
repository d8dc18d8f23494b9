//! How this process reaches others: which destinations it may connect to, by which proxy, and whom it trusts.
//!
//! Whoever embeds the library makes one [`HttpClientFactory`] and hands it to everything that connects. A WebSocket is
//! opened in one order: the application's network policy, the proxy, DNS and dialling, TLS. The result is a byte
//! stream that ends by itself when the policy no longer allows it. HTTP requests take policy, proxies and trust from it.

mod connect;
mod factory;
mod network_policy;
pub mod proxy;
pub mod trust;

pub use self::connect::{ConnectError, Endpoint, Stream};
pub(crate) use self::factory::find;
pub use self::factory::{HttpClientFactory, OutboundProxyPolicy};
pub use self::network_policy::{
    DestinationPolicy, NetworkPolicy, NetworkPolicyController, Permit, PolicyRefusal,
};
