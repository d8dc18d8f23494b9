//! TLS: who gets through, what a rotation of certificates changes, and that strangers hold nobody up.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use pretty_assertions::assert_eq;
use serde_json::json;
use test_case::test_case;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::support::daemon::Setup;
use super::support::http::{status, upgrade_head};
use super::support::tls::{Authority, Identity, connect, exchange, replace};
use super::support::{Client, Daemon, LIMIT, Refused, Start, eventually, work_dir};

/// An authority, and the files of a server that it vouches for.
struct Site {
    authority: Authority,
    directory: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let site = Self { authority: Authority::new(), directory: work_dir() };
        site.identity().write(&site.certificate(), &site.key());
        site
    }

    fn certificate(&self) -> PathBuf {
        self.directory.path().join("cert.pem")
    }

    fn key(&self) -> PathBuf {
        self.directory.path().join("key.pem")
    }

    fn identity(&self) -> Identity {
        self.authority.identity(&["localhost"])
    }

    fn setup(&self) -> Setup {
        let flag = |name: &str, path: PathBuf| format!("--{name}={}", path.display());
        Daemon::setup().argument(&flag("tls-cert", self.certificate())).argument(&flag("tls-key", self.key()))
    }

    /// With clients that have to show a certificate of this authority.
    fn mutual(&self, clients: &Authority) -> Setup {
        let path = self.directory.path().join("clients.pem");
        std::fs::write(&path, clients.pem()).unwrap();
        self.setup().argument(&format!("--tls-client-ca={}", path.display()))
    }

    fn client(&self) -> TlsConnector {
        self.authority.client(None)
    }
}

async fn ready(daemon: &Daemon, connector: &TlsConnector) -> Client {
    let client = Client::try_connect_tls(daemon.url(), connector, &[]).await.expect("a connection");
    client.handshake(json!({"clientName": "test"})).await.expect("a session");
    client
}

/// The certificate that a new connection is shown.
async fn shown(daemon: &Daemon, connector: &TlsConnector) -> Vec<u8> {
    let stream = connect(connector, daemon.url()).await.expect("a handshake");
    stream.get_ref().1.peer_certificates().expect("a certificate")[0].to_vec()
}

async fn readiness(daemon: &Daemon, connector: &TlsConnector) -> u16 {
    let head = "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    status(&exchange(connector, daemon.url(), head).await)
}

#[tokio::test]
async fn everything_works_as_without() {
    let site = Site::new();
    let daemon = site.setup().start().await;
    assert!(daemon.url().starts_with("wss://127.0.0.1:"), "{}", daemon.url());
    let client = ready(&daemon, &site.client()).await;
    let run = client.run(&Start::sh("head -c 3000000 /dev/zero; printf in >&2")).await;
    run.assert_whole();
    assert_eq!((run.stdout.len(), run.stderr.as_slice(), run.exit()), (3_000_000, &b"in"[..], 0));
    assert_eq!(readiness(&daemon, &site.client()).await, 200);
    let stranger = Authority::new().client(None);
    assert!(connect(&stranger, daemon.url()).await.is_err(), "a stranger's client does not trust it");
}

#[tokio::test]
async fn unix_sockets_stay_as_they_are() {
    let site = Site::new();
    let directory = work_dir();
    let unix = format!("unix:{}", directory.path().join("socket").display());
    let daemon = site.setup().listen("wss://localhost:0").listen(&unix).start().await;
    assert!(daemon.urls()[0].starts_with("wss://") && daemon.urls()[1] == unix, "{:?}", daemon.urls());
    Client::ready(&unix).await.round_trip().await;
    ready(&daemon, &site.client()).await.round_trip().await;
}

#[tokio::test]
async fn nothing_is_served_in_clear() {
    let site = Site::new();
    let daemon = site.setup().start().await;
    let url = daemon.url().replace("wss://", "ws://");
    let outcome = Client::try_connect(&url, super::support::client::upgrade(&url)).await;
    assert_eq!(outcome.map(drop), Err(Refused::Broken));
}

#[tokio::test]
async fn browsers_other_names_and_tokens_are_judged_as_without() {
    let site = Site::new();
    let token = site.directory.path().join("token");
    std::fs::write(&token, "right").unwrap();
    let setup = site.setup().set("auth.failure_delay_ms", "0").argument("--ws-auth=capability-token");
    let daemon = setup.argument(&format!("--ws-token-file={}", token.display())).start().await;
    let (connector, url) = (site.client(), daemon.url());
    for (host, lines, expected) in [
        ("localhost", &["Origin: https://localhost", "Authorization: Bearer right"][..], 403),
        ("evil.test", &["Authorization: Bearer right"], 403),
        ("localhost", &["Authorization: Bearer wrong"], 401),
        ("localhost", &[], 401),
    ] {
        let head = upgrade_head(host, lines);
        assert_eq!(status(&exchange(&connector, url, &head).await), expected, "{host} {lines:?}");
    }
    let lines = [("authorization", "Bearer right")];
    let client = Client::try_connect_tls(url, &connector, &lines).await.expect("the token is right");
    client.handshake(json!({"clientName": "test"})).await.expect("a session");
}

#[tokio::test]
async fn a_new_certificate_is_for_new_connections() {
    let site = Site::new();
    let daemon = site.setup().start().await;
    let connector = site.client();
    let client = ready(&daemon, &connector).await;
    let first = shown(&daemon, &connector).await;
    site.identity().write(&site.certificate(), &site.key());
    let second = shown(&daemon, &connector).await;
    assert_ne!(first, second);
    client.round_trip().await;
    replace(&site.certificate(), b"no certificate");
    assert_eq!(shown(&daemon, &connector).await, second, "what was good stays");
    let is_logged = || daemon.log().contains("kept what was read before");
    eventually("the bad file is logged", LIMIT, is_logged).await;
    std::fs::remove_file(site.certificate()).unwrap();
    assert_eq!(shown(&daemon, &connector).await, second);
    site.identity().write(&site.certificate(), &site.key());
    assert_ne!(shown(&daemon, &connector).await, second);
    client.round_trip().await;
}

#[tokio::test]
async fn a_client_proves_who_it_is() {
    let (site, clients) = (Site::new(), Authority::new());
    let daemon = site.mutual(&clients).set("auth.failure_delay_ms", "0").start().await;
    let (member, outsider) = (clients.identity(&["member"]), Authority::new().identity(&["member"]));
    let client = ready(&daemon, &site.authority.client(Some(&member))).await;
    client.round_trip().await;
    let anonymous = site.client();
    let outcome = Client::try_connect_tls(daemon.url(), &anonymous, &[]).await;
    assert_eq!(outcome.map(drop), Err(Refused::Status(401)), "no certificate");
    assert_eq!(readiness(&daemon, &anonymous).await, 200, "health is for everybody");
    let outcome = Client::try_connect_tls(daemon.url(), &site.authority.client(Some(&outsider)), &[]).await;
    assert_eq!(outcome.map(drop), Err(Refused::Broken), "a certificate of others");
    let log = daemon.log();
    assert!(log.matches("authentication failed").count() == 2, "{log}");
    assert!(log.contains("missing client certificate"), "{log}");
}

#[tokio::test]
async fn a_certificate_does_not_replace_the_token() {
    let (site, clients) = (Site::new(), Authority::new());
    let token = site.directory.path().join("token");
    std::fs::write(&token, "right").unwrap();
    let setup =
        site.mutual(&clients).set("auth.failure_delay_ms", "0").argument("--ws-auth=capability-token");
    let daemon = setup.argument(&format!("--ws-token-file={}", token.display())).start().await;
    let member = site.authority.client(Some(&clients.identity(&["member"])));
    let outcome = Client::try_connect_tls(daemon.url(), &member, &[]).await;
    assert_eq!(outcome.map(drop), Err(Refused::Status(401)));
    let lines = [("authorization", "Bearer right")];
    let outcome = Client::try_connect_tls(daemon.url(), &site.client(), &lines).await;
    assert_eq!(outcome.map(drop), Err(Refused::Status(401)), "nor the token the certificate");
    Client::try_connect_tls(daemon.url(), &member, &lines).await.expect("both are right");
}

#[tokio::test]
async fn a_silent_stranger_is_dropped_and_holds_nobody_up() {
    let site = Site::new();
    let daemon = site.setup().set("server.head_timeout_ms", "1000").start().await;
    let address = daemon.url().trim_start_matches("wss://");
    let began = Instant::now();
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let client = ready(&daemon, &site.client()).await;
    client.round_trip().await;
    for mut stranger in silent {
        let mut rest = Vec::new();
        timeout(LIMIT, stranger.read_to_end(&mut rest)).await.expect("it is ended").ok();
    }
    assert!(began.elapsed() >= Duration::from_millis(900), "not before its time");
    client.round_trip().await;
}

#[test_case("tls-cert=CERT", "needs tls.key (--tls-key)"; "certificate alone")]
#[test_case("tls-key=KEY", "needs tls.cert (--tls-cert)"; "key alone")]
#[test_case("tls-client-ca=CERT", "needs tls.cert (--tls-cert)"; "clients alone")]
#[test_case("tls-cert=missing --tls-key=KEY", "cannot use tls.cert missing"; "a file that is not there")]
#[test_case("tls-cert=CERT --tls-key=CERT", "cannot use tls.key"; "a key that is none")]
#[test_case("tls-cert=CERT --tls-key=KEY --tls-client-ca=KEY", "cannot use tls.client_ca"; "no authority")]
#[tokio::test]
async fn what_cannot_be_used_stops_the_start(arguments: &str, message: &str) {
    let site = Site::new();
    let (certificate, key) = (site.certificate().display().to_string(), site.key().display().to_string());
    let arguments = format!("--{arguments}").replace("CERT", &certificate).replace("KEY", &key);
    let setup = arguments.split(' ').fold(Daemon::setup(), Setup::argument);
    let (code, log) = setup.refused().await;
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains(message), "{log}");
}

#[tokio::test]
async fn an_encrypted_address_needs_a_certificate() {
    let (code, log) = Daemon::setup().listen("wss://127.0.0.1:0").refused().await;
    assert_eq!(code, Some(1));
    assert!(log.contains("server.listen (flag --listen) needs tls.cert (--tls-cert) for TLS"), "{log}");
}
