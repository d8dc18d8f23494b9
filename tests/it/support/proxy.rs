//! A TCP proxy that breaks connections on demand.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Stands between a client and a server. Its connections end with it.
pub(crate) struct CutProxy {
    url: String,
    control: watch::Sender<Control>,
}

#[derive(Clone)]
struct Control {
    target: String,
    /// New connections are refused.
    paused: bool,
    /// Nothing is moved, nothing is closed.
    frozen: bool,
    /// Connections of an earlier epoch are cut.
    epoch: u64,
    dice: Option<Arc<Mutex<Dice>>>,
}

/// Where a connection breaks: after a random number of bytes from the server.
struct Dice {
    state: u64,
    bytes: Range<u64>,
}

impl Dice {
    fn roll(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.bytes.start + self.state % (self.bytes.end - self.bytes.start)
    }
}

impl CutProxy {
    /// A proxy to a server, given as `ws://HOST:PORT`.
    pub(crate) async fn start(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        let (control, watched) = watch::channel(Control {
            target: address(target),
            paused: false,
            frozen: false,
            epoch: 0,
            dice: None,
        });
        tokio::spawn(accept(listener, watched));
        Self { url, control }
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// Breaks every connection; new ones may be made unless the proxy is paused.
    pub(crate) fn cut(&self) {
        self.control.send_modify(|control| control.epoch += 1);
    }

    /// Refuses new connections; those that are there go on.
    pub(crate) fn pause(&self) {
        self.control.send_modify(|control| control.paused = true);
    }

    /// Ends [`Self::pause`] and [`Self::freeze`].
    pub(crate) fn resume(&self) {
        self.control.send_modify(|control| {
            control.paused = false;
            control.frozen = false;
        });
    }

    /// Moves nothing any more and closes nothing: the peer falls silent.
    pub(crate) fn freeze(&self) {
        self.control.send_modify(|control| control.frozen = true);
    }

    /// New connections go to another server.
    pub(crate) fn retarget(&self, target: &str) {
        self.control.send_modify(|control| control.target = address(target));
    }

    /// From now on every new connection breaks after so many bytes from the server, in a sequence given by the seed.
    pub(crate) fn cut_randomly(&self, seed: u64, bytes: Range<u64>) {
        let dice = Arc::new(Mutex::new(Dice { state: seed.max(1), bytes }));
        self.control.send_modify(|control| control.dice = Some(dice));
    }

    /// Ends [`Self::cut_randomly`] for new connections.
    pub(crate) fn stop_cutting(&self) {
        self.control.send_modify(|control| control.dice = None);
    }
}

fn address(url: &str) -> String {
    url.trim_start_matches("ws://").trim_end_matches('/').to_owned()
}

async fn accept(listener: TcpListener, mut control: watch::Receiver<Control>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // The proxy was dropped.
            Err(_) = control.wait_for(|_| false) => return,
        };
        let Ok((client, _)) = accepted else { return };
        let now = control.borrow().clone();
        if !now.paused {
            tokio::spawn(serve(client, control.clone(), now));
        }
    }
}

async fn serve(client: TcpStream, mut control: watch::Receiver<Control>, now: Control) {
    let Ok(server) = TcpStream::connect(&now.target).await else { return };
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let budget = now.dice.map_or(u64::MAX, |dice| dice.lock().unwrap().roll());
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = copy(from_client, to_server, u64::MAX, control.clone()) => {}
        () = copy(from_server, to_client, budget, control.clone()) => {}
        // An error means that the proxy was dropped.
        _ = control.wait_for(|control| control.epoch != now.epoch) => {}
    }
}

async fn copy(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut budget: u64,
    mut control: watch::Receiver<Control>,
) {
    let mut buffer = vec![0; 16 << 10];
    while budget > 0 {
        let Ok(count @ 1..) = from.read(&mut buffer).await else { return };
        if control.wait_for(|control| !control.frozen).await.is_err() {
            return;
        }
        let allowed = count.min(usize::try_from(budget).unwrap_or(usize::MAX));
        budget -= allowed as u64;
        if to.write_all(&buffer[..allowed]).await.is_err() {
            return;
        }
    }
}
