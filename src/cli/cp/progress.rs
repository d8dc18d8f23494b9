//! How far a copy is, on a terminal.

use std::fmt;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const TEMPLATE: &str = "{wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";

/// A line on stderr, if that is a terminal.
pub(super) struct Progress(ProgressBar);

impl Progress {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        // The text is a constant; without a style the bar has its own.
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// So many bytes more are to be copied.
    pub(super) fn expect(&self, bytes: u64) {
        self.0.inc_length(bytes);
    }

    /// Counts the bytes of one attempt at a file.
    pub(super) fn part(&self) -> Part<'_> {
        Part { bar: &self.0, bytes: 0 }
    }

    /// Something went wrong that does not end the copy.
    pub(super) fn complain(&self, what: impl fmt::Display) {
        self.0.suspend(|| eprintln!("exec-server: {what}"));
    }

    /// Takes the line away.
    pub(super) fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// Bytes that count, unless the attempt fails.
pub(super) struct Part<'a> {
    bar: &'a ProgressBar,
    bytes: u64,
}

impl Part<'_> {
    pub(super) fn copied(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.bar.inc(bytes);
    }

    pub(super) fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.bar.dec(self.bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}
