//! Sandbox contexts.

use std::path::Path;

use serde_json::{Value, json};

use super::uri;

/// Everything may be read, nothing written.
pub(crate) fn read_only(network: &str) -> Value {
    context(json!([entry("root", "read")]), network, Path::new("/"))
}

/// Everything may be read, and a directory written.
pub(crate) fn workspace(directory: &Path, network: &str) -> Value {
    context(json!([entry("root", "read"), entry("project_roots", "write")]), network, directory)
}

fn entry(kind: &str, access: &str) -> Value {
    json!({"path": {"type": "special", "value": {"kind": kind}}, "access": access})
}

fn context(entries: Value, network: &str, directory: &Path) -> Value {
    let files = json!({"type": "restricted", "entries": entries});
    json!({
        "permissions": {"type": "managed", "file_system": files, "network": network},
        "policyContext": {"cwd": uri(directory), "workspaceRoots": [uri(directory)]},
        "windowsSandboxLevel": "disabled",
    })
}
