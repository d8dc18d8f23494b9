//! Managed networking from outside: the proxy of a start, its client's decisions, and what a run cannot reach.

mod battery;
mod decisions;
mod lifetime;
mod peers;
pub(crate) mod target;
mod transparent;

use serde_json::{Value, json};

/// A `networkProxy` with these rules; every other member as most clients send it.
fn launch(domains: &Value) -> Value {
    json!({"proxy": {
        "enabled": true, "enableSocks5": true, "enableSocks5Udp": true, "allowUpstreamProxy": false,
        "dangerouslyAllowAllUnixSockets": false, "mode": "full", "allowLocalBinding": false, "domains": domains,
    }})
}

/// The same, with a client that is asked.
fn asking(domains: &Value) -> Value {
    let mut launch = launch(domains);
    launch["policyDecisionTimeoutMs"] = json!(30_000);
    launch
}
