//! `schema`: the protocol for generators of clients.

use std::process::ExitCode;

use super::pages::print;
use crate::openrpc;

/// Prints the OpenRPC document.
pub(super) fn run() -> anyhow::Result<ExitCode> {
    let mut text = serde_json::to_vec_pretty(&openrpc::document())?;
    text.push(b'\n');
    print(&text)
}
