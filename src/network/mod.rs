//! Managed networking: a proxy for each start that asks for one.
//!
//! * [`desk`] is where the proxies of a session ask its client and report to it.
//! * [`endpoints`] are proxies that somebody else runs, as the variables of a start name them.
//! * [`proxy`] is the proxy itself.

pub mod desk;
pub mod endpoints;
pub mod proxy;
