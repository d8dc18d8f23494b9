//! One run of the start-up files, and what it makes.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::timeout;

use super::error::CaptureError;
use super::records::{Fields, MAX_OUTPUT, Mark, Progress, Scanner};
use super::restore::Snapshot;
use super::shell::Shell;
use super::variables::{Changes, check};
use crate::process::env::{NameFilter, Variables};
use crate::process::{Collected, ProcessSpec, Terms};
use crate::protocol::process::ExecEnvPolicy;
use crate::sandbox::Prepared;

/// How long the shell of a good capture is given to end before the start goes on without waiting.
const GOODBYE: Duration = Duration::from_millis(200);
/// One read takes at most this much.
const READ_BYTES: usize = 64 << 10;
/// How bash passes functions on.
const FUNCTION_VARIABLE: (&str, &str) = ("BASH_FUNC_", "%%");

/// A capture that has not begun.
#[derive(Debug)]
pub struct Capture {
    shell: Shell,
    policy: Option<ExecEnvPolicy>,
    mark: Mark,
    /// Functions that the request brings.
    withheld: Vec<String>,
    limit: Duration,
    prints_first: bool,
}

impl Capture {
    /// A capture for a start with this policy and these variables, which may take so long.
    #[must_use]
    pub fn new(
        shell: Shell,
        policy: Option<ExecEnvPolicy>,
        env: &HashMap<String, String>,
        limit: Duration,
    ) -> Self {
        let (before, after) = FUNCTION_VARIABLE;
        let function = |name: &String| Some(name.strip_prefix(before)?.strip_suffix(after)?.to_owned());
        let withheld = env.keys().filter_map(function).collect();
        Self { shell, policy, mark: Mark::new(), withheld, limit, prints_first: false }
    }

    /// Makes the start of `[shell, "-lc", command, …]`, complete with its environment, the run of this capture.
    pub fn put_in_place(&mut self, spec: &mut ProcessSpec) {
        let withheld: Vec<&[u8]> = self.withheld.iter().map(String::as_bytes).collect();
        let shown_as = spec.arg0.as_ref().unwrap_or(&spec.argv[0]);
        let command = self.shell.capture(&self.mark, &withheld, shown_as, &spec.env);
        self.prints_first = command.prints_first;
        spec.argv.splice(1..3, command.words);
        spec.terminal = None;
        spec.pipe_stdin = false;
    }

    /// Runs it. Whatever the start-up files have left running goes on after a good capture; after any other it is
    /// killed, as when the future is dropped. `held` is held for as long as the shell lives.
    ///
    /// # Errors
    /// [`CaptureError`].
    pub async fn run(
        self,
        spec: ProcessSpec,
        terms: Terms,
        sandbox: Option<Prepared>,
        held: impl Send + 'static,
    ) -> Result<Snapshot, CaptureError> {
        let passed = spec.env.clone();
        let taken = timeout(self.limit, self.take(spec, terms, sandbox)).await;
        let (shell, fields) = taken.map_err(|_| CaptureError::Timeout(self.limit))??;
        // Megabytes may have to be taken apart.
        let made = tokio::task::spawn_blocking(move || self.snapshot(fields, &passed)).await;
        let snapshot = made.map_err(|_| CaptureError::BadRecord("it could not be taken apart"))??;
        let _ = timeout(GOODBYE, shell.let_go(held)).await;
        Ok(snapshot)
    }

    /// Until the state is there, whoever else still holds the pipe.
    async fn take(
        &self,
        spec: ProcessSpec,
        terms: Terms,
        sandbox: Option<Prepared>,
    ) -> Result<(Collected, Fields), CaptureError> {
        let mut shell = Collected::start(spec, terms, sandbox).await?;
        let mut scanner = Scanner::new(&self.mark);
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let count = shell.read(&mut buffer).await.map_err(|_| CaptureError::Exit)?;
            if count == 0 {
                let refused = self.prints_first && scanner.is_untouched();
                return Err(if refused {
                    CaptureError::WrongShell(self.shell.name())
                } else {
                    CaptureError::Exit
                });
            }
            match scanner.push(&buffer[..count]) {
                Progress::More => {}
                Progress::Complete(fields) => return Ok((shell, fields)),
                Progress::TooLarge => {
                    let what = "what the start-up files and the capture print";
                    return Err(CaptureError::TooLarge { what, limit: MAX_OUTPUT });
                }
            }
        }
    }

    fn snapshot(&self, fields: Fields, passed: &Variables) -> Result<Snapshot, CaptureError> {
        let policy = self.policy.as_ref();
        let mut state = self.shell.read(fields, &self.mark, &NameFilter::new(policy))?;
        check(&state.exported)?;
        let exported: Variables = std::mem::take(&mut state.exported).into_iter().collect();
        Snapshot::new(Changes::between(passed, &exported, policy), state)
    }
}
