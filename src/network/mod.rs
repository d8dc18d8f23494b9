//! Managed networking: a proxy for each start that asks for one.
//!
//! * [`desk`] is where the proxies of a session ask its client and report to it.
//! * [`proxy`] is the proxy itself.

pub mod desk;
pub mod proxy;
