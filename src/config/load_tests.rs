use super::*;
use crate::config::{AuthSettings, LogFormat};
use pretty_assertions::assert_eq;
use std::time::Duration;
use test_case::test_case;

fn file(text: &str) -> ConfigFile {
    ConfigFile { path: "/c.toml".into(), text: text.into() }
}

fn variables(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
}

fn flag(name: &str, key: &str, values: &[&str]) -> Flag {
    Flag::named(name, key, values.iter().map(ToString::to_string).collect())
}

fn complaint(text: &str) -> String {
    load(&[], [], Some(&file(text))).unwrap_err().to_string()
}

#[test]
fn nothing_given_is_the_defaults() {
    let settings = load(&[], [], None).unwrap();
    assert_eq!(settings.config, Config::default());
    assert_eq!(settings.auth, AuthSettings::Automatic);
    assert!(settings.warnings.is_empty());
    assert_eq!(settings.config.server.listen[0].to_string(), "ws://127.0.0.1:8765");
}

#[test]
fn each_layer_comes_before_the_next() {
    let text = "[session]\ndetached_ms = 1\nping_interval_ms = 1\nping_timeout_ms = 1\n";
    let env = variables(&[
        ("EXEC_SERVER_SESSION_PING_INTERVAL_MS", "2"),
        ("EXEC_SERVER_SESSION_PING_TIMEOUT_MS", "2"),
        ("UNRELATED", "x"),
    ]);
    let settings = load(&[Flag::set("session.ping_timeout_ms", "3")], env, Some(&file(text))).unwrap();
    let session = settings.config.session.clone();
    let times = [session.detached_ms, session.ping_interval_ms, session.ping_timeout_ms];
    assert_eq!(times, [1, 2, 3].map(Duration::from_millis));
    let origins = ["detached_ms", "ping_interval_ms", "ping_timeout_ms"]
        .map(|key| settings.origin(&format!("session.{key}")).to_string());
    assert_eq!(
        origins,
        [
            "/c.toml:session.detached_ms",
            "variable EXEC_SERVER_SESSION_PING_INTERVAL_MS",
            "flag --set session.ping_timeout_ms"
        ]
    );
    assert_eq!(settings.origin("log.format"), &Origin::Default);
}

#[test]
fn lists_replace_and_do_not_add() {
    let text = "server.listen = [\"127.0.0.1:1\"]";
    let env = || variables(&[("EXEC_SERVER_SERVER_LISTEN", "127.0.0.1:2, unix:/run/x")]);
    let shown = |settings: Settings| {
        settings.config.server.listen.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let settings = load(&[], env(), Some(&file(text))).unwrap();
    assert_eq!(shown(settings), ["ws://127.0.0.1:2", "unix:/run/x"]);
    let flags = [flag("--listen", "server.listen", &["[::1]:0", "[::1]:0"])];
    assert_eq!(shown(load(&flags, env(), Some(&file(text))).unwrap()), ["ws://[::1]:0", "ws://[::1]:0"]);
}

#[test]
fn the_log_filter_has_a_variable_of_its_own_and_a_common_one() {
    let common = ("RUST_LOG", "warn");
    let settings = load(&[], variables(&[common]), None).unwrap();
    assert_eq!(settings.config.log.filter.to_string(), "warn");
    assert_eq!(settings.origin("log.filter").to_string(), "variable RUST_LOG");
    let own = ("EXEC_SERVER_LOG_FILTER", "debug");
    let settings = load(&[], variables(&[common, own]), None).unwrap();
    assert_eq!(settings.config.log.filter.to_string(), "debug");
    let settings =
        load(&[], variables(&[("RUST_LOG", ""), ("EXEC_SERVER_LOG_FORMAT", "json")]), None).unwrap();
    assert_eq!(settings.config.log.format, LogFormat::Json);
    assert_eq!(settings.config.log.filter.to_string(), "info");
}

#[test_case("server.listn = []", "unknown key server.listn in /c.toml; did you mean server.listen?"; "misspelt key")]
#[test_case("[sever]\nlisten = []", "unknown key sever in /c.toml; did you mean server?"; "misspelt section")]
#[test_case("[server]\ndetached_ms = 1", "unknown key server.detached_ms in /c.toml; did you mean session.detached_ms?"; "wrong section")]
#[test_case("listen = \"x\"", "unknown key listen in /c.toml; did you mean server.listen?"; "no section")]
#[test_case("[otel]\nendpoint = \"x\"", "unknown key otel in /c.toml"; "later step")]
#[test_case("\"server.listen\" = []", "unknown key server.listen in /c.toml; did you mean server.listen?"; "quoted dot")]
#[test_case("server = 1", "unknown key server in /c.toml; did you mean server?"; "section that is no table")]
#[test_case("limits.default.cpu_m = 1", "unknown key limits.default.cpu_m in /c.toml; did you mean limits.default.cpu_ms?"; "deeper table")]
fn an_unknown_key_is_an_error(text: &str, expected: &str) {
    assert_eq!(complaint(text), expected);
}

#[test]
fn a_bad_value_says_everything() {
    assert_eq!(
        complaint("[server]\nconcurrent_requests = 0"),
        "bad value for server.concurrent_requests (/c.toml:server.concurrent_requests): \"0\": \
         expected a whole number from 1 to 1073741824"
    );
    let env = variables(&[("EXEC_SERVER_SERVER_LISTEN", "http://127.0.0.1:0")]);
    let error = load(&[], env, None).unwrap_err().to_string();
    assert!(
        error.starts_with("bad value for server.listen (variable EXEC_SERVER_SERVER_LISTEN): \"http://"),
        "{error}"
    );
    assert!(error.contains("the scheme must be ws:// or wss://"), "{error}");
    assert!(complaint("log.format = \"xml\"").ends_with("\"xml\": expected one of text, json"));
    assert!(complaint("session.detached_ms = 2592000001").contains("to 2592000000"));
}

#[test]
fn all_problems_come_at_once() {
    let lines = complaint("server.listn = 1\nserver.max_sessions = \"x\"\nauth.mode = \"trust-me\"");
    assert_eq!(lines.lines().count(), 3, "{lines}");
    assert!(complaint("a = 1\na = 2").starts_with("/c.toml is not valid TOML: "));
}

#[test]
fn stdio_stands_alone() {
    for listen in [&["stdio", "127.0.0.1:0"], &["stdio", "stdio"]] {
        let error = load(&[flag("--listen", "server.listen", listen)], [], None).unwrap_err();
        assert!(error.is_usage(), "{error}");
    }
    let error = load(&[], [], Some(&file("server.listen = []"))).unwrap_err();
    assert!(error.to_string().contains("at least one address") && !error.is_usage());
}

#[test]
fn unknown_variables_are_warnings() {
    let env = variables(&[
        ("EXEC_SERVER_LISTEN", "x"),
        ("EXEC_SERVER_LOG_FORMATS", "x"),
        ("EXEC_SERVER_CONFIG", "x"),
        ("EXEC_SERVER_SERVICE_HOST", "10.0.0.1"),
        ("EXEC_SERVER_PORT", "tcp://10.0.0.1:8765"),
        ("EXEC_SERVER_PORT_8765_TCP", "x"),
        ("EXEC_SERVER_ZZZ", "x"),
        ("EXEC_SERVER_EMPTY", ""),
    ]);
    assert_eq!(
        load(&[], env, None).unwrap().warnings,
        [
            "unknown variable EXEC_SERVER_LISTEN is ignored; did you mean EXEC_SERVER_SERVER_LISTEN?",
            "unknown variable EXEC_SERVER_LOG_FORMATS is ignored; did you mean EXEC_SERVER_LOG_FORMAT?",
            "unknown variable EXEC_SERVER_ZZZ is ignored",
        ]
    );
}

#[test]
fn set_takes_any_key_and_no_other() {
    let flags = [Flag::set("server.allowed_hosts", "a, b"), Flag::set("limits.processes", "7")];
    let settings = load(&flags, [], None).unwrap();
    assert_eq!(settings.config.server.allowed_hosts.len(), 2);
    assert_eq!(settings.config.limits.processes.get(), 7);
    let error = load(&[Flag::set("limits.process", "7")], [], None).unwrap_err().to_string();
    assert_eq!(error, "unknown key limits.process in --set; did you mean limits.processes?");
}

#[test]
fn the_table_is_toml_without_secrets() {
    let text = format!("[auth]\nmode = \"capability-token\"\ntoken_sha256 = [\"{}\"]", "ab".repeat(32));
    let odd = ConfigFile { path: "/odd\nname\"".into(), text };
    let settings = load(&[Flag::set("auth.issuer", "")], [], Some(&odd));
    assert!(settings.is_err(), "an issuer does not belong to capability tokens");
    let table = load(&[Flag::set("process.spool_dir", "/a\"b")], [], Some(&odd)).unwrap().table();
    let parsed: Table = table.parse().unwrap();
    assert_eq!(parsed["auth"]["token_sha256"].as_str(), Some("(set)"));
    assert_eq!(parsed["process"]["spool_dir"].as_str(), Some("/a\"b"));
    assert_eq!(parsed["session"]["detached_ms"].as_integer(), Some(80_000));
    assert!(!table.contains("abab"), "{table}");
    assert_eq!(table.lines().count(), keys().len());
    assert!(
        table.lines().any(|line| line.starts_with("log.format = \"text\"") && line.ends_with("   # default"))
    );
}

#[test]
fn metrics_need_an_address_and_a_server_that_listens() {
    let error = complaint("metrics.listen = [\"stdio\"]");
    assert!(
        error.starts_with("metrics.listen (/c.toml:metrics.listen): metrics cannot be served on stdio"),
        "{error}"
    );
    let text = "server.listen = [\"stdio\"]\nmetrics.listen = [\"127.0.0.1:1\"]";
    let settings = load(&[], [], Some(&file(text))).unwrap();
    assert_eq!(settings.warnings, ["metrics.listen is ignored: with stdio nothing else is served"]);
}

#[test]
fn changes_are_those_that_can_be_followed_and_those_that_cannot() {
    let settings = |text: &str| load(&[], [], Some(&file(text))).unwrap();
    let before = settings("auth.failure_delay_ms = 5\nserver.drain_ms = 1");
    let after =
        settings("server.drain_ms = 2\nserver.allowed_hosts = [\"a\"]\nmetrics.listen = [\"127.0.0.1:1\"]");
    let changes = before.changes(&after);
    assert_eq!(changes.followed, ["server.allowed_hosts", "auth.failure_delay_ms"]);
    assert_eq!(changes.ignored, ["server.drain_ms", "metrics.listen"]);
    assert_eq!(before.changes(&before), Default::default());
}
