//! A proxy at the loopback of this machine: one pair of listeners for all runs of a start.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;

use super::StartError;
use crate::network::proxy::guest::{Guest, PeerCheck};
use crate::network::proxy::{Endpoints, Proxy};
use crate::process::StartFailure;
use crate::sandbox::peer_check::{self, Introduction};

/// See the module's description.
#[derive(Debug)]
pub(super) struct HostSide {
    pub(super) endpoints: Endpoints,
    /// If it serves its own runs only.
    runs: Option<Arc<Runs>>,
}

/// Those who may use the listeners.
#[derive(Debug, Default)]
struct Runs(Mutex<Vec<peer_check::PeerCheck>>);

impl HostSide {
    /// Listens and serves. Whoever connects before its run is known waits.
    ///
    /// # Errors
    /// A system without ports or descriptors.
    pub(super) fn open(proxy: &Proxy, only_own: bool) -> Result<Self, StartError> {
        let runs = only_own.then(|| Arc::new(Runs::default()));
        let check = runs.clone().map(|runs| runs as Arc<dyn PeerCheck>);
        let opened = proxy.bind().and_then(|doors| {
            let endpoints = doors.endpoints();
            proxy.serve(doors, &Guest { check, inside: None }).map(|()| endpoints)
        });
        let endpoints = opened.map_err(|error| {
            StartFailure::other(&format!("the proxy of the process cannot listen on 127.0.0.1: {error}"))
        })?;
        Ok(Self { endpoints, runs })
    }

    /// Lets another run in, as soon as it is introduced.
    pub(super) fn expect(&self) -> Option<Introduction> {
        let runs = self.runs.as_ref()?;
        let (introduction, check) = peer_check::PeerCheck::new();
        runs.0.lock().unwrap_or_else(PoisonError::into_inner).push(check);
        Some(introduction)
    }

    pub(super) fn ports(&self) -> Vec<u16> {
        [Some(self.endpoints.http), self.endpoints.socks].iter().flatten().map(SocketAddr::port).collect()
    }
}

impl PeerCheck for Runs {
    fn is_own(&self, peer: SocketAddr, own: SocketAddr) -> BoxFuture<'_, bool> {
        let runs = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(async move {
            // The last one is the command, if it has begun.
            for run in runs.iter().rev() {
                if run.admits(peer, own).await {
                    return true;
                }
            }
            false
        })
    }
}
