//! Copies files between this machine and a server.
//!
//! Both sides are the same trait, so there is one copy and not two. What is written is beside its place until it is
//! whole; then it takes the place at once. An interrupt leaves nothing beside.

mod file;
mod place;
mod progress;
mod tree;

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::file::Existing;
use self::place::{Place, Side};
use self::progress::Progress;
use super::args::CpArgs;
use super::client;
use crate::backend::ExecutorFileSystem;

/// Exit codes of a program that a signal ended, as a shell says them.
const INTERRUPTED: u8 = 130;
const TERMINATED: u8 = 143;
/// How long the removal of what is not whole may take.
const CLEAN_UP: Duration = Duration::from_secs(5);

/// Copies one file or tree.
pub(super) fn run(args: &CpArgs) -> anyhow::Result<ExitCode> {
    let sides = (Side::parse(&args.source)?, Side::parse(&args.destination)?);
    match &sides {
        (Side::Local(_), Side::Local(_)) => {
            bail!("neither side is on a server: write one of them as URL:/PATH")
        }
        (Side::Remote { .. }, Side::Remote { .. }) => {
            bail!("both sides are on servers: copy to this machine first, then on")
        }
        _ => {}
    }
    client::block_on(async move {
        let copier = Copier {
            source: sides.0.open(args.token_file.as_deref())?,
            destination: sides.1.open(args.token_file.as_deref())?,
            progress: Progress::new(),
            stop: CancellationToken::new(),
        };
        copier.interruptible(args.recursive).await
    })
}

/// What a copy works with.
struct Copier {
    source: Place,
    destination: Place,
    progress: Progress,
    /// Cancelled when the copy is to end early.
    stop: CancellationToken,
}

impl Copier {
    /// Copies until it is done or a signal comes; then what is not whole is removed.
    async fn interruptible(&self, recursive: bool) -> anyhow::Result<ExitCode> {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let copy = self.copy(recursive);
        tokio::pin!(copy);
        let code = tokio::select! {
            outcome = &mut copy => return outcome,
            _ = interrupt.recv() => INTERRUPTED,
            _ = terminate.recv() => TERMINATED,
        };
        self.stop.cancel();
        // A second interrupt does not wait for a server that does not answer.
        tokio::select! {
            _ = timeout(CLEAN_UP, copy) => {}
            _ = interrupt.recv() => {}
        }
        Ok(ExitCode::from(code))
    }

    async fn copy(&self, recursive: bool) -> anyhow::Result<ExitCode> {
        let from = self.source.path.clone();
        let found = self.source.files.get_metadata(&from, Default::default(), None).await;
        let found = found.with_context(|| self.source.shown(&from))?;
        let to = self.destination.settle(self.source.name(), found.is_directory).await?;
        let failures = match (found.is_directory, recursive) {
            (true, true) => self.tree(from, to, &found).await?,
            (true, false) => bail!("{}: it is a directory: add -r to copy it", self.source.shown(&from)),
            (false, _) => {
                self.progress.expect(found.size);
                self.file(&from, &to, found.mode, Existing::Follow).await?;
                0
            }
        };
        self.progress.finish();
        Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// An error when the copy is to end early.
    fn check(&self) -> io::Result<()> {
        if self.stop.is_cancelled() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
        }
        Ok(())
    }

    fn source(&self) -> &Arc<dyn ExecutorFileSystem> {
        &self.source.files
    }

    fn destination(&self) -> &Arc<dyn ExecutorFileSystem> {
        &self.destination.files
    }
}
