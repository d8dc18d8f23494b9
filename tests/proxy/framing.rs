//! Bodies: what has two readings is refused, what is cut is not passed on as whole, and one request stays one.

use test_case::test_case;
use tokio::io::AsyncWriteExt;

use crate::support::{Connection, Run, Target, exchange};

const LOCAL: &[&str] = &["127.0.0.1"];

#[test_case("Content-Length: 5\r\nTransfer-Encoding: chunked"; "length first")]
#[test_case("Transfer-Encoding: chunked\r\nContent-Length: 5"; "chunks first")]
#[test_case("transfer-encoding:chunked\r\ncontent-length:0"; "length 0")]
#[test_case("Content-Length: 5\r\nContent-Length: 6"; "two lengths")]
#[test_case("Content-Length: 5, 6"; "list of lengths")]
#[test_case("Content-Length: +5"; "sign")]
#[test_case("Content-Length: 0x5"; "hex")]
#[test_case("Content-Length: -1"; "negative")]
#[test_case("Content-Length: 99999999999999999999"; "too large")]
#[test_case("Transfer-Encoding: xchunked"; "unknown coding")]
#[test_case("Transfer-Encoding: chunked, identity"; "chunks not last")]
#[test_case("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"; "twice")]
#[test_case("Transfer-Encoding : chunked"; "space before the colon")]
#[test_case("X: 1\r\n Transfer-Encoding: chunked"; "folded line")]
#[tokio::test]
async fn bodies_with_two_readings(headers: &str) {
    let (target, run) = (Target::ok().await, Run::allowing(LOCAL));
    let host = format!("127.0.0.1:{}", target.port);
    let smuggled = format!("GET http://{host}/smuggled HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let request =
        format!("POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n\r\n0\r\n\r\n{smuggled}");
    let mut connection = Connection::to(run.http()).await;
    connection.send(request.as_bytes()).await;
    assert_eq!(connection.reply().await.status, 400);
    assert_eq!(connection.rest().await, b"", "the connection ends");
    assert_eq!(target.seen(), [""; 0]);
}

#[tokio::test]
async fn two_readings_are_found_behind_other_requests() {
    let (target, run) = (Target::ok().await, Run::allowing(LOCAL));
    let host = format!("127.0.0.1:{}", target.port);
    let post = |framing: &str, body: &str| {
        format!("POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\n{framing}\r\n\r\n{body}")
    };
    let mut connection = Connection::to(run.http()).await;
    connection.send(post("Content-Length: 4", "\r\n\r\n").as_bytes()).await;
    assert_eq!(connection.reply().await.status, 200);
    connection
        .send(post("Transfer-Encoding: chunked", "3;x=y\r\nabc\r\n00\r\nTrailer: 1\r\n\r\n").as_bytes())
        .await;
    assert_eq!(connection.reply().await.status, 200);
    for byte in post("Transfer-Encoding: chunked\r\nContent-Length: 5", "0\r\n\r\n").as_bytes() {
        connection.send(&[*byte]).await;
    }
    assert_eq!(connection.reply().await.status, 400);
    assert!(!target.seen().concat().contains("Content-Length: 5"));
}

#[tokio::test]
async fn chunks_stay_chunks_and_trailers_stay() {
    let (target, run) = (Target::ok().await, Run::allowing(LOCAL));
    let host = format!("127.0.0.1:{}", target.port);
    for method in ["POST", "GET"] {
        let request = format!(
            "{method} http://{host}/ HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n\
             3\r\nabc\r\n2\r\nde\r\n0\r\nx-sum: 5\r\n\r\n"
        );
        assert_eq!(exchange(run.http(), request.as_bytes()).await.status, 200);
        target.has_seen("0\r\nx-sum: 5\r\n\r\n").await;
        let seen = target.seen().pop().unwrap().to_lowercase();
        assert!(seen.contains("transfer-encoding: chunked") && seen.contains("abc"), "{seen}");
    }
}

#[tokio::test]
async fn an_answer_in_chunks_keeps_its_trailers() {
    let target = Target::saying(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n3\r\nabc\r\n0\r\nx-sum: 5\r\n\r\n",
    );
    let (target, run) = (target.await, Run::allowing(LOCAL));
    let host = format!("127.0.0.1:{}", target.port);
    let request =
        format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nTE: trailers\r\nConnection: TE\r\n\r\n");
    let reply = exchange(run.http(), request.as_bytes()).await;
    assert_eq!(String::from_utf8_lossy(&reply.body), "3\r\nabc\r\n0\r\nx-sum: 5\r\n\r\n");
}

#[test_case("Content-Length: 10\r\n\r\nabc"; "length")]
#[test_case("Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"; "chunks")]
#[test_case("Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n"; "bad chunk")]
#[tokio::test]
async fn a_cut_body_does_not_arrive_as_a_whole(rest: &str) {
    let (target, run) = (Target::saying(b"").await, Run::allowing(LOCAL));
    let host = format!("127.0.0.1:{}", target.port);
    let mut connection = Connection::to(run.http()).await;
    connection.send(format!("POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\n{rest}").as_bytes()).await;
    connection.stream.shutdown().await.unwrap();
    connection.rest().await;
    let seen = target.seen().concat();
    assert!(!seen.ends_with("0\r\n\r\n") && !seen.ends_with("abcabcabca"), "{seen}");
}

#[test_case(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\nabc"; "length")]
#[test_case(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n"; "bad chunk")]
#[tokio::test]
async fn a_cut_answer_does_not_arrive_as_a_whole(answer: &'static [u8]) {
    let (target, run) = (Target::saying_and_closing(answer).await, Run::allowing(LOCAL));
    let reply = run.get("127.0.0.1", target.port).await;
    let whole = reply.body.ends_with(b"0\r\n\r\n") || reply.body.len() == 10;
    assert!(!whole, "{reply:?}");
}

#[tokio::test]
async fn an_answer_without_a_length_ends_with_its_connection() {
    let target = Target::saying_and_closing(b"HTTP/1.1 200 OK\r\n\r\nall of it").await;
    let run = Run::allowing(LOCAL);
    let reply = run.get("127.0.0.1", target.port).await;
    assert_eq!(String::from_utf8_lossy(&reply.body), "9\r\nall of it\r\n0\r\n\r\n");
}

#[tokio::test]
async fn large_bodies_pass_in_both_directions() {
    let port = crate::support::echo().await;
    let run = Run::allowing(LOCAL);
    let (reply, mut connection) = run.tunnel("127.0.0.1", port).await;
    assert_eq!(reply.status, 200);
    let data: Vec<u8> = (0..4_000_000_u32).map(|number| number.to_le_bytes()[1]).collect();
    let (mut reads, mut writes) = connection.stream.split();
    let mut back = vec![0; data.len()];
    let (sent, read) =
        tokio::join!(writes.write_all(&data), tokio::io::AsyncReadExt::read_exact(&mut reads, &mut back));
    sent.unwrap();
    read.unwrap();
    assert!(back == data, "something else comes back");
}
