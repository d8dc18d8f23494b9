//! The worked example of docs/operating.md, run as it is written.

use std::process::Command;

use super::support::work_dir;

#[test]
fn the_example_of_tls_works() {
    let page = include_str!("../../docs/operating.md");
    let (_, behind) = page.split_once("```sh\n").expect("an example");
    let (script, _) = behind.split_once("```").expect("its end");
    let directory = work_dir();
    let binaries = std::path::Path::new(env!("CARGO_BIN_EXE_exec-server")).parent().expect("a directory");
    let output = Command::new("/bin/bash")
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(directory.path())
        .env_clear()
        .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", binaries.display()))
        .env("HOME", directory.path())
        .output()
        .expect("a shell");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("HTTP/1.1 200 OK"), "{output:?}");
}
