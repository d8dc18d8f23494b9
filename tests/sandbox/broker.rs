//! Connections that the server opens inside the network of a run.

use std::io::ErrorKind;
use std::time::Duration;

use exec_server::sandbox::entrance::Inside;
use exec_server::spawn::ExitStatus;
use futures_util::FutureExt;
use libtest_mimic::Trial;
use pretty_assertions::assert_eq;
use tokio::io::AsyncReadExt;

use crate::support::{PRELUDE, private, read_only, run, sandboxes, test};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("servers_inside_are_reached", servers_inside),
        test("what_does_not_listen_refuses", refusals),
        test("calls_that_are_dropped_confuse_no_other", dropped_calls),
        test("a_server_that_accepts_nobody_holds_up_no_other", a_full_backlog),
        test("after_the_end_there_is_nobody_to_ask", after_the_end),
        test("without_the_entrance_the_program_goes_on", without_the_entrance),
    ]
}

/// Serves its greeting at an address for ever, and says so.
const SERVE: &str = "
def serve(host, greeting):
    s = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((host, 8123)); s.listen(512)
    def loop():
        while True:
            peer = s.accept()[0]; peer.sendall(greeting); peer.close()
    threading.Thread(target=loop, daemon=True).start()
";

fn serving(more: &str) -> String {
    format!(
        "{PRELUDE}{SERVE}\nserve('127.0.0.1', b'four')\n\
        if os.path.exists('/proc/net/if_inet6'): serve('::1', b'six')\n{more}\nprint('up'); time.sleep(1000)"
    )
}

async fn greeting(inside: &Inside, to: &str) -> Result<String, ErrorKind> {
    let mut stream = inside.connect(to.parse().unwrap()).await.map_err(|error| error.kind())?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    Ok(text)
}

async fn servers_inside() {
    let mut running = run(&sandboxes(), &read_only(), private(&[4301]), &serving("")).await;
    let inside = running.entrance().await.inside;
    assert_eq!(running.line().await, "up");
    for (to, expected) in
        [("127.0.0.1:8123", "four"), ("[::1]:8123", "six"), ("[::ffff:127.0.0.1]:8123", "four")]
    {
        assert_eq!(greeting(&inside, to).await.as_deref(), Ok(expected), "{to}");
    }
}

/// What listens on the host does not count, nor does the server itself.
async fn refusals() {
    let host = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    host.set_nonblocking(true).unwrap();
    let mut running = run(&sandboxes(), &read_only(), private(&[4301]), &serving("")).await;
    let entrance = running.entrance().await;
    assert_eq!(running.line().await, "up");
    let inside = &entrance.inside;
    let on_host = host.local_addr().unwrap().to_string();
    for to in [on_host.as_str(), "127.0.0.1:9", "127.0.0.2:8123", "[::1]:9", "127.0.0.1:4301", "[::1]:4301"] {
        assert_eq!(greeting(inside, to).await, Err(ErrorKind::ConnectionRefused), "{to}");
    }
    for to in ["203.0.113.1:80", "0.0.0.0:8123", "[::]:8123", "[2001:db8::1]:80", "[::ffff:10.0.0.1]:80"] {
        assert_eq!(greeting(inside, to).await, Err(ErrorKind::InvalidInput), "{to}");
    }
    assert!(host.accept().is_err() && entrance.listeners[0].accept().is_err(), "nobody came");
    // Ports that are given to sockets without one: none of them is connected to itself.
    for port in 32768..34000 {
        let to = format!("127.0.0.1:{port}");
        assert_eq!(greeting(inside, &to).await, Err(ErrorKind::ConnectionRefused), "{to}");
    }
}

/// Each call gets a socket of the family that it asked for, whatever was dropped before it.
async fn dropped_calls() {
    let mut running = run(&sandboxes(), &read_only(), private(&[4301]), &serving("")).await;
    let inside = std::sync::Arc::new(running.entrance().await.inside);
    assert_eq!(running.line().await, "up");
    let targets = [("127.0.0.1:8123", "four"), ("[::1]:8123", "six")];
    for round in 0..200 {
        // Polled once: the request may have been sent, and the answer not taken.
        let dropped = inside.connect(targets[round % 2].0.parse().unwrap()).now_or_never();
        assert!(dropped.is_none_or(|done| done.is_ok()));
        let (to, expected) = targets[(round / 2) % 2];
        assert_eq!(greeting(&inside, to).await.as_deref(), Ok(expected));
    }
    let calls = (0..100).map(|number| {
        let inside = std::sync::Arc::clone(&inside);
        tokio::spawn(async move {
            let (to, expected) = targets[number % 2];
            let time = Duration::from_micros(number as u64 * 50);
            if number % 3 == 0 {
                drop(tokio::time::timeout(time, inside.connect(to.parse().unwrap())).await);
            } else {
                assert_eq!(greeting(&inside, to).await.as_deref(), Ok(expected));
            }
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
}

async fn a_full_backlog() {
    let full = "full = socket.socket(); full.bind(('127.0.0.1', 8124)); full.listen(0)";
    let mut running = run(&sandboxes(), &read_only(), private(&[4301]), &serving(full)).await;
    let inside = std::sync::Arc::new(running.entrance().await.inside);
    assert_eq!(running.line().await, "up");
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let inside = std::sync::Arc::clone(&inside);
            tokio::spawn(async move { inside.connect("127.0.0.1:8124".parse().unwrap()).await })
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(greeting(&inside, "127.0.0.1:8123").await.as_deref(), Ok("four"));
    }
    assert!(waiting.iter().any(|call| !call.is_finished()), "some wait");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

async fn after_the_end() {
    let mut running = run(&sandboxes(), &read_only(), private(&[4301]), "").await;
    let entrance = running.entrance().await;
    running.rest().await;
    assert_eq!(running.ended().await, ExitStatus::Code(0));
    let refused = greeting(&entrance.inside, "127.0.0.1:8123").await;
    assert!(matches!(refused, Err(ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe)), "{refused:?}");
}

/// The program's exit status is its own, also where init was asked much and is asked no more.
async fn without_the_entrance() {
    let end = "peer = socket.create_connection(('127.0.0.1', 4301), 20)\ntry: peer.recv(9)\nexcept OSError: pass\nos._exit(7)";
    let script = serving("").replace("time.sleep(1000)", end);
    let mut running = run(&sandboxes(), &read_only(), private(&[4301]), &script).await;
    let entrance = running.entrance().await;
    assert_eq!(running.line().await, "up");
    for _ in 0..50 {
        assert_eq!(greeting(&entrance.inside, "127.0.0.1:8123").await.as_deref(), Ok("four"));
    }
    // The program notices, and ends.
    drop(entrance);
    assert_eq!(running.rest().await, "");
    assert_eq!(running.ended().await, ExitStatus::Code(7));
}
