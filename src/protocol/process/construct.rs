//! Params as clients make them.

use std::collections::HashMap;

use super::{ExecMetadata, ExecParams, ProcessId};
use crate::path_uri::PathUri;

impl ExecParams {
    /// A program without input, terminal, sandbox or any variable. Set the other fields with `..`.
    pub fn new<A: Into<String>>(
        process_id: impl Into<ProcessId>,
        argv: impl IntoIterator<Item = A>,
        cwd: PathUri,
    ) -> Self {
        Self {
            process_id: process_id.into(),
            argv: argv.into_iter().map(Into::into).collect(),
            cwd,
            metadata: ExecMetadata::default(),
            env_policy: None,
            shell_snapshot: None,
            env: HashMap::new(),
            tty: false,
            pipe_stdin: false,
            arg0: None,
            sandbox: None,
            enforce_managed_network: false,
            managed_network: None,
            network_proxy: None,
        }
    }
}
