//! The table of keys. A new key is one entry here, and `config/exec-server.toml` written anew from [`template`].

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use super::value::{Bounds, Input, Setting, ValueError};
use super::words::{
    AcceptedGap, AuditTarget, AuthMode, BackendChoice, CgroupChoice, HostName, HostPort, LogFilter,
    LogFormat, TokenDigest, VariableName,
};
use super::{Host, ListenAddress};
use crate::policy::hosts::Denial;

/// One row of the table: a key, without its type.
#[derive(Debug)]
pub struct Key {
    /// The TOML path, such as `server.listen`.
    pub path: &'static str,
    /// What it does, in a sentence or two.
    pub doc: &'static str,
    /// Its value is never shown.
    pub secret: bool,
    pub(super) bounds: Bounds,
    pub(super) read: fn(&mut Config, &Bounds, Input<'_>) -> Result<(), ValueError>,
    pub(super) show: fn(&Config) -> toml::Value,
}

impl Key {
    /// The environment variable that sets this key.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("EXEC_SERVER_{}", self.path.to_uppercase().replace('.', "_"))
    }
}

/// Declares sections of keys: `name: Type[, in BOUNDS] = default;`, the bounds in the unit of the key.
macro_rules! schema {
    ($(
        $(#[doc = $about:literal])+
        $section:ident : $Section:ident {
            $($(#[doc = $doc:literal])+ $key:ident : $type:ty $(, in $bounds:ident)? = $default:expr;)+
        }
    )+) => {
        /// All settings.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct Config {
            $($(#[doc = $about])+ pub $section: $Section,)+
        }

        $(
            $(#[doc = $about])+
            #[derive(Debug, Clone, PartialEq, Eq)]
            pub struct $Section {
                $($(#[doc = $doc])+ pub $key: $type,)+
            }

            impl Default for $Section {
                fn default() -> Self {
                    Self { $($key: $default,)+ }
                }
            }
        )+

        static KEYS: &[Key] = &[$($(
            Key {
                path: concat!(schema!(@table $section), ".", stringify!($key)),
                doc: concat!($($doc),+),
                secret: <$type as Setting>::SECRET,
                bounds: schema!(@bounds $type $(, $bounds)?),
                read: |config, bounds, input| {
                    config.$section.$key = <$type as Setting>::read(input, bounds)?;
                    Ok(())
                },
                show: |config| config.$section.$key.show(),
            },
        )+)+];
    };
    (@table limits_default) => { "limits.default" };
    (@table limits_max) => { "limits.max" };
    (@table $section:ident) => { stringify!($section) };
    (@bounds $type:ty) => { <$type as Setting>::BOUNDS };
    (@bounds $type:ty, $bounds:ident) => { $bounds };
}

/// The longest time that any setting takes: 30 days, in milliseconds.
pub(super) const LONGEST_MS: i64 = 30 * 24 * 3600 * 1000;

/// A time after which something happens, so that 0 would not make sense.
const TIMEOUT: Bounds = 1..=LONGEST_MS;

/// What a limit of a run may be.
const LIMIT: Bounds = 1..=i64::MAX;

/// Less would be used up by a few ordinary requests.
const MEMORY: Bounds = 1 << 20..=i64::MAX;

/// As the kernel has it.
const OOM_SCORE: Bounds = 0..=1000;

/// What fits into one answer as base64.
const MAX_BUFFERED: i64 = 44 << 20;
const BUFFERED: Bounds = 0..=MAX_BUFFERED;

schema! {
    /// Where the server listens and how much it holds.
    server: ServerConfig {
        /// Addresses to listen on: `ws://HOST:PORT` (the `ws://` may be missing), `unix:/absolute/path`, or `stdio` alone.
        /// With `tls.cert` every `ws://` is served as `wss://`; an address written `wss://` is refused without.
        listen: Vec<ListenAddress> = vec![ListenAddress::Tcp { host: Host::Ip([127, 0, 0, 1].into()), port: 8765, secure: false }];
        /// Requests of one connection that may run at a time.
        concurrent_requests: NonZeroUsize = count(64);
        /// Host names, besides `localhost` and loopback addresses, that requests to a loopback listener may name.
        allowed_hosts: Vec<HostName> = Vec::new();
        /// Milliseconds in which the head of a request must be complete.
        head_timeout_ms: Duration, in TIMEOUT = Duration::from_secs(30);
        /// Milliseconds in which a new connection must send `initialize`.
        initialize_timeout_ms: Duration, in TIMEOUT = Duration::from_secs(60);
        /// Connections held at a time; more are refused with 503.
        max_connections: NonZeroUsize = count(4096);
        /// Sessions held at a time, the detached ones included.
        max_sessions: NonZeroUsize = count(4096);
        /// Directory for what outlives the server, such as the generated token. Empty: `$STATE_DIRECTORY`, else
        /// `$XDG_STATE_HOME/exec-server`, else `$HOME/.local/state/exec-server`.
        state_dir: Option<PathBuf> = None;
        /// Milliseconds that processes have to end after SIGTERM to the server.
        drain_ms: Duration = Duration::from_secs(5);
    }

    /// Who may connect.
    auth: AuthConfig {
        /// `none`, `capability-token` or `signed-bearer-token`. Empty: no token on loopback addresses and unix sockets,
        /// a generated one everywhere else.
        mode: Option<AuthMode> = None;
        /// File of the capability tokens, one a line; re-read when it changes.
        token_file: Option<PathBuf> = None;
        /// SHA-256 digests of the capability tokens, 64 hex digits each; instead of `auth.token_file`.
        token_sha256: Vec<TokenDigest> = Vec::new();
        /// File of the secret that signs HS256 tokens, at least 32 bytes.
        shared_secret_file: Option<PathBuf> = None;
        /// The `iss` claim that a signed token must carry. Empty: not checked.
        issuer: String = String::new();
        /// The `aud` claim that a signed token must carry. Empty: not checked.
        audience: String = String::new();
        /// Seconds by which the clocks of signer and server may differ.
        max_clock_skew_seconds: u64 = 30;
        /// Milliseconds by which the answer to a failed attempt is held back.
        failure_delay_ms: Duration = Duration::from_secs(1);
    }

    /// TLS for all TCP addresses. Unix sockets and stdio never have it.
    tls: TlsConfig {
        /// PEM file of the certificate and of what is between it and its root, in this order. With it TCP addresses are
        /// served over TLS only. Re-read when it changes, as are the others; a change that cannot be used is logged,
        /// and what was read before stays in use.
        cert: Option<PathBuf> = None;
        /// PEM file of the private key of `tls.cert`.
        key: Option<PathBuf> = None;
        /// PEM file of certificate authorities. With it a client must show a certificate that one of them signed, beside
        /// what `auth` asks for; only `/readyz` and `/healthz` answer without.
        client_ca: Option<PathBuf> = None;
    }

    /// How sessions outlive their connections.
    session: SessionConfig {
        /// Milliseconds that a session and its processes live without a connection, up to 30 days.
        detached_ms: Duration = Duration::from_secs(80);
        /// Milliseconds between two pings.
        ping_interval_ms: Duration, in TIMEOUT = Duration::from_secs(30);
        /// Milliseconds after which a connection that answers no ping is closed and its session freed.
        ping_timeout_ms: Duration, in TIMEOUT = Duration::from_secs(60);
    }

    /// How processes end and where their output waits.
    process: ProcessConfig {
        /// Milliseconds between SIGTERM and SIGKILL when a process is terminated.
        grace_ms: Duration = Duration::from_secs(2);
        /// Bytes of output that one process may leave on disk; 0 keeps none there.
        spool_bytes: u64 = 32 << 20;
        /// Bytes of output that all processes together may leave on disk; 0 keeps none there.
        spool_total_bytes: u64 = 1 << 30;
        /// Directory of that output. Empty: `server.state_dir`, else the temporary directory.
        spool_dir: Option<PathBuf> = None;
    }

    /// How sandbox policies are enforced.
    sandbox: SandboxConfig {
        /// `auto`, `namespaces` or `landlock`. `auto` gives each policy to the first that can enforce all of it; a named
        /// one that this host does not have refuses every policy that needs it. `exec-server doctor` says what it has.
        backend: BackendChoice = BackendChoice::Auto;
        /// What the backend may leave open, where a policy would be refused otherwise: `outsideMetadata`,
        /// `protectedMetadata`, `proxyPortAnyHost`. Every start reports what its backend leaves open.
        accept_gaps: Vec<AcceptedGap> = Vec::new();
    }

    /// How much there may be of everything.
    limits: LimitsConfig {
        /// Live processes of the whole server.
        processes: NonZeroUsize = count(8192);
        /// Live processes of one session.
        processes_per_session: NonZeroUsize = count(4096);
        /// Bytes that the server's own buffers may hold together: output in memory, requests, answers, HTTP bodies. When
        /// they do, output goes to disk, whoever makes more waits, and starts are refused. Empty: no limit but those of
        /// each kind.
        memory_bytes: Option<u64>, in MEMORY = None;
        /// The cgroup that is divided among the runs, so that their limits hold and each can be ended as a whole: `auto`
        /// is the server's own if it was delegated to it, `off` none; or the directory of one that the server may have.
        cgroup: CgroupChoice = CgroupChoice::Auto;
        /// How much sooner than the server its processes are killed when memory runs out, 0 to 1000.
        child_oom_score_adj: u64, in OOM_SCORE = 500;
    }

    /// Limits of a run that asks for none of the kind. Empty: the ceiling, else no limit.
    limits_default: DefaultLimitsConfig {
        /// Memory of the whole run. Needs a cgroup, as the next two.
        memory_bytes: Option<u64>, in LIMIT = None;
        /// Processes and threads of the run.
        processes: Option<u64>, in LIMIT = None;
        /// Milliseconds of processor time of the run.
        cpu_ms: Option<u64>, in LIMIT = None;
        /// Milliseconds from its start.
        wall_ms: Option<u64>, in LIMIT = None;
        /// Bytes of output.
        output_bytes: Option<u64>, in LIMIT = None;
        /// Files that each of its processes may have open.
        open_files: Option<u64>, in LIMIT = None;
    }

    /// Ceilings of these limits: what a run may ask for at most, and gets if it asks for nothing and there is no default.
    limits_max: MaxLimitsConfig {
        /// Memory of the whole run. Needs a cgroup, as the next two.
        memory_bytes: Option<u64>, in LIMIT = None;
        /// Processes and threads of the run.
        processes: Option<u64>, in LIMIT = None;
        /// Milliseconds of processor time of the run.
        cpu_ms: Option<u64>, in LIMIT = None;
        /// Milliseconds from its start.
        wall_ms: Option<u64>, in LIMIT = None;
        /// Bytes of output.
        output_bytes: Option<u64>, in LIMIT = None;
        /// Files that each of its processes may have open.
        open_files: Option<u64>, in LIMIT = None;
    }

    /// Requests that the server makes for its clients.
    http: HttpConfig {
        /// Decoded bytes of a response body that `http/request` returns whole; larger ones have to be streamed. At most
        /// what one answer can carry.
        max_buffered_bytes: u64, in BUFFERED = MAX_BUFFERED.unsigned_abs();
        /// Environment variables of the server that `valueEnvVar` of a header may read; `*` is all of them. Well-known
        /// credentials and the server's own variables are never read.
        header_env_allow: Vec<VariableName> = vec![VariableName::any()];
        /// Hosts that no request reaches, redirects included, by name or by the address that a name leads to: names,
        /// addresses, patterns (`*.example.com` all below it, `**.example.com` the domain as well, `10.*.*.*`), and
        /// `private` for everything that is not on the internet.
        deny: Vec<Denial> = Vec::new();
    }

    /// The proxies of starts with managed networking.
    network: NetworkConfig {
        /// The proxy of a run without a sandbox closes connections that come from outside its process tree, and carries no
        /// datagrams, which do not show where they come from. Those of sandboxed runs always do so.
        check_peer: bool = false;
        /// Connections that one proxy holds at a time; more wait.
        max_connections: NonZeroUsize = count(512);
        /// `HOST:PORT` of an HTTP proxy through which the TCP connections of the SOCKS listeners go, by CONNECT. Empty:
        /// they go straight to where they lead.
        tcp_upstream_proxy: Option<HostPort> = None;
        /// Destinations that are not on the internet go through upstream proxies as well.
        private_ips_via_upstream: bool = false;
    }

    /// How the state of shells is remembered for starts that ask for it.
    snapshot: SnapshotConfig {
        /// Remember it; without, such starts run the start-up files each time.
        enabled: bool = true;
        /// Milliseconds that the start-up files may take when the state is captured.
        capture_ms: Duration, in TIMEOUT = Duration::from_secs(10);
        /// Bytes that all remembered states of all sessions may have; those used least recently go first.
        cache_bytes: u64 = 256 << 20;
    }

    /// Counts and times, for Prometheus.
    metrics: MetricsConfig {
        /// Addresses that serve `/metrics`, `/readyz` and `/healthz` and nothing else. Empty: the addresses of
        /// `server.listen` serve `/metrics` too.
        listen: Vec<ListenAddress> = Vec::new();
        /// File of the tokens that may read `/metrics`, one a line; re-read when it changes. Empty: the tokens of `auth`.
        /// On loopback addresses and unix sockets none is asked for.
        token_file: Option<PathBuf> = None;
    }

    /// What the server writes to stderr.
    log: LogConfig {
        /// `text` or `json`.
        format: LogFormat = LogFormat::Text;
        /// Which events: a level, or directives such as `info,exec_server=debug`. Also `RUST_LOG`.
        filter: LogFilter = LogFilter::default();
        /// Who did what, as lines of JSON: a file, which is added to and begun anew when it has been moved away, or `stderr`.
        audit: Option<AuditTarget> = None;
    }
}

const fn count(value: usize) -> NonZeroUsize {
    match NonZeroUsize::new(value) {
        Some(value) => value,
        None => NonZeroUsize::MIN,
    }
}

/// All keys, in the order of the example file.
#[must_use]
pub fn keys() -> &'static [Key] {
    KEYS
}

/// The example file: every key with its sentence and its default, commented out.
#[must_use]
pub fn template() -> String {
    let defaults = Config::default();
    let mut text = String::from(
        "# Settings of exec-server, each with its default. Read from /etc/exec-server/config.toml, or the file of --config.\n\
         # A flag comes before the environment, the environment before this file; the variable of a key is EXEC_SERVER_\n\
         # and the key in capitals with _ for the dot. `exec-server config check` prints what is in force and why.\n",
    );
    let mut section = "";
    for key in KEYS {
        let (table, name) = key.path.rsplit_once('.').unwrap_or(("", key.path));
        if table != section {
            text.push_str(&format!("\n[{table}]\n"));
            section = table;
        }
        text.push_str(&format!("{}#{name} = {}\n", commented(key.doc), (key.show)(&defaults)));
    }
    text
}

/// Lines of at most 110 columns behind `# `; what can be uncommented has no space there.
fn commented(doc: &str) -> String {
    let mut lines = vec![String::from("#")];
    for word in doc.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + word.len() < 110 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("# {word}")),
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigFile, load};
    use pretty_assertions::assert_eq;
    use std::collections::BTreeSet;

    const EXAMPLE: &str = include_str!("../../config/exec-server.toml");

    #[test]
    fn the_example_file_is_the_table() {
        if std::env::var_os("UPDATE_EXAMPLE").is_some() {
            std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/config/exec-server.toml"), template())
                .unwrap();
        }
        assert_eq!(EXAMPLE, template(), "run the test with UPDATE_EXAMPLE=1 to write the file anew");
    }

    #[test]
    fn the_example_file_uncommented_gives_the_defaults() {
        let uncommented: Vec<&str> = EXAMPLE
            .lines()
            .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line))
            .collect();
        let file = ConfigFile { path: "example.toml".into(), text: uncommented.join("\n") };
        let settings = load(&[], [], Some(&file)).unwrap();
        assert_eq!(settings.config, Config::default());
        for key in KEYS {
            assert_eq!(settings.origin(key.path).to_string(), format!("example.toml:{}", key.path));
        }
    }

    #[test]
    fn variables_are_unique() {
        let names: BTreeSet<String> = KEYS.iter().map(Key::variable).collect();
        assert_eq!(names.len(), KEYS.len());
        assert!(names.contains("EXEC_SERVER_AUTH_TOKEN_SHA256"));
    }
}
