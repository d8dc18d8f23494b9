//! All methods and notifications of the protocol.

use super::method::Signature;
use super::{discovery, environment, fs, http, network, process, session};

/// Every table of the protocol. One that is missing here is dead code.
const TABLES: [&[Signature]; 12] = [
    session::METHODS,
    session::NOTIFICATIONS,
    environment::METHODS,
    discovery::METHODS,
    process::METHODS,
    process::NOTIFICATIONS,
    fs::METHODS,
    fs::NOTIFICATIONS,
    http::METHODS,
    http::NOTIFICATIONS,
    network::METHODS,
    network::NOTIFICATIONS,
];

/// All methods and notifications, of both directions.
pub fn signatures() -> impl Iterator<Item = &'static Signature> {
    TABLES.into_iter().flatten()
}
