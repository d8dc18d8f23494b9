//! Who is let in while a sandboxed program has a network. The server runs in this process; a program that it starts
//! stands for the sandboxed one, since what counts is how it was announced.

use std::ffi::CString;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use exec_server::config::{Flag, load};
use exec_server::sandbox::networked::NetworkedRun;
use exec_server::sandbox::{SandboxSettings, Sandboxes};
use exec_server::server::{Resources, Server, Shutdown};
use exec_server::service::Sockets;
use exec_server::session::LimitPolicy;
use exec_server::spawn::isolation::Isolation;
use exec_server::spawn::mark::ServerMark;
use exec_server::spawn::{Child, Launch, Stdio, Tree, reaper, spawn};
use rustix::pipe::{PipeFlags, pipe_with};
use test_case::test_case;

use crate::support::until;

/// Connects to the address of its first argument and sends an upgrade, and what more the script says.
const CLIENT: &str = r#"
import os, socket, struct, sys, time
host, _, port = sys.argv[1].rpartition(":")
UPGRADE = (b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
           b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
def connect(source=None):
    if host == "unix":
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(port)
        return peer
    return socket.create_connection((host.strip("[]"), int(port)), None, source)
def status(peer):
    return peer.recv(12)[-3:].decode()
"#;

const PLAIN: &str = "peer = connect(); peer.sendall(UPGRADE); print(status(peer))";

/// Has a file made by a server that answers nobody, before it says so.
const BLIND: &str = r#"
import json
def frame(message):
    data = json.dumps(message).encode()
    return struct.pack("!BBH", 0x81, 0xFE, len(data)) + b"\0\0\0\0" + data
def pad(message):
    return {**message, "pad": "x" * 126}
def blind(peer, path):
    start = {"processId": "p", "argv": ["/usr/bin/touch", path], "cwd": "file:///", "env": {}, "tty": False}
    peer.sendall(UPGRADE + frame(pad({"id": 1, "method": "initialize", "params": {"clientName": "blind"}}))
        + frame(pad({"method": "initialized", "params": {}}))
        + frame(pad({"id": 2, "method": "process/start", "params": start})))
"#;

/// A server of this process that has bound its address.
struct Place {
    sandboxes: Arc<Sandboxes>,
    mark: ServerMark,
    server: Option<Server>,
    target: String,
    home: tempfile::TempDir,
}

impl Place {
    async fn new(listen: &str) -> Self {
        // So that whoever is a stranger to this process can be told from its orphans.
        reaper::become_subreaper().unwrap();
        let home = tempfile::tempdir().unwrap();
        let path = home.path().to_str().unwrap();
        let flags = [
            Flag::set("server.listen", &listen.replace("HOME", path)),
            Flag::set("server.state_dir", path),
            Flag::set("auth.failure_delay_ms", "0"),
        ];
        let sandboxes = Sandboxes::new(SandboxSettings::default());
        let mark = ServerMark::new();
        let settings = load(&flags, [], None).unwrap();
        let resources = Resources {
            mark,
            environment: Vec::new(),
            sandboxes: Arc::clone(&sandboxes),
            telemetry: Arc::default(),
            limits: LimitPolicy::default(),
        };
        let server = Server::bind(&settings, resources, Sockets::default()).await.unwrap();
        let target = server.urls()[0].trim_start_matches("ws://").to_owned();
        Self { sandboxes, mark, server: Some(server), target, home }
    }

    async fn serving(listen: &str) -> Self {
        let mut place = Self::new(listen).await;
        place.serve();
        place
    }

    fn serve(&mut self) {
        tokio::spawn(self.server.take().unwrap().run(Shutdown::default()));
    }

    /// The same port at another address.
    fn at(&mut self, host: &str) {
        let (_, port) = self.target.rsplit_once(':').unwrap();
        self.target = format!("{host}:{port}");
    }

    fn file(&self) -> PathBuf {
        self.home.path().join("made")
    }

    /// Starts a client as a child of the server. Its second argument is a path of its own.
    fn client(&self, script: &str) -> Client {
        let (output, theirs) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let nowhere = || OwnedFd::from(File::options().read(true).write(true).open("/dev/null").unwrap());
        let word = |text: &str| CString::new(text).unwrap();
        let (script, path) = (format!("{CLIENT}{BLIND}{script}"), self.file());
        let argv = ["python3", "-uc", &script, &self.target, path.to_str().unwrap()];
        let launch = Launch {
            candidates: vec![word("/usr/bin/python3")],
            argv: argv.map(word).to_vec(),
            env: Vec::new(),
            cwd: word("/"),
            inherited: Vec::new(),
            isolation: Isolation::None,
            stdio: Stdio::Separate {
                stdin: nowhere(),
                stdout: theirs,
                stderr: std::io::stderr().as_fd().try_clone_to_owned().unwrap(),
            },
            tree: Tree { mark: self.mark.session().run(), ..Tree::none() },
        };
        Client { child: spawn(launch).unwrap(), output: BufReader::new(output.into()) }
    }

    /// Starts a client as the first process of a sandboxed run.
    fn sandboxed(&self, script: &str) -> (NetworkedRun, Client) {
        let run = self.sandboxes.networked.begin(false);
        let client = self.client(script);
        run.led_by(client.child.pid());
        (run, client)
    }
}

struct Client {
    child: Child,
    output: BufReader<File>,
}

impl Client {
    /// The next line that it prints; empty when it ends.
    async fn line(&mut self) -> String {
        tokio::task::block_in_place(|| {
            let mut line = String::new();
            self.output.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.child.kill_and_reap();
    }
}

#[test_case("127.0.0.1:0", None; "IPv4")]
#[test_case("[::1]:0", None; "IPv6")]
#[test_case("[::ffff:127.0.0.1]:0", None; "mapped listener")]
#[test_case("127.0.0.1:0", Some("[::ffff:127.0.0.1]"); "mapped client")]
#[test_case("unix:HOME/socket", None; "unix socket")]
#[tokio::test(flavor = "multi_thread")]
async fn a_sandboxed_client_is_refused_and_others_are_not(listen: &str, host: Option<&str>) {
    let mut place = Place::serving(listen).await;
    if let Some(host) = host {
        place.at(host);
    }
    let (run, mut client) = place.sandboxed(PLAIN);
    assert_eq!(client.line().await, "403");
    assert_eq!(place.client(PLAIN).line().await, "101", "a child without a sandbox");
    let fork = format!("if os.fork(): os.wait(); os._exit(0)\n{PLAIN}");
    assert_eq!(place.client(&fork).line().await, "101", "a grandchild without a sandbox");
    let (_other, mut grandchild) = place.sandboxed(&fork);
    assert_eq!(grandchild.line().await, "403", "a grandchild in a sandbox");
    drop((run, client, grandchild, _other));
    assert_eq!(place.client(PLAIN).line().await, "101", "nobody is sandboxed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_of_this_machine_is_no_way_around_and_no_token_is_needed_for_the_refusal() {
    let route = UdpSocket::bind("0.0.0.0:0").unwrap();
    route.connect("203.0.113.1:9").expect("this test needs an address beside the loopback");
    let address = route.local_addr().unwrap().ip();
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let mut place = Place::serving(listen).await;
        place.at(&address.to_string());
        let (_run, mut client) = place.sandboxed(PLAIN);
        assert_eq!(client.line().await, "403");
        assert_eq!(place.client(PLAIN).line().await, "401");
        let bound = PLAIN.replace("connect()", &format!("connect(({:?}, 0))", "127.0.0.1"));
        place.at("127.0.0.2");
        assert_eq!(place.sandboxed(&bound).1.line().await, "403");
    }
}

#[test_case("127.0.0.1:0"; "TCP")]
#[test_case("unix:HOME/socket"; "unix socket")]
#[tokio::test(flavor = "multi_thread")]
async fn who_lost_its_parent_is_refused_while_it_may_be_sandboxed(listen: &str) {
    let place = Place::serving(listen).await;
    let orphan = format!(
        "if os.fork(): os._exit(0)\nparent = os.getppid()\nos.setsid()\n\
        while os.getppid() == parent and parent != {}: time.sleep(0.001)\n{PLAIN}",
        std::process::id()
    );
    let (run, mut client) = place.sandboxed(&orphan);
    assert_eq!(client.line().await, "403");
    assert_eq!(place.client(&orphan).line().await, "403", "of which run, nobody knows");
    drop((run, client));
    // The first connection after the end may have been made before it.
    assert_eq!(place.client(PLAIN).line().await, "101");
    assert_eq!(place.client(&orphan).line().await, "101");
}

/// The socket is hidden before the server looks: in a message to itself, in a thread, in a child of a child.
#[test_case("a, b = socket.socketpair()\nsocket.send_fds(a, [b'x'], [peer.fileno()])\npeer.close()",
    "peer = socket.socket(fileno=socket.recv_fds(b, 1, 1)[1][0])"; "on its way")]
#[test_case("if os.fork(): os._exit(0)\nif os.fork(): os._exit(0)", ""; "in a grandchild")]
#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_was_passed_on_is_refused(hide: &str, show: &str) {
    for listen in ["127.0.0.1:0", "[::1]:0", "unix:HOME/socket"] {
        let mut place = Place::new(listen).await;
        let script = format!(
            "peer = connect()\npeer.sendall(UPGRADE)\n{hide}\nprint('hidden')\n{show}\nprint(status(peer))"
        );
        let (_run, mut client) = place.sandboxed(&script);
        assert_eq!(client.line().await, "hidden");
        place.serve();
        assert_eq!(client.line().await, "403", "{listen}");
    }
}

/// Whatever a client does that is gone when the server looks, nothing comes of what it sent.
#[test_case("os._exit(0)"; "ends")]
#[test_case("peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); os._exit(0)"; "resets")]
#[test_case("peer.shutdown(socket.SHUT_WR); os._exit(0)"; "half closes and ends")]
#[test_case("peer.shutdown(socket.SHUT_WR); print(); time.sleep(1000)"; "half closes and stays")]
#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_blindly_is_not_done(end: &str) {
    for listen in ["127.0.0.1:0", "unix:HOME/socket"] {
        let mut place = Place::new(listen).await;
        let script = format!("peer = connect()\nblind(peer, sys.argv[2])\n{end}");
        let (run, mut client) = place.sandboxed(&script);
        assert_eq!(client.line().await, "");
        let _living = if end.contains("sleep") { Some(run) } else { None };
        place.serve();
        // Served after the first, and long enough to have it done.
        for _ in 0..5 {
            assert_eq!(place.client(PLAIN).line().await, "101", "whoever is not sandboxed");
        }
        assert!(!place.file().exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_sandbox_it_would_be_done() {
    let place = Place::serving("127.0.0.1:0").await;
    let _client = place.client("peer = connect()\nblind(peer, sys.argv[2])\ntime.sleep(1000)");
    until(|| place.file().exists()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_first_process_of_a_run_is_not_known_every_child_may_be_it() {
    let place = Place::serving("127.0.0.1:0").await;
    let run = place.sandboxes.networked.begin(false);
    let mut client = place.client(&format!("{PLAIN}\ntime.sleep(1000)"));
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    run.led_by(client.child.pid());
    assert_eq!(client.line().await, "403");
}
