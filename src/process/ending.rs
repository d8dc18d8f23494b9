//! Ending trees: asked politely, then killed.

use std::collections::HashSet;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::handle::Process;
use super::limits::Terms;
use crate::protocol::limits::ProcessLimit;
use crate::spawn::tree::{Census, Scope, kill_all};
use crate::spawn::{Child, Tree};

/// Most trees have ended by then, and are spared the look at all processes.
const AT_ONCE: Duration = Duration::from_millis(20);
/// How often the rest of a tree is looked for during its grace.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How long killing goes on; only a tree that forks as fast as it is killed needs more than a moment.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// Whether a process has been asked to end.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// While its end is being seen to: when the grace is over.
    deadline: Option<watch::Sender<Instant>>,
    cause: Option<Cause>,
}

/// Why this server ends a process whose leader was still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// It was asked to.
    Requested,
    /// The tree has used up what it may use.
    Limit(ProcessLimit),
}

impl Process {
    fn ending(&self) -> MutexGuard<'_, Ending> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the leader was ended, if it was. The first reason counts.
    pub(super) fn cause_of_end(&self) -> Option<Cause> {
        self.ending().cause
    }

    /// Kills the whole tree, since it has used up a limit.
    pub(super) fn breach(self: &Arc<Self>, limit: ProcessLimit) {
        self.end(Duration::ZERO, Cause::Limit(limit));
    }

    /// Ends the whole tree: SIGTERM now, SIGKILL after the grace to whatever is left. Returns at once; true if
    /// something was left to end.
    ///
    /// After the exit only what holds the process's streams is ended, after the close nothing.
    pub fn terminate(self: &Arc<Self>, grace: Duration) -> bool {
        self.end(grace, Cause::Requested)
    }

    fn end(self: &Arc<Self>, grace: Duration, cause: Cause) -> bool {
        let status = self.log().status();
        if status.closed {
            return false;
        }
        // A grace beyond what the clock can hold is no limit at all.
        let deadline = Instant::now()
            .checked_add(grace)
            .unwrap_or_else(|| Instant::now() + Duration::from_secs(1 << 30));
        let mut ending = self.ending();
        if status.exit.is_none() {
            ending.cause.get_or_insert(cause);
            let signals = if grace.is_zero() { &[Signal::KILL][..] } else { self.polite_signals() };
            self.signal_leader_group(signals);
        }
        match &ending.deadline {
            Some(running) => {
                running.send_if_modified(|current| {
                    let sooner = deadline < *current;
                    *current = deadline.min(*current);
                    sooner
                });
            }
            None => {
                let (sender, receiver) = watch::channel(deadline);
                ending.deadline = Some(sender);
                let whole = status.exit.is_none() || cause != Cause::Requested;
                tokio::spawn(Arc::clone(self).see_to_the_end(receiver, whole));
            }
        }
        true
    }

    /// Kills what the leader has left behind, and closes.
    pub(super) fn end_the_rest(self: &Arc<Self>) {
        let process = Arc::clone(self);
        tokio::spawn(async move {
            end_now(process.scope(true)).await;
            process.abandon.notify_one();
        });
    }

    fn polite_signals(&self) -> &'static [Signal] {
        // A stopped program must go on to notice; a terminal's hang-up comes with it.
        if self.tty() { &[Signal::TERM, Signal::HUP, Signal::CONT] } else { &[Signal::TERM, Signal::CONT] }
    }

    /// The whole tree, or of it what holds the process's streams.
    fn scope(&self, whole: bool) -> Scope {
        let holding = (!whole).then(|| self.streams.iter().cloned().collect::<HashSet<_>>());
        Scope { holding, ..self.tree.scope(self.pid()) }
    }

    async fn see_to_the_end(self: Arc<Self>, mut deadline: watch::Receiver<Instant>, whole: bool) {
        self.wait_for_exit(Instant::now() + AT_ONCE, &mut deadline).await;
        let scope = self.scope(whole);
        let grace_left = *deadline.borrow_and_update() > Instant::now();
        if grace_left {
            let group = whole.then_some(self.pid());
            for member in Census::after_now().await.members(&scope) {
                // The leader's group has got it already.
                if Some(member.group()) != group {
                    self.polite_signals().iter().for_each(|signal| member.signal(*signal));
                }
            }
            self.wait_for_grace(&scope, &mut deadline).await;
        }
        end_now(scope).await;
        self.ending().deadline = None;
        self.abandon.notify_one();
    }

    /// Until the leader has ended, at most to `until` or the end of the grace.
    async fn wait_for_exit(&self, until: Instant, deadline: &mut watch::Receiver<Instant>) {
        let mut news = self.log().subscribe();
        while self.log().status().exit.is_none() {
            let until = until.min(*deadline.borrow_and_update());
            tokio::select! {
                _ = news.changed() => {}
                _ = deadline.changed() => {}
                () = sleep_until(until) => return,
            }
        }
    }

    /// Until the tree is gone or its grace is over.
    async fn wait_for_grace(&self, scope: &Scope, deadline: &mut watch::Receiver<Instant>) {
        loop {
            let until = *deadline.borrow_and_update();
            if until <= Instant::now() {
                return;
            }
            if self.log().status().exit.is_some() {
                if !lives(scope).await {
                    return;
                }
                let _ = timeout_at(until.min(Instant::now() + LOOK_AGAIN), deadline.changed()).await;
            } else {
                self.wait_for_exit(until, deadline).await;
            }
        }
    }
}

/// Whether anything of a scope is left. Its cgroup says so without a look at all processes, and of what was forked during
/// one as well; that it is empty says nothing of who has left it on purpose.
async fn lives(scope: &Scope) -> bool {
    scope.is_populated() || !Census::after_now().await.members(scope).is_empty()
}

async fn end_now(scope: Scope) {
    if lives(&scope).await {
        let _ = tokio::task::spawn_blocking(move || kill_all(&scope, KILL_LIMIT)).await;
    }
}

/// Ends a program that runs already but whose start cannot be completed, with all that came of it. For blocking threads.
pub(super) fn undo(child: &Child, terms: &Terms, tree: &Tree) {
    kill_all(&tree.scope(child.pid()), KILL_LIMIT);
    child.kill_and_reap();
    terms.retire(tree);
}

/// Ends everything in a scope: SIGTERM, and after the grace SIGKILL to whatever is left.
pub async fn end_scope(scope: Scope, grace: Duration) {
    let deadline = Instant::now() + grace;
    if !grace.is_zero() {
        for member in Census::after_now().await.members(&scope) {
            member.signal(Signal::TERM);
            member.signal(Signal::CONT);
        }
        while Instant::now() < deadline && lives(&scope).await {
            sleep(LOOK_AGAIN.min(deadline - Instant::now())).await;
        }
    }
    end_now(scope).await;
}

#[cfg(test)]
mod tests;
