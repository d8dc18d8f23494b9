//! Start-up files as they are found in the field, and as they should not be: what of them a command sees.

use std::time::{Duration, Instant};

use pretty_assertions::assert_eq;
use test_case::test_case;

use super::snapshots::{Home, run};
use super::support::Daemon;

/// The usual end of a profile, and a command that shows what came of it.
const USUAL: &str = "export P_A=1; hello() { builtin printf hi; }";
const PROBE: &str = "builtin printf '<%s|' \"${P_A-unset}\"; hello 2>/dev/null || builtin printf nohello; \
                     builtin printf '|%s|%s>' \"$PWD\" \"$(umask)\"";

/// What the first start and the second print; the umask is this process's.
async fn outputs(shell: &str, profile: &str, command: &str) -> ([&'static str; 2], String, String) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let home = Home::new(shell, &format!("{profile}\n"));
    let began = Instant::now();
    let mut states = Vec::new();
    let mut printed = Vec::new();
    for _ in 0..2 {
        let (state, run) = run(&client, &home.start(shell, command)).await;
        assert_eq!(String::from_utf8_lossy(&run.stderr), "", "{profile}");
        states.push(match state.as_str() {
            "captured" => "captured",
            "restored" => "restored",
            other => panic!("{profile}: {other}"),
        });
        printed.push(String::from_utf8_lossy(&run.stdout).into_owned());
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{profile}: it has waited for something");
    assert_eq!(printed[0], printed[1], "{profile}");
    (states.try_into().unwrap(), printed.remove(0), home.path().to_str().unwrap().to_owned())
}

async fn is(shell: &str, profile: &str, command: &str, expected: &str) {
    let (states, printed, _) = outputs(shell, profile, command).await;
    assert_eq!((states, printed.as_str()), (["captured", "restored"], expected), "{profile}");
}

#[test_case("bash"; "bash")]
#[test_case("zsh"; "zsh")]
#[tokio::test]
async fn profiles_that_leave_the_usual_state(shell: &str) {
    let umask = "$(umask)";
    let plain = std::process::Command::new("/bin/sh").args(["-c", "umask"]).output().unwrap();
    let umask_now = String::from_utf8(plain.stdout).unwrap();
    let traps = if shell == "bash" { "trap 'echo ERR' ERR" } else { "TRAPZERR() { echo ERR; }" };
    for profile in [
        "echo N; echo N2 >&2",
        "printf 'no newline'; printf '\\000\\377'; head -c 300000 /dev/zero",
        "sleep 30 &",
        "(sleep 30) & disown",
        "set -u",
        "set -f",
        "umask 077",
        "ulimit -n 100",
        "trap 'echo TRAPPED' EXIT",
        "trap 'echo TRAPPED' DEBUG; trap 'echo TRAPPED' EXIT",
        traps,
        "read -r X",
        "cat >/dev/null",
        "while read -r X; do :; done",
        "cd /",
        "grep() { echo guard; }; aaa() { echo aaa; }",
        "cat() { echo C; }; sed() { echo S; }; env() { echo E; }; declare() { echo D; }",
        "IFS=:",
        "IFS=; set -u",
        "exec 9</dev/null",
        "alias hello='echo no'; unalias hello",
        "set -- a b c",
        "PATH=/nonexistent",
        "unset HOME PATH",
    ] {
        for profile in [format!("{profile}\n{USUAL}"), format!("{USUAL}\n{profile}")] {
            // zsh prints three digits.
            let command = if shell == "zsh" { PROBE.replace(umask, "0$(umask)") } else { PROBE.to_owned() };
            let (states, printed, home) = outputs(shell, &profile, &command).await;
            let expected = format!("<1|hi|{home}|{}>", umask_now.trim_end());
            assert_eq!((states, printed), (["captured", "restored"], expected), "{profile}");
        }
    }
}

#[test_case("bash", "exit 0"; "bash exits")]
#[test_case("bash", "exit 7"; "bash fails")]
#[test_case("bash", "exec sh"; "bash becomes another")]
#[test_case("bash", "exec >/dev/null"; "bash closes its output")]
#[test_case("bash", "kill -9 $$"; "bash is killed")]
#[test_case("bash", "set -n"; "bash runs nothing")]
#[test_case("zsh", "exit 7"; "zsh fails")]
#[test_case("zsh", "exec sh"; "zsh becomes another")]
#[test_case("zsh", "kill -9 $$"; "zsh is killed")]
#[tokio::test]
async fn profiles_that_break_off(shell: &str, breaker: &str) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let home = Home::new(shell, &format!("{breaker}\n{USUAL}\n"));
    let command = "builtin printf '%s|%s' \"${P_A-unset}\" \"$0\"; exit 5";
    let (state, run) = run(&client, &home.start(shell, command)).await;
    let seen = (state.as_str(), run.text(), run.stderr.as_slice(), run.exit());
    assert_eq!(seen, ("fallback", format!("unset|/bin/{shell}"), b"".as_slice(), 5));
}

/// A syntax error ends the file, not the shell.
#[tokio::test]
async fn what_stands_before_a_syntax_error_counts() {
    is("bash", "export A=1\nif then fi (\nexport B=1", "printf $A$B", "1").await;
}

#[tokio::test]
async fn options_of_bash_come_back() {
    for (option, name) in
        [("set -u", "nounset"), ("set -f", "noglob"), ("set -o posix", "posix"), ("set -e", "errexit")]
    {
        is("bash", option, &format!("[[ -o {name} ]] && printf on"), "on").await;
    }
}

#[test_case("bash"; "bash")]
#[test_case("zsh"; "zsh")]
#[tokio::test]
async fn awkward_state_is_exact(shell: &str) {
    for (profile, command, expected) in [
        ("export P_A='naïve ☃'", "printf %s \"$P_A\"", "naïve ☃"),
        ("export P_A=$'a\\nb'", "printf %s \"$P_A\"", "a\nb"),
        ("readonly P_A=1; export P_A", "printf %s \"$P_A\"", "1"),
        ("export P_A=$'\\xff'", "[ \"$P_A\" = $'\\xff' ] && printf same", "same"),
        ("alias -- -='cd -'; export P_A=1", "printf %s \"$P_A\"", "1"),
        ("hello() { cat <<EOT\nhi 'q' \"d\"\nEOT\n}", "hello", "hi 'q' \"d\"\n"),
        ("hello() { local m='_.!~*'\\''()-'; printf %s \"$m\"; }", "hello", "_.!~*'()-"),
        ("hello() { printf hi; }; alias hello='echo no' a:b='echo no'", "\\hello", "hi"),
        ("__h() { builtin printf hi; }; cd() { __h; builtin cd \"$@\"; }", "cd /; pwd", "hi/\n"),
        (
            "export PATH=/opt/x:/bin; export PATH=/opt/tool:$PATH",
            "printf %s \"$PATH\"",
            "/opt/tool:/opt/x:/bin",
        ),
        ("alias mi='printf ALIAS-%s'", "true; mi x; (mi y)", "ALIAS-xALIAS-y"),
        ("list=(a 'b c' '' d)", "printf '<%s>' \"${list[@]}\"", "<a><b c><><d>"),
        ("typeset -A map; map=([k]=v)", "printf %s \"${map[k]}\"", "v"),
        ("LOOSE=1", "printf %s \"${LOOSE-unset}\"", "unset"),
        ("export GONE=1; unset GONE", "printf %s \"${GONE-unset}\"", "unset"),
    ] {
        is(shell, profile, command, expected).await;
    }
}

#[tokio::test]
async fn functions_of_zsh() {
    is(
        "zsh",
        "alias run-help=man; export P_A=1; hello() { printf hi }",
        "printf '<%s>' $P_A; hello",
        "<1>hi",
    )
    .await;
    is("zsh", "foo-bar() { printf dash }; 'a b'() { printf blank }", "foo-bar; 'a b'", "dashblank").await;
    is("zsh", "setopt rcquotes; f() { printf %s 'it''s' }", "f; printf %s 'it''s'", "it'sit's").await;
    is("zsh", "alias -g UP='| tr a-z A-Z'; alias -s txt=echo", "printf up UP; x.txt", "UPx.txt\n").await;
    // Both a directory of functions and the promise to load one from it.
    let autoload = "fpath=($HOME/functions $fpath); mkdir -p $HOME/functions; \
                    print 'printf loaded' > $HOME/functions/later; autoload -Uz later";
    is("zsh", autoload, "later", "loaded").await;
}

#[tokio::test]
async fn exported_functions_of_bash_come_back_once() {
    let profile = "hello() { builtin printf hi; }; export -f hello";
    is("bash", profile, "bash -c hello; env | grep -c '^BASH_FUNC_hello'", "hi1\n").await;
}

/// Most login files read the file of interactive shells themselves.
#[test_case(". ~/.bashrc", 1; "dot")]
#[test_case("[ -f ~/.bashrc ] && source \"$HOME/.bashrc\"", 1; "guarded")]
#[test_case("if [ -n \"$BASH_VERSION\" ]; then if [ -f \"$HOME/.bashrc\" ]; then . \"$HOME/.bashrc\"; fi; fi", 1; "as Debian does")]
#[test_case("export BASH_ENV=$HOME/.bashrc", 1; "as the file of BASH_ENV")]
#[test_case("export SEEN=0", 1; "not at all")]
#[test_case("(. ~/.bashrc)", 2; "where its state is lost")]
#[tokio::test]
async fn the_file_of_interactive_shells_is_read_once(login: &str, runs: usize) {
    let daemon = Daemon::start().await;
    let client = daemon.client().await;
    let home = Home::new("bash", "export SEEN=1; hello() { printf hi; }\nreturn 1\n");
    std::fs::write(home.path().join(".bash_profile"), format!("export LOGIN=1\n{login}\n")).unwrap();
    for state in ["captured", "restored"] {
        let (told, run) = run(&client, &home.start("bash", "hello; printf '%s' $SEEN$LOGIN")).await;
        assert_eq!(
            (told.as_str(), run.text().as_str(), run.stderr.as_slice()),
            (state, "hi11", b"".as_slice())
        );
    }
    assert_eq!(home.runs(), runs);
}

#[tokio::test]
async fn the_first_login_file_that_is_there_counts() {
    let names = [".bash_profile", ".bash_login", ".profile"];
    for first in 0..3 {
        let daemon = Daemon::start().await;
        let client = daemon.client().await;
        let home = Home::new("bash", "");
        for name in &names[first..] {
            std::fs::write(home.path().join(name), format!("export READ=$READ{name}\n")).unwrap();
        }
        let (_, run) = run(&client, &home.start("bash", "shopt -q login_shell; printf $READ")).await;
        assert_eq!(run.text(), names[first]);
    }
}
