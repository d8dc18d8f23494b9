use std::path::Path;
use std::time::Duration;

use pretty_assertions::assert_eq;
use proptest::prelude::*;
use test_case::test_case;

use super::*;
use crate::client::{ProgramCommand, Server};

fn parse_here(text: &str) -> Result<Settings> {
    parse(text, Path::new("/settings"))
}

fn refusal(text: &str) -> String {
    parse_here(text).unwrap_err().to_string()
}

fn one(rest: &str) -> String {
    format!("[[environments]]\nid = \"x\"\n{rest}")
}

#[test]
fn everything_that_can_be_said() {
    let settings = parse_here(
        r#"
        default = " devbox "
        include_local = false
        [[environments]]
        id = "devbox"
        url = " wss://u:p@devbox.example:8765/exec?a=b "
        auth_bearer_token = " verbatim "
        connect_timeout_sec = 2.5
        [[environments]]
        id = "container_1"
        program = " docker "
        args = ["exec", "-i"]
        env = { RUST_LOG = "info" }
        cwd = "relative/dir"
        initialize_timeout_sec = 60
        skills = { required = ["deploy"] }
        "#,
    )
    .unwrap();
    assert_eq!((settings.default.as_deref(), settings.include_local), (Some("devbox"), false));
    let [devbox, container] = settings.environments.try_into().ok().unwrap();
    let url = "wss://u:p@devbox.example:8765/exec?a=b";
    let Definition { server, connect_timeout, initialize_timeout } = devbox.definition;
    assert_eq!(server, Server::at(url, Some(" verbatim "), None).unwrap());
    assert_eq!((connect_timeout, initialize_timeout), (Some(Duration::from_millis(2500)), None));
    let command = ProgramCommand {
        program: "docker".into(),
        args: vec!["exec".into(), "-i".into()],
        env: [("RUST_LOG".into(), "info".into())].into(),
        cwd: Some("/settings/relative/dir".into()),
    };
    let Definition { server, connect_timeout, initialize_timeout } = container.definition;
    assert_eq!(server, Server::program(command).unwrap());
    assert_eq!((connect_timeout, initialize_timeout), (None, Some(Duration::from_secs(60))));
    assert_eq!(container.required_skills, ["deploy"]);
}

#[test_case("", Some("local"), true; "nothing")]
#[test_case("include_local = false", None, false; "nothing at all")]
#[test_case("default = \"NonE\"", None, true; "none in any case")]
#[test_case("default = \" local \"", Some("local"), true; "space around")]
fn defaults(text: &str, default: Option<&str>, include_local: bool) {
    let settings = parse_here(text).unwrap();
    assert_eq!((settings.default.as_deref(), settings.include_local), (default, include_local));
}

#[test_case("default = \"\"", "default must not be empty")]
#[test_case("default = \" \"", "default must not be empty"; "blank")]
#[test_case("default = \"x\"", "default environment `x` is not configured")]
#[test_case("default = \"local\"\ninclude_local = false", "default environment `local` is not configured"; "left out")]
#[test_case("defualt = \"x\"", "line 1: `defualt`: unknown field"; "unknown key")]
#[test_case("\n\nenvironments = 3", "line 3: `environments`: invalid type")]
#[test_case("include_local = \"yes\"", "`include_local`: invalid type")]
#[test_case("x = = 1", "line 1:"; "no TOML")]
fn the_top_level(text: &str, why: &str) {
    let error = refusal(text);
    assert!(error.contains(why), "{error}");
}

#[test_case("[[environments]]\nurl = \"ws://h\"", "`environments[0]`: missing field `id`"; "no id")]
#[test_case(&one(""), "environment `x` must set exactly one of url or program"; "nothing")]
#[test_case(&one("url = \"ws://h\"\nprogram = \"p\""), "environment `x` must set exactly one of url or program"; "both")]
#[test_case(&one("url = \"ws://h\"\nargs = [\"a\"]"), "environment `x` args, env, and cwd require program"; "args")]
#[test_case(&one("url = \"ws://h\"\nenv = { A = \"b\" }"), "environment `x` args, env, and cwd require program"; "env")]
#[test_case(&one("url = \"ws://h\"\ncwd = \"c\""), "environment `x` args, env, and cwd require program"; "cwd")]
#[test_case(&one("program = \"p\"\nconnect_timeout_sec = 1"), "environment `x` connect_timeout_sec requires url")]
#[test_case(&one("program = \"p\"\nauth_bearer_token = \"t\""), "environment `x` auth_bearer_token requires url")]
#[test_case(&one("program = \"  \""), "program must not be empty")]
#[test_case(&one("url = \"http://h\""), "environment url `http://h` must use ws:// or wss://"; "http")]
#[test_case(&one("url = \"WS://h\""), "environment url `WS://h` must use ws:// or wss://"; "upper case")]
#[test_case(&one("url = \"unix:/s\""), "must use ws:// or wss://"; "a socket")]
#[test_case(&one("url = \"ws://h o\""), "not a valid URL"; "space in it")]
#[test_case(&one("url = \"ws://\""), "environment `x`:"; "no host")]
#[test_case(&one("url = \" \""), "must not be empty"; "blank")]
#[test_case(&one("url = \"ws://h\"\nauth_bearer_token = \"t\""), "clear text"; "token for another machine")]
#[test_case(&one("url = \"ws://localhost\"\nauth_bearer_token = \"\""), "token is empty"; "empty token")]
#[test_case(&one("url = \"wss://h\"\nauth_bearer_token = \"a\\nb\""), "control characters")]
#[test_case(&one("url = \"ws://h\"\nconnect_timeout_sec = -1"), "connect_timeout_sec must be a number of seconds"; "negative")]
#[test_case(&one("url = \"ws://h\"\nconnect_timeout_sec = nan"), "connect_timeout_sec must be"; "nan")]
#[test_case(&one("url = \"ws://h\"\nconnect_timeout_sec = inf"), "connect_timeout_sec must be"; "infinite")]
#[test_case(&one("program = \"p\"\ninitialize_timeout_sec = -0.5"), "initialize_timeout_sec must be")]
#[test_case(&one("program = \"p\"\nskills = { optional = [] }"), "unknown field `optional`")]
#[test_case(&one("program = \"p\"\nports = 3"), "`environments[0].ports`: unknown field"; "unknown key")]
#[test_case(&one("program = 3"), "`environments[0].program`: invalid type"; "a number")]
#[test_case(&format!("{}\n{}", one("program = \"p\""), one("program = \"q\"")), "environment id `x` is duplicated")]
fn one_environment(text: &str, why: &str) {
    let error = refusal(text);
    assert!(error.contains(why), "{error}");
}

#[test_case("", "must not be empty")]
#[test_case(" a", "surrounding space")]
#[test_case("local", "is reserved")]
#[test_case("NONE", "is reserved")]
#[test_case("a.b", "letters, digits")]
#[test_case("ä", "letters, digits"; "not ASCII")]
#[test_case(&"a".repeat(65), "longer than 64")]
fn bad_ids(id: &str, why: &str) {
    let error = refusal(&format!("[[environments]]\nid = \"{id}\"\nprogram = \"p\""));
    assert!(error.contains(why), "{error}");
}

#[test_case("Local")]
#[test_case("a-b_C9")]
#[test_case(&"a".repeat(64); "64 letters")]
fn good_ids(id: &str) {
    parse_here(&format!("[[environments]]\nid = \"{id}\"\nprogram = \"p\"")).unwrap();
}

#[test_case("auth_bearer_token = 12345678"; "a number")]
#[test_case("auth_bearer_tokn = \"12345678\""; "a wrong key")]
#[test_case("auth_bearer_token = \"12345678"; "no end")]
#[test_case("auth_bearer_token = { a = \"12345678\" }"; "a table")]
#[test_case("auth_bearer_token = \"12345678\"\nbad = 1"; "wrong behind it")]
fn no_message_has_the_token(line: &str) {
    let error = refusal(&one(&format!("url = \"ws://localhost\"\n{line}")));
    assert!(!error.contains("12345678"), "{error}");
}

#[test_case("args = \"12345678\"", "`environments[0].args`: must be an array of strings"; "args as text")]
#[test_case("args = [\"a\", 12345678]", "`environments[0].args[1]`: must be an array of strings"; "an argument")]
#[test_case("env = \"12345678\"", "`environments[0].env`: must be a table of strings"; "env as text")]
#[test_case("env = { A = 12345678 }", "`environments[0].env.A`: must be a table of strings"; "a variable")]
#[test_case("env = { \"args.env\" = [\"12345678\"] }", "must be a table of strings"; "a list for a variable")]
fn no_message_has_what_a_program_gets(line: &str, why: &str) {
    let error = refusal(&one(&format!("program = \"p\"\n{line}")));
    assert!(error.contains(why) && !error.contains("12345678"), "{error}");
}

#[test_case(true; "a directory")]
#[test_case(false; "a pipe")]
fn what_is_no_file_is_refused_not_waited_for(directory: bool) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(NAME);
    if directory {
        std::fs::create_dir(&path).unwrap();
    } else {
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    }
    let error = read(home.path()).unwrap_err().to_string();
    assert!(error.contains("environments.toml"), "{error}");
}

#[test]
fn no_file_is_none_and_errors_name_the_file() {
    let home = tempfile::tempdir().unwrap();
    assert!(read(home.path()).unwrap().is_none());
    std::fs::write(home.path().join(NAME), b"\xff").unwrap();
    let error = read(home.path()).unwrap_err().to_string();
    assert!(error.contains("environments.toml") && error.contains("UTF-8"), "{error}");
}

proptest! {
    /// Whatever is in the file: settings that hold together, or an error.
    #[test]
    fn any_text_is_taken_or_refused(
        id in "[a-zA-Z0-9_. -]{0,70}",
        url in proptest::option::of("(ws|wss|http|WS)://[a-z0-9.@:/?-]{0,12}"),
        program in proptest::option::of("[a-z ]{0,4}"),
        default in proptest::option::of("[a-z]{0,6}"),
        timeout in proptest::option::of(-2.0..1e30f64),
        include_local: bool,
    ) {
        let mut text = format!("include_local = {include_local}\n");
        if let Some(default) = &default { text += &format!("default = \"{default}\"\n"); }
        text += &format!("[[environments]]\nid = \"{id}\"\n");
        if let Some(url) = &url { text += &format!("url = \"{url}\"\n"); }
        if let Some(program) = &program { text += &format!("program = \"{program}\"\n"); }
        if let Some(timeout) = timeout { text += &format!("connect_timeout_sec = {timeout:?}\n"); }
        if let Ok(settings) = parse_here(&text) {
            prop_assert!(url.is_some() != program.is_some());
            prop_assert!((1..=64).contains(&id.len()));
            if let Some(default) = settings.default {
                prop_assert!(default == id || (default == "local" && include_local));
            }
        }
    }
}
