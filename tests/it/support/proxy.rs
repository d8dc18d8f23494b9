//! A TCP proxy that breaks connections on demand.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

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
    /// What is moved comes so much later.
    delay: Duration,
    breaks: Option<Breaks>,
}

/// Where a connection breaks: after a random number of bytes from the server.
#[derive(Clone)]
struct Breaks {
    dice: Arc<Mutex<Dice>>,
    bytes: Range<u64>,
}

/// Numbers that look random and follow from a seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        // Seeds that differ little shall not lead to numbers that do.
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).max(1))
    }

    pub(crate) fn roll(&mut self, range: Range<u64>) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        range.start + self.0 % (range.end - range.start)
    }

    /// A place in a list of this length.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.roll(0..length as u64)).unwrap()
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
            delay: Duration::ZERO,
            breaks: None,
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

    /// Moves everything so much later, until it is told otherwise.
    pub(crate) fn delay(&self, delay: Duration) {
        self.control.send_modify(|control| control.delay = delay);
    }

    /// New connections go to another server.
    pub(crate) fn retarget(&self, target: &str) {
        self.control.send_modify(|control| control.target = address(target));
    }

    /// From now on every new connection breaks after so many bytes from the server, in a sequence given by the seed.
    pub(crate) fn cut_randomly(&self, seed: u64, bytes: Range<u64>) {
        let breaks = Breaks { dice: Arc::new(Mutex::new(Dice::new(seed))), bytes };
        self.control.send_modify(|control| control.breaks = Some(breaks));
    }

    /// Ends [`Self::cut_randomly`] for new connections.
    pub(crate) fn stop_cutting(&self) {
        self.control.send_modify(|control| control.breaks = None);
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
    let budget = now.breaks.map_or(u64::MAX, |breaks| breaks.dice.lock().unwrap().roll(breaks.bytes));
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
        let delay = control.borrow().delay;
        tokio::time::sleep(delay).await;
        let allowed = count.min(usize::try_from(budget).unwrap_or(usize::MAX));
        budget -= allowed as u64;
        if to.write_all(&buffer[..allowed]).await.is_err() {
            return;
        }
    }
}
