//! The terminal that this program runs on.

use std::io::IsTerminal;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::protocol::process::TerminalSize;

/// Raw mode, until dropped.
pub(super) struct RawMode {
    before: Termios,
}

impl RawMode {
    /// Passes every key on as it is typed. `None` if input is no terminal.
    pub(super) fn enter() -> Option<Self> {
        let stdin = rustix::stdio::stdin();
        if !std::io::stdin().is_terminal() {
            return None;
        }
        let before = tcgetattr(stdin).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin, OptionalActions::Now, &raw).ok()?;
        Some(Self { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // Nothing is left to do about a terminal that is gone.
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Drain, &self.before);
    }
}

/// The size of the terminal, if there is one and it says.
pub(super) fn size() -> Option<TerminalSize> {
    let size =
        [rustix::stdio::stdout(), rustix::stdio::stdin()].into_iter().find_map(|fd| tcgetwinsize(fd).ok())?;
    (size.ws_row > 0 && size.ws_col > 0).then_some(TerminalSize { rows: size.ws_row, cols: size.ws_col })
}
