//! Who is let in to what belongs to one run.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use exec_server::sandbox::peer_check::PeerCheck;
use exec_server::sandbox::{Sandboxes, WantedNetwork};
use exec_server::spawn::mark::{ServerMark, SessionMark};
use exec_server::spawn::reaper;
use futures_util::FutureExt;
use libtest_mimic::Trial;
use pretty_assertions::assert_eq;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

use crate::support::{Running, contexts, landlocked, sandboxes, start, test, unconfined};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("the_run_s_processes_are_let_in_and_no_others", own_and_others),
        test("sandboxed_runs_are_told_from_others", sandboxed),
        test("orphans_are_known_by_their_mark", orphans),
        test("a_mark_that_was_copied_is_worth_nothing_below_another_run", copied_marks),
        test("who_is_gone_is_not_let_in", gone),
        test("connections_wait_until_the_run_is_known", unknown_runs),
    ]
}

const FORK: &str = "if os.fork(): os.wait(); os._exit(0)\n";
const SESSION: &str = "if os.fork(): os.wait(); os._exit(0)\nos.setsid()\n";
/// The parent ends, and the child knows it.
const ORPHAN: &str = "parent = os.getpid()\nif os.fork(): os._exit(0)\nos.setsid()\n\
    while os.getppid() == parent: time.sleep(0.001)\n";

/// A listener, and a session whose runs connect to it.
struct Place {
    listener: TcpListener,
    session: SessionMark,
}

/// An accepted connection. The client ends when it does.
struct Connection {
    _stream: TcpStream,
    peer: SocketAddr,
    own: SocketAddr,
}

impl Place {
    fn new() -> Self {
        reaper::become_subreaper().unwrap();
        Self { listener: TcpListener::bind("127.0.0.1:0").unwrap(), session: ServerMark::new().session() }
    }

    /// Starts a run that connects after doing something, and says who is let in with it.
    async fn client(
        &self,
        sandbox: Option<(&Arc<Sandboxes>, &Value)>,
        before: &str,
        after: &str,
    ) -> (Running, PeerCheck) {
        let address = self.listener.local_addr().unwrap();
        let script = format!(
            "import os, resource, socket, sys, time\n{before}\npeer = socket.create_connection((\"127.0.0.1\", {}), 20)\n{after}\npeer.recv(1)",
            address.port()
        );
        let (introduction, check) = PeerCheck::new();
        let mark = self.session.run();
        let running = match sandbox {
            None => unconfined(&script, mark),
            Some((sandboxes, context)) => {
                start(sandboxes, context, WantedNetwork::ByPolicy, &script, mark).await
            }
        };
        introduction.led_by(&running.child, mark);
        (running, check)
    }

    fn accept(&self) -> Connection {
        let mut waiting = [PollFd::new(&self.listener, PollFlags::IN)];
        let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
        let ready = tokio::task::block_in_place(|| poll(&mut waiting, Some(&limit))).unwrap();
        assert_eq!(ready, 1, "nobody connects");
        let (stream, peer) = self.listener.accept().unwrap();
        let own = stream.local_addr().unwrap();
        Connection { _stream: stream, peer, own }
    }
}

impl Connection {
    async fn is_let_in(&self, check: &PeerCheck) -> bool {
        check.admits(self.peer, self.own).await
    }
}

async fn own_and_others() {
    let place = Place::new();
    let (_other, others) = place.client(None, "", "").await;
    let other = place.accept();
    assert!(other.is_let_in(&others).await);
    for before in ["", FORK, SESSION] {
        let (_running, check) = place.client(None, before, "").await;
        let connection = place.accept();
        assert!(connection.is_let_in(&check).await, "{before}");
        assert!(!connection.is_let_in(&others).await, "{before}");
        assert!(!other.is_let_in(&check).await, "{before}");
    }
    let _ours = TcpStream::connect(place.listener.local_addr().unwrap()).unwrap();
    assert!(!place.accept().is_let_in(&others).await, "this process is none of them");
}

/// On the machine's network, in a view of their own or under rules.
async fn sandboxed() {
    let place = Place::new();
    let (_other, others) = place.client(None, "", "").await;
    let _other = place.accept();
    let networked = &contexts()[0];
    let view = [FORK, &format!("if os.fork(): time.sleep(1000)\n{ORPHAN}"), ""]
        .map(|before| (sandboxes(), before.to_owned()));
    let rules = [FORK, ORPHAN, ""].map(|before| (landlocked(&[]), before.to_owned()));
    for (sandboxes, before) in view.into_iter().chain(rules) {
        let (_running, check) = place.client(Some((&sandboxes, networked)), &before, "").await;
        let connection = place.accept();
        assert!(connection.is_let_in(&check).await, "{before}");
        assert!(!connection.is_let_in(&others).await, "{before}");
    }
}

async fn orphans() {
    let place = Place::new();
    let (_other, others) = place.client(None, "", "").await;
    let _other = place.accept();
    let (_running, check) = place.client(None, ORPHAN, "").await;
    let connection = place.accept();
    assert!(connection.is_let_in(&check).await);
    assert!(!connection.is_let_in(&others).await);
    let lose = "resource.setrlimit(resource.RLIMIT_RSS, (-1, -1))\n";
    let (_running, check) = place.client(None, &format!("{lose}{ORPHAN}"), "").await;
    assert!(!place.accept().is_let_in(&check).await, "of which run, nobody knows");
}

async fn copied_marks() {
    let place = Place::new();
    let (other, others) = place.client(None, "", "").await;
    let _other = place.accept();
    let copy = format!(
        "limit = resource.prlimit({}, resource.RLIMIT_RSS); resource.setrlimit(resource.RLIMIT_RSS, limit)\n{FORK}",
        other.child.pid()
    );
    let (_running, check) = place.client(None, &copy, "").await;
    let connection = place.accept();
    assert!(connection.is_let_in(&check).await);
    assert!(!connection.is_let_in(&others).await);
}

async fn gone() {
    let place = Place::new();
    for after in ["os._exit(0)", "peer.close(); print(); time.sleep(1000)"] {
        let (mut running, check) = place.client(None, "", after).await;
        let connection = place.accept();
        assert_eq!(running.line().await, "", "it has closed, or ended");
        assert!(!connection.is_let_in(&check).await, "{after}");
    }
    let (_running, check) = place.client(None, "", "").await;
    let connection = place.accept();
    assert!(connection.is_let_in(&check).await);
    let another = SocketAddr::new(connection.peer.ip(), connection.peer.port() ^ 1);
    assert!(!check.admits(another, connection.own).await);
    assert!(!check.admits("203.0.113.1:80".parse().unwrap(), connection.own).await);
}

async fn unknown_runs() {
    let place = Place::new();
    let (running, _) = place.client(None, "", "").await;
    let connection = place.accept();
    let (introduction, check) = PeerCheck::new();
    let waits = connection.is_let_in(&check);
    tokio::pin!(waits);
    assert!(waits.as_mut().now_or_never().is_none());
    introduction.led_by(&running.child, place.session.run());
    assert!(waits.await);
    let (introduction, check) = PeerCheck::new();
    drop(introduction);
    assert!(!connection.is_let_in(&check).await, "there is no run");
}
