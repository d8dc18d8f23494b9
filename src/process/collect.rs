//! A child whose output this server reads itself: no log, no input, no errors, no terminal.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;

use super::ending::{end_scope, undo};
use super::handle::{ProcessSpec, StartFailure, execute, output_pipe};
use super::limits::Terms;
use crate::sandbox::{Held, Prepared};
use crate::spawn::watched::watched;
use crate::spawn::{Child, Stdio, Tree};

/// A child and its output. Dropped, its whole tree is killed.
#[derive(Debug)]
pub struct Collected {
    /// Here until the tree is killed or let go.
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    child: AsyncFd<Arc<Child>>,
    stdout: pipe::Receiver,
    terms: Terms,
    tree: Tree,
    /// What its sandbox stands on.
    held: Option<Held>,
}

impl Collected {
    /// Starts a program; its terminal and input are not made. Returns when it has been executed.
    ///
    /// Cancel-safe: if the future is dropped, the program is killed as soon as it runs.
    ///
    /// # Errors
    /// [`StartFailure`]; nothing was started then.
    pub async fn start(
        spec: ProcessSpec,
        terms: Terms,
        mut sandbox: Option<Prepared>,
    ) -> Result<Self, StartFailure> {
        let runtime = tokio::runtime::Handle::current();
        let launched = tokio::task::spawn_blocking(move || {
            let _guard = runtime.enter();
            let held = sandbox.as_mut().and_then(Prepared::take_held);
            launch(&spec, terms, sandbox, held)
        });
        launched.await.map_err(|_| StartFailure::other("the start was interrupted"))?
    }

    /// Reads output; 0 when no more is to come: at its end, or when the program has ended and the pipe is empty, whoever
    /// else holds it. Cancel-safe.
    ///
    /// # Errors
    /// Those of the pipe.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(Running { child, stdout, .. }) = &self.running else { return Ok(0) };
        loop {
            let ended = tokio::select! {
                biased;
                ready = stdout.readable() => ready.map(|()| false)?,
                // It is not reaped, so its group stays its own.
                ended = child.readable() => ended.map(|_| true)?,
            };
            if ended {
                // Asked directly: what the runtime knows of the pipe may be older than the end.
                return match rustix::io::read(stdout, buffer) {
                    Err(Errno::AGAIN) => Ok(0),
                    read => Ok(read?),
                };
            }
            match stdout.try_read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }

    /// Leaves the tree to itself: what it still writes is read and dropped, the program is reaped when it ends. The
    /// receiver hears of that end. `held` is dropped with it.
    pub fn let_go(mut self, held: impl Send + 'static) -> oneshot::Receiver<()> {
        let (ended, hears) = oneshot::channel();
        if let Some(Running { child, mut stdout, terms, tree, held: stood_on }) = self.running.take() {
            tokio::spawn(async move { tokio::io::copy(&mut stdout, &mut tokio::io::sink()).await });
            tokio::spawn(async move {
                reap(&child).await;
                terms.retire_later(&tree).await;
                drop((held, stood_on));
                let _ = ended.send(());
            });
        }
        hears
    }
}

impl Drop for Collected {
    fn drop(&mut self) {
        let (Some(running), Ok(runtime)) = (self.running.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        runtime.spawn(kill(running));
    }
}

async fn kill(running: Running) {
    let Running { child, terms, tree, .. } = &running;
    let _ = child.get_ref().signal_group(rustix::process::Signal::KILL);
    end_scope(tree.scope(child.get_ref().pid()), Duration::ZERO).await;
    reap(child).await;
    terms.retire_later(tree).await;
}

async fn reap(child: &AsyncFd<Arc<Child>>) {
    while child.get_ref().try_reap().is_none() {
        match child.readable().await {
            Ok(mut ready) => ready.clear_ready(),
            Err(_) => return,
        }
    }
}

fn launch(
    spec: &ProcessSpec,
    terms: Terms,
    sandbox: Option<Prepared>,
    held: Option<Held>,
) -> Result<Collected, StartFailure> {
    let no_streams = |error: io::Error| StartFailure::other(&format!("no streams: {error}"));
    let null = || std::fs::File::options().read(true).write(true).open("/dev/null").map(Into::into);
    let (ours, theirs) = output_pipe().map_err(no_streams)?;
    let stdio = Stdio::Separate {
        stdin: null().map_err(no_streams)?,
        stdout: theirs,
        stderr: null().map_err(no_streams)?,
    };
    let stdout = pipe::Receiver::from_owned_fd(ours).map_err(no_streams)?;
    let (child, tree) = execute(spec, stdio, &terms, sandbox)?;
    let child = Arc::new(child);
    match watched(Arc::clone(&child), Interest::READABLE) {
        Ok(child) => Ok(Collected { running: Some(Running { child, stdout, terms, tree, held }) }),
        Err(error) => {
            undo(&child, &terms, &tree);
            Err(no_streams(error))
        }
    }
}
