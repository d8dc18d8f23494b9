//! Connects to one of several addresses that may be dialled.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::net::TcpStream;

/// How long a connection may take to come about.
pub(super) const LIMIT: Duration = Duration::from_secs(10);
/// How long an address has before the next one is tried beside it.
const HEAD_START: Duration = Duration::from_millis(250);
/// Addresses that are tried.
const ATTEMPTS: usize = 16;

/// The first connection that comes about.
pub(super) async fn connect(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let connected = tokio::time::timeout(LIMIT, race(&alternating(addresses))).await;
    connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn race(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut waiting = addresses.iter();
    let mut attempts = FuturesUnordered::new();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        if let Some(address) = waiting.next() {
            attempts.push(attempt(*address));
        }
        // Until one comes about, one fails, or it is the turn of the next.
        tokio::select! {
            Some(outcome) = attempts.next() => match outcome {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            },
            () = tokio::time::sleep(HEAD_START), if waiting.len() > 0 => {}
            else => return Err(last),
        }
    }
}

async fn attempt(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    // The system may connect a port of this machine on which nobody listens with itself.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The families by turns, each in the order of the resolver, beginning with what comes first.
fn alternating(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let of = |is_v6: bool| addresses.iter().filter(move |address| address.is_ipv6() == is_v6).copied();
    let (mut one, mut other) = (of(first_is_v6), of(!first_is_v6));
    let mut ordered = Vec::new();
    loop {
        let pair = [one.next(), other.next()];
        if pair.iter().all(Option::is_none) {
            ordered.truncate(ATTEMPTS);
            return ordered;
        }
        ordered.extend(pair.into_iter().flatten());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn families_take_turns() {
        let addresses = ["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1"].map(|text| text.parse().unwrap());
        let expected = ["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"].map(|text| text.parse().unwrap());
        assert_eq!(alternating(&addresses), expected);
        assert_eq!(alternating(&vec![addresses[0]; 40]).len(), ATTEMPTS);
    }

    #[tokio::test]
    async fn one_that_listens_is_found_behind_those_that_do_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let good = listener.local_addr().unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let stream = connect(&[closed, closed, good]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good);
        assert_eq!(connect(&[closed]).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(connect(&[]).await.unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
    }

    #[tokio::test]
    async fn silence_does_not_hold_up_the_next() {
        use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
        // A queue for one, which is full, so that nobody answers.
        let full = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&full, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
        listen(&full, 0).unwrap();
        let full = TcpListener::from(full);
        let silent = full.local_addr().unwrap();
        let _first = std::net::TcpStream::connect(silent).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let good = listener.local_addr().unwrap();
        let stream = connect(&[silent, good]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good);
    }
}
