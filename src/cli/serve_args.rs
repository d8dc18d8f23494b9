use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;

use super::args::assignment;
use crate::config::{AuthMode, BackendChoice, Flag, LogFormat};

/// Flags of serving. Values stay text: the settings read them, whatever layer they come from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Args)]
pub struct ServeArgs {
    /// Address to listen on: [ws://]HOST:PORT, unix:/absolute/path, or stdio alone; repeatable.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Vec<String>,
    /// File of settings.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Set any key, as in its environment variable; repeatable.
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
    /// Requests of one connection that may run at a time.
    #[arg(long, value_name = "COUNT", value_parser = positive)]
    pub concurrent_requests: Option<String>,
    /// Directory for what outlives the server, such as its token.
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<String>,
    /// What enforces sandbox policies.
    #[arg(long, value_name = "BACKEND", value_parser = PossibleValuesParser::new(BackendChoice::WORDS))]
    pub sandbox_backend: Option<String>,
    /// HTTP proxy, as HOST:PORT, for the TCP connections of managed SOCKS listeners.
    #[arg(long, value_name = "HOST:PORT")]
    pub tcp_upstream_proxy: Option<String>,
    /// Let private destinations of managed networking go through upstream proxies as well.
    #[arg(long)]
    pub proxy_private_ips_via_upstream: bool,
    /// Form of log lines on stderr.
    #[arg(long, value_name = "FORMAT", value_parser = PossibleValuesParser::new(LogFormat::WORDS))]
    pub log_format: Option<String>,
    /// Where to account for who did what: a file, or stderr.
    #[arg(long, value_name = "FILE|stderr")]
    pub audit_log: Option<String>,
    /// PEM file of a certificate: serve TCP addresses over TLS, as wss://; re-read when it changes.
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub tls_cert: Option<String>,
    /// PEM file of the certificate's private key.
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub tls_key: Option<String>,
    /// PEM file of authorities that must have signed the certificates of clients.
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub tls_client_ca: Option<String>,
    /// How clients authenticate. Default: not at all on loopback and unix sockets, by a generated token elsewhere.
    #[arg(
        long,
        value_name = "MODE",
        value_parser = PossibleValuesParser::new(AuthMode::WORDS),
        help_heading = "Authentication"
    )]
    pub ws_auth: Option<String>,
    /// File of capability tokens, one a line; re-read when it changes.
    #[arg(long, value_name = "FILE", help_heading = "Authentication")]
    pub ws_token_file: Option<String>,
    /// SHA-256 digest of a capability token, in hex; repeatable.
    #[arg(long, value_name = "HEX", help_heading = "Authentication")]
    pub ws_token_sha256: Vec<String>,
    /// File of the secret that signs tokens, at least 32 bytes.
    #[arg(long, value_name = "FILE", help_heading = "Authentication")]
    pub ws_shared_secret_file: Option<String>,
    /// Issuer that signed tokens must name.
    #[arg(long, value_name = "NAME", help_heading = "Authentication")]
    pub ws_issuer: Option<String>,
    /// Audience that signed tokens must name.
    #[arg(long, value_name = "NAME", help_heading = "Authentication")]
    pub ws_audience: Option<String>,
    /// Seconds by which the clocks of signer and server may differ.
    #[arg(long, value_name = "SECONDS", value_parser = digits, help_heading = "Authentication")]
    pub ws_max_clock_skew_seconds: Option<String>,
}

impl ServeArgs {
    /// The flags as a layer of settings. A flag of its own comes after, and so before, `--set`.
    #[must_use]
    pub fn flags(&self) -> Vec<Flag> {
        let lists = [
            ("--listen", "server.listen", &self.listen),
            ("--ws-token-sha256", "auth.token_sha256", &self.ws_token_sha256),
        ];
        let private = self.proxy_private_ips_via_upstream.then(|| "true".to_owned());
        let words = [
            ("--concurrent-requests", "server.concurrent_requests", &self.concurrent_requests),
            ("--state-dir", "server.state_dir", &self.state_dir),
            ("--sandbox-backend", "sandbox.backend", &self.sandbox_backend),
            ("--tcp-upstream-proxy", "network.tcp_upstream_proxy", &self.tcp_upstream_proxy),
            ("--proxy-private-ips-via-upstream", "network.private_ips_via_upstream", &private),
            ("--log-format", "log.format", &self.log_format),
            ("--audit-log", "log.audit", &self.audit_log),
            ("--tls-cert", "tls.cert", &self.tls_cert),
            ("--tls-key", "tls.key", &self.tls_key),
            ("--tls-client-ca", "tls.client_ca", &self.tls_client_ca),
            ("--ws-auth", "auth.mode", &self.ws_auth),
            ("--ws-token-file", "auth.token_file", &self.ws_token_file),
            ("--ws-shared-secret-file", "auth.shared_secret_file", &self.ws_shared_secret_file),
            ("--ws-issuer", "auth.issuer", &self.ws_issuer),
            ("--ws-audience", "auth.audience", &self.ws_audience),
            ("--ws-max-clock-skew-seconds", "auth.max_clock_skew_seconds", &self.ws_max_clock_skew_seconds),
        ];
        let set = self.set.iter().map(|(key, value)| Flag::set(key, value));
        let lists = lists
            .into_iter()
            .filter(|(_, _, values)| !values.is_empty())
            .map(|(name, key, values)| Flag::named(name, key, values.clone()));
        let words = words
            .into_iter()
            .filter_map(|(name, key, value)| Some(Flag::named(name, key, vec![value.clone()?])));
        set.chain(lists).chain(words).collect()
    }
}

fn digits(text: &str) -> Result<String, &'static str> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(text.into());
    }
    Err("expected a whole number, 0 or more")
}

fn positive(text: &str) -> Result<String, &'static str> {
    match digits(text) {
        Ok(number) if number.bytes().any(|digit| digit != b'0') => Ok(number),
        _ => Err("expected a whole number, 1 or more"),
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::args::Cli;
    use crate::config::{Settings, load};
    use clap::Parser;
    use test_case::test_case;

    fn settings(words: &[&str]) -> Result<Settings, String> {
        let cli = Cli::try_parse_from([&["exec-server"], words].concat()).map_err(|_| "usage")?;
        load(&cli.serve.flags(), [], None).map_err(|error| error.to_string())
    }

    #[test]
    fn every_flag_reaches_its_key() {
        let digest = "0".repeat(64);
        let words = |key: &str| match key {
            "server.listen" => ["--listen", "127.0.0.1:0"],
            "server.concurrent_requests" => ["--concurrent-requests", "2"],
            "server.state_dir" => ["--state-dir", "/x"],
            "sandbox.backend" => ["--sandbox-backend", "landlock"],
            "log.format" => ["--log-format", "json"],
            "network.tcp_upstream_proxy" => ["--tcp-upstream-proxy", "proxy:3128"],
            "network.private_ips_via_upstream" => ["--proxy-private-ips-via-upstream", "--log-format=text"],
            "log.audit" => ["--audit-log", "stderr"],
            _ => ["--set", "limits.processes=1"],
        };
        for key in [
            "server.listen",
            "server.concurrent_requests",
            "server.state_dir",
            "sandbox.backend",
            "log.format",
            "network.tcp_upstream_proxy",
            "network.private_ips_via_upstream",
            "log.audit",
        ] {
            let settings = settings(&words(key)).unwrap();
            assert_eq!(settings.origin(key).to_string(), format!("flag {}", words(key)[0]));
        }
        let capability =
            ["--ws-auth", "capability-token", "--ws-token-sha256", &digest, "--ws-token-sha256", &digest];
        assert_eq!(settings(&capability).unwrap().config.auth.token_sha256.len(), 2);
        let file = ["--ws-auth", "capability-token", "--ws-token-file", "f"];
        assert!(settings(&file).is_ok());
        let tls = ["--tls-cert", "c", "--tls-key", "k", "--tls-client-ca", "a"];
        let tls = settings(&tls).unwrap().config.tls;
        assert_eq!([tls.cert, tls.key, tls.client_ca], ["c", "k", "a"].map(|path| Some(path.into())));
        let signed = [
            "--ws-auth",
            "signed-bearer-token",
            "--ws-shared-secret-file",
            "f",
            "--ws-issuer",
            "i",
            "--ws-audience",
            "a",
            "--ws-max-clock-skew-seconds",
            "7",
        ];
        let auth = settings(&signed).unwrap().config.auth;
        assert_eq!(
            (auth.issuer.as_str(), auth.audience.as_str(), auth.max_clock_skew_seconds),
            ("i", "a", 7)
        );
    }

    #[test]
    fn a_flag_comes_before_set() {
        let settings =
            settings(&["--concurrent-requests", "2", "--set", "server.concurrent_requests=3"]).unwrap();
        assert_eq!(settings.config.server.concurrent_requests.get(), 2);
    }

    #[test_case(&["--concurrent-requests", "0"]; "zero")]
    #[test_case(&["--concurrent-requests", "many"]; "word")]
    #[test_case(&["--ws-auth", "trust-me"]; "mode")]
    #[test_case(&["--ws-max-clock-skew-seconds", "-1"]; "negative skew")]
    #[test_case(&["--ws-max-clock-skew-seconds=-1"]; "negative skew behind equals")]
    #[test_case(&["--log-format", "xml"]; "format")]
    #[test_case(&["--sandbox-backend", "none"]; "no sandbox")]
    #[test_case(&["--set", "x"]; "set without value")]
    #[test_case(&["--exit-on-stdin-close"]; "unknown flag")]
    fn usage_errors(words: &[&str]) {
        assert_eq!(settings(words), Err("usage".into()));
    }

    #[test_case(&["--listen", ""]; "empty address")]
    #[test_case(&["--listen", "wss://127.0.0.1:0"]; "an encrypted address without a certificate")]
    #[test_case(&["--ws-max-clock-skew-seconds", "9223372036854775808"]; "large skew")]
    #[test_case(&["--set", "server.concurrent_requests=0"]; "bad value by set")]
    #[test_case(&["--set", "sandbox.accept_gaps=outsideMetadata,everything"]; "unknown gap")]
    fn settings_that_stop(words: &[&str]) {
        assert!(settings(words).is_err_and(|error| error.contains("flag --")));
    }
}
