//! Helpers: this very program, re-entered through a hidden first argument.

mod jail;

use std::ffi::OsStr;

use crate::sandbox::{self, placeholders};
use crate::spawn::guard;

/// Becomes a helper if the arguments say so; true when its work is done and the process should end.
///
/// A program that uses the library calls this first in `main`, before any thread is started.
#[must_use]
pub fn dispatch() -> bool {
    sandbox::can_be_reentered();
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next().as_deref() {
        Some(word) if word == OsStr::new(guard::WORD) => {
            guard::main(arguments);
            if let Ok(journal) = guard::inheritance() {
                placeholders::sweep(&journal);
            }
            true
        }
        Some(word) if word == OsStr::new(sandbox::WORD) => {
            jail::main(arguments);
            true
        }
        _ => false,
    }
}
