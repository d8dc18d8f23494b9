//! Processes to start.

use exec_server::path_uri::PathUri;
use exec_server::protocol::process::ExecParams;
use serde_json::json;

/// A program without stdin or terminal.
pub(crate) fn exec(id: &str, argv: &[&str]) -> ExecParams {
    let cwd = PathUri::from_host_native_path(std::env::temp_dir()).unwrap();
    let params =
        json!({"processId": id, "argv": argv, "cwd": cwd, "env": {"PATH": "/usr/bin:/bin"}, "tty": false});
    serde_json::from_value(params).unwrap()
}

/// A shell script without stdin or terminal.
pub(crate) fn script(id: &str, text: &str) -> ExecParams {
    exec(id, &["/bin/sh", "-c", text])
}
