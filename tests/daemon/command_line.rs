//! Commands that need no server.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use pretty_assertions::assert_eq;
use test_case::test_case;

use super::support::work_dir;

fn run(words: &[&str]) -> Output {
    let home = work_dir();
    let mut command = Command::new(env!("CARGO_BIN_EXE_exec-server"));
    command.env_clear().env("HOME", home.path()).args(words).output().unwrap()
}

fn text(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_token_is_new_long_and_written_once() {
    let (first, second) = (text(&run(&["token", "new"])), text(&run(&["token", "new"])));
    assert!(first.trim().len() == 43 && first != second, "{first} {second}");
    let directory = work_dir();
    let path = directory.path().join("token");
    let words = ["token", "new", "--out", path.to_str().unwrap()];
    assert_eq!(text(&run(&words)), "", "what is written is not printed");
    let written = std::fs::read_to_string(&path).unwrap();
    assert_eq!(written.trim().len(), 43);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let again = run(&words);
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains(path.to_str().unwrap()), "{again:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), written);
}

#[test]
fn a_token_of_a_state_directory_is_where_the_server_looks() {
    let directory = work_dir();
    let state = directory.path().join("new/state");
    text(&run(&["token", "new", "--state-dir", state.to_str().unwrap()]));
    assert_eq!(std::fs::read_to_string(state.join("token")).unwrap().trim().len(), 43);
}

#[test_case("bash", "complete -F"; "bash")]
#[test_case("zsh", "#compdef exec-server"; "zsh")]
#[test_case("fish", "complete -c exec-server"; "fish")]
fn completions_are_those_of_the_shell(shell: &str, part: &str) {
    let completions = text(&run(&["completions", shell]));
    assert!(completions.contains(part), "{completions}");
    assert!(completions.contains("tls-cert") && completions.contains("doctor"));
}

#[test]
fn bash_completes_by_them() {
    let completions = text(&run(&["completions", "bash"]));
    let script = format!(
        "{completions}\nregistered=$(complete -p exec-server); function=${{registered#*-F }}\n\
         COMP_WORDS=(exec-server doc); COMP_CWORD=1; ${{function%% *}} exec-server doc exec-server\n\
         echo \"${{COMPREPLY[*]}}\""
    );
    let output = Command::new("/bin/bash").args(["--norc", "-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "doctor", "{output:?}");
}

#[test]
fn manual_pages_are_of_the_program_and_of_each_command() {
    let page = text(&run(&["man"]));
    assert!(page.contains(".TH exec-server 1") && page.contains("\\-\\-tls\\-cert"), "{page}");
    let page = text(&run(&["man", "run"]));
    assert!(page.contains(".TH exec-server-run 1") && page.contains("\\-\\-tty"), "{page}");
    let missing = run(&["man", "nothing"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&missing.stderr).contains("there is no command \"nothing\""),
        "{missing:?}"
    );
}
