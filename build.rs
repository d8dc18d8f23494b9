//! Tells the program which commit it is built from: in a clone, in a packaged crate, or by the variable
//! `EXEC_SERVER_COMMIT`; else it is `unknown`. Nothing is asked of the network.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=EXEC_SERVER_COMMIT");
    let commit = given().or_else(packaged).or_else(checked_out);
    // `cargo run` hands it on to the program, which warns of variables of its own that it does not know.
    println!("cargo::rustc-env=BUILD_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
}

fn given() -> Option<String> {
    std::env::var("EXEC_SERVER_COMMIT").ok().and_then(|text| short(&text))
}

/// `cargo package` writes down what it packaged.
fn packaged() -> Option<String> {
    println!("cargo::rerun-if-changed=Cargo.toml");
    let text = std::fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = text.split_once("\"sha1\"")?;
    short(rest.split('"').nth(1)?)
}

/// The commit of this directory's own clone, not of one that the directory happens to lie in.
fn checked_out() -> Option<String> {
    Path::new(".git").exists().then_some(())?;
    println!("cargo::rerun-if-changed={}", git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    short(&git(&["rev-parse", "HEAD"])?)
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// The first 12 of the hexadecimal digits.
fn short(commit: &str) -> Option<String> {
    let commit = commit.trim();
    let is_commit = commit.len() >= 7 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_commit.then(|| commit.chars().take(12).collect())
}
