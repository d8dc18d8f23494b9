//! Under a service manager: what it hears, what it hands over, and what a reload changes.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant};

use pretty_assertions::assert_eq;
use rustix::process::Signal;
use serde_json::json;

use super::support::client::upgrade;
use super::support::daemon::Setup;
use super::support::{Client, Daemon, End, LIMIT, Refused, Start, eventually, work_dir};

/// The manager's end of the line.
struct Manager {
    socket: UnixDatagram,
    directory: tempfile::TempDir,
}

impl Manager {
    fn new() -> Self {
        let directory = work_dir();
        let socket = UnixDatagram::bind(directory.path().join("notify")).unwrap();
        Self { socket, directory }
    }

    fn setup(&self) -> Setup {
        Daemon::setup().variable("NOTIFY_SOCKET", self.directory.path().join("notify"))
    }

    /// The next thing that it hears and that holds this text.
    async fn hears(&self, text: &str) -> String {
        let socket = self.socket.try_clone().unwrap();
        let wanted = text.to_owned();
        let heard = tokio::task::spawn_blocking(move || {
            socket.set_read_timeout(Some(LIMIT)).unwrap();
            let mut buffer = [0; 4096];
            loop {
                let count = socket.recv(&mut buffer).unwrap_or_else(|error| panic!("no {wanted}: {error}"));
                let message = String::from_utf8_lossy(&buffer[..count]).into_owned();
                if message.contains(&wanted) {
                    return message;
                }
            }
        });
        heard.await.unwrap()
    }
}

#[tokio::test]
async fn it_hears_of_the_start_and_of_the_end() {
    let manager = Manager::new();
    let mut daemon = manager.setup().start().await;
    let ready = manager.hears("READY=1").await;
    assert!(ready.contains(&format!("STATUS=Serving {}", daemon.url())), "{ready}");
    let client = daemon.client().await;
    daemon.signal(Signal::TERM);
    manager.hears("STOPPING=1").await;
    assert_eq!(client.end().await, End::Closed(1001));
    assert_eq!(daemon.ended(LIMIT).await.code(), Some(0));
}

#[tokio::test]
async fn it_hears_that_the_server_is_alive_while_it_is() {
    let manager = Manager::new();
    let daemon = manager.setup().variable("WATCHDOG_USEC", "200000").start().await;
    let began = Instant::now();
    for _ in 0..4 {
        manager.hears("WATCHDOG=1").await;
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    daemon.signal(Signal::STOP);
    manager.socket.set_read_timeout(Some(Duration::from_millis(600))).unwrap();
    let mut buffer = [0; 256];
    let mut after = 0;
    while manager.socket.recv(&mut buffer).is_ok() {
        after += 1;
    }
    assert!(after <= 2, "a stopped process is silent, but for what was on its way: {after}");
    daemon.signal(Signal::CONT);
    manager.hears("WATCHDOG=1").await;
}

#[tokio::test]
async fn nobody_else_speaks_for_it() {
    let manager = Manager::new();
    let daemon = manager.setup().variable("WATCHDOG_USEC", "60000000").start().await;
    let client = daemon.client().await;
    let policy =
        json!({"inherit": "all", "ignoreDefaultExcludes": true, "exclude": [], "set": {}, "includeOnly": []});
    let start = Start::argv(["/usr/bin/env"]).with("envPolicy", policy);
    let run = client.run(&start).await;
    assert!(run.text().contains("HOME="), "{}", run.text());
    assert!(!run.text().contains("NOTIFY_SOCKET") && !run.text().contains("WATCHDOG"), "{}", run.text());
}

fn write_config(path: &Path, text: &str) {
    super::support::tls::replace(path, text.as_bytes());
}

async fn status_with(daemon: &Daemon, token: &str) -> Result<(), Refused> {
    let mut request = upgrade(daemon.url());
    request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    Client::try_connect(daemon.url(), request).await.map(drop)
}

#[tokio::test]
async fn a_reload_follows_the_settings_and_drops_nobody() {
    let manager = Manager::new();
    let home = manager.directory.path();
    let (config, first, second) = (home.join("config.toml"), home.join("first"), home.join("second"));
    std::fs::write(&first, "one").unwrap();
    std::fs::write(&second, "two").unwrap();
    let text = |tokens: &Path, more: &str| {
        let tokens = tokens.display();
        format!(
            "auth.mode = \"capability-token\"\nauth.token_file = \"{tokens}\"\nauth.failure_delay_ms = 0\n{more}"
        )
    };
    write_config(&config, &text(&first, ""));
    let daemon = manager.setup().argument(&format!("--config={}", config.display())).start().await;
    manager.hears("READY=1").await;
    let mut request = upgrade(daemon.url());
    request.headers_mut().insert("authorization", "Bearer one".parse().unwrap());
    let client = Client::try_connect(daemon.url(), request).await.unwrap();
    client.handshake(json!({"clientName": "test"})).await.unwrap();

    write_config(&config, &text(&second, "server.max_sessions = 7\nlog.filter = \"debug\"\n"));
    daemon.signal(Signal::HUP);
    let reloading = manager.hears("RELOADING=1").await;
    assert!(reloading.contains("MONOTONIC_USEC="), "{reloading}");
    manager.hears("READY=1").await;
    assert_eq!(status_with(&daemon, "one").await, Err(Refused::Status(401)));
    assert_eq!(status_with(&daemon, "two").await, Ok(()));
    client.round_trip().await;
    let log = daemon.log();
    assert!(log.contains(r#"changed=["auth.token_file", "log.filter"]"#), "{log}");
    assert!(log.contains(r#"need a restart keys=["server.max_sessions"]"#), "{log}");
    eventually("the filter has changed", LIMIT, || daemon.log().contains("DEBUG")).await;

    write_config(&config, "auth.mode = \"capability-token\"\n");
    daemon.signal(Signal::HUP);
    manager.hears("RELOADING=1").await;
    let ready = manager.hears("READY=1").await;
    assert!(ready.contains("could not be read again"), "{ready}");
    assert!(daemon.log().contains("kept the settings"), "{}", daemon.log());
    assert_eq!(status_with(&daemon, "two").await, Ok(()));
    client.round_trip().await;
    assert_eq!(client.ended(), None);
}

#[tokio::test]
async fn a_reload_keeps_to_the_state_directory_of_the_start() {
    let manager = Manager::new();
    let home = manager.directory.path();
    let (config, first, second) = (home.join("config.toml"), home.join("first"), home.join("second"));
    let text =
        |state: &Path| format!("server.state_dir = \"{}\"\nauth.failure_delay_ms = 0\n", state.display());
    write_config(&config, &text(&first));
    let setup = manager.setup().listen("ws://0.0.0.0:0");
    let daemon = setup.argument(&format!("--config={}", config.display())).start().await;
    manager.hears("READY=1").await;
    let token = std::fs::read_to_string(first.join("token")).unwrap();
    let url = daemon.url().replace("0.0.0.0", "127.0.0.1");
    let connect = async |token: &str| {
        let mut request = upgrade(&url);
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        Client::try_connect(&url, request).await.map(drop)
    };

    write_config(&config, &text(&second));
    daemon.signal(Signal::HUP);
    manager.hears("RELOADING=1").await;
    manager.hears("READY=1").await;
    let log = daemon.log();
    assert!(log.contains(r#"need a restart keys=["server.state_dir"]"#), "{log}");
    assert_eq!(connect(token.trim()).await, Ok(()));
    assert_eq!(connect("another").await, Err(Refused::Status(401)));
    assert!(!second.exists(), "a directory was made that nobody uses");
}

#[tokio::test]
async fn without_a_manager_a_hangup_is_the_end() {
    let mut daemon = Daemon::start().await;
    daemon.signal(Signal::HUP);
    assert_eq!(daemon.ended(LIMIT).await.code(), Some(0));
}

/// Words that hand descriptors over as systemd does: numbered from 3, for the process that the shell becomes.
fn handing_over(names: &str, sockets: &[&OwnedFd]) -> Vec<String> {
    let moves: String = sockets
        .iter()
        .enumerate()
        .map(|(index, socket)| format!(" {}<&{}", index + 3, socket.as_raw_fd()))
        .collect();
    let script =
        format!("LISTEN_PID=$$ LISTEN_FDS={} LISTEN_FDNAMES={names} exec \"$@\"{moves}", sockets.len());
    vec!["/bin/bash".into(), "-c".into(), script, "sh".into()]
}

/// A copy that a child inherits, far from where the shell puts it.
fn inheritable(socket: impl Into<OwnedFd>) -> OwnedFd {
    let socket = socket.into();
    let copy = rustix::io::fcntl_dupfd_cloexec(&socket, 100).unwrap();
    rustix::io::fcntl_setfd(&copy, rustix::io::FdFlags::empty()).unwrap();
    copy
}

#[tokio::test]
async fn sockets_of_the_manager_are_served_and_left_alone() {
    let directory = work_dir();
    let path = directory.path().join("socket");
    let tcp = inheritable(std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let unix = inheritable(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let metrics = inheritable(std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let words = handing_over("main:metrics:unix", &[&tcp, &metrics, &unix]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // One line of stdout for each of the two; what --listen says is not bound.
    let setup = Daemon::setup().listen("127.0.0.1:1").listen("127.0.0.1:1").wrapper(&words);
    let mut daemon = setup.start().await;
    let unix_url = format!("unix:{}", path.display());
    assert!(
        daemon.urls()[0].starts_with("ws://127.0.0.1:") && daemon.urls()[1] == unix_url,
        "{:?}",
        daemon.urls()
    );
    let client = daemon.client().await;
    Client::ready(&unix_url).await.round_trip().await;
    let run = client.run(&Start::sh("ls -l /proc/self/fd; env")).await;
    assert!(!run.text().contains("socket:") && !run.text().contains("LISTEN_"), "{}", run.text());
    let find = |log: String| Some(log.split("url=http://").nth(1)?.split_whitespace().next()?.to_owned());
    eventually("the address of metrics is logged", LIMIT, || find(daemon.log()).is_some()).await;
    let head = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let answer = super::support::http::whole(&find(daemon.log()).unwrap(), head).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.ended(LIMIT).await.code(), Some(0));
    assert!(path.exists(), "the file is the manager's");
    std::os::unix::net::UnixStream::connect(&path).expect("its socket still listens");
}

#[tokio::test]
async fn a_descriptor_that_is_no_listener_is_refused() {
    let connected = inheritable(std::os::unix::net::UnixStream::pair().unwrap().0);
    let words = handing_over("x", &[&connected]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (code, log) = Daemon::setup().wrapper(&words).refused().await;
    assert_eq!(code, Some(1));
    assert!(log.contains("descriptor 3") && log.contains("no stream socket that listens"), "{log}");
}

#[tokio::test]
async fn sockets_for_another_process_are_not_taken() {
    let daemon = Daemon::setup().variable("LISTEN_PID", "1").variable("LISTEN_FDS", "1").start().await;
    daemon.client().await.round_trip().await;
}

/// The file that stderr goes to in these tests stands for the stream of the journal.
#[tokio::test]
async fn the_journal_gets_levels_and_no_times() {
    let script = "JOURNAL_STREAM=$(stat -Lc %d:%i /proc/self/fd/2) exec \"$@\"";
    for (variable, is_journal) in [(script, true), ("JOURNAL_STREAM=1:1 exec \"$@\"", false)] {
        let setup = Daemon::setup().wrapper(&["/bin/sh", "-c", variable, "sh"]);
        let daemon = setup.set("metrics.listen", "127.0.0.1:0").start().await;
        let line = daemon.log().lines().find(|line| line.contains("serving metrics")).unwrap().to_owned();
        assert_eq!(line.starts_with("<6>exec_server"), is_journal, "{line}");
        assert_eq!(line.starts_with("20"), !is_journal, "{line}");
        assert!(std::fs::metadata(daemon.home().join("stderr")).unwrap().ino() > 0);
    }
}
