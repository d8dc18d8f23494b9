//! What is particular to each kind of shell: how its state is asked for, what it answers, and how the state is put
//! back.
//!
//! A capture runs the shell as the start would, `-lc`, with a script in place of the command. The shell itself reads its
//! login files; the script reads the file of interactive shells, and prints the state as fields ([`super::records`]).
//! The text that puts the state back is written here, from these fields, so that no strange value becomes code;
//! functions are taken as the shell printed them.

pub(super) mod bash;
mod quote;
mod sh;
mod zsh;

use super::error::CaptureError;
use super::records::{Fields, Mark};
use super::variables::is_identifier;
use crate::process::env::{NameFilter, Variables};

/// The number of the descriptor from which a shell reads its state.
pub(super) const STATE_DESCRIPTOR: i32 = 9;
/// Functions, options, aliases and arrays, as the text that puts them back.
const MAX_STATE: usize = 4 << 20;

/// A kind of shell, as requests name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shell {
    /// GNU bash.
    Bash,
    /// zsh.
    Zsh,
    /// Whatever `sh` is: dash and its relatives, or bash.
    Sh,
}

/// The command line of a capture, without the shell.
#[derive(Debug)]
pub(super) struct Command {
    /// In place of `-lc` and the command.
    pub(super) words: Vec<String>,
    /// The script prints something before it reads any file: a shell that prints nothing does not take the words.
    pub(super) prints_first: bool,
}

/// What a capture found.
#[derive(Debug)]
pub(super) struct State {
    /// Every exported variable, as it is after the start-up files.
    pub(super) exported: Vec<(Vec<u8>, Vec<u8>)>,
    /// What puts the rest back.
    pub(super) script: Vec<u8>,
    /// How the script is run before a command.
    pub(super) replay: Replay,
}

/// How a shell comes to run the state's script before the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Replay {
    /// bash: as the file of `BASH_ENV`, or in POSIX mode, where there is no such file, by the prelude.
    Bash {
        /// See [`Replay::Prelude`].
        prelude: String,
        /// False if the prelude serves everywhere.
        as_startup_file: bool,
    },
    /// By a text in place of the command, which runs the script and then evaluates the command, its second argument.
    Prelude {
        /// The option before the text.
        flag: &'static str,
        /// The text.
        prelude: String,
    },
}

impl Shell {
    /// The shell of this name in requests.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "bash" => Some(Self::Bash),
            "zsh" => Some(Self::Zsh),
            "sh" => Some(Self::Sh),
            _ => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Zsh => "zsh",
            Self::Sh => "sh",
        }
    }

    /// What a capture runs in place of `-lc` and the command, in a shell shown under this name and with this environment.
    /// `withheld` are functions that the request itself brings, which are not of the profile.
    pub(super) fn capture(self, mark: &Mark, withheld: &[&[u8]], shown_as: &str, env: &Variables) -> Command {
        let (flags, parts): (&[&str], &[&str]) = match self {
            // bash would read its login files alone, and could not tell whether they read the other file too.
            Self::Bash if bash::reads_login_files_by_script(shown_as, env) => {
                (&["--noprofile", "-lc"], &[bash::LOGIN, bash::STATE])
            }
            Self::Bash => (&["-lc"], &[bash::STARTUP, bash::STATE]),
            Self::Zsh => (&["-lc"], &[zsh::SCRIPT]),
            Self::Sh => (&["-lc"], &[sh::STARTUP, sh::STATE, bash::STATE]),
        };
        let lines = parts.iter().flat_map(|part| part.lines()).filter(|line| !line.starts_with('#'));
        let text = lines.collect::<Vec<_>>().join("\n");
        let text = text.replace("@MARK@", mark.text()).replace("@WITHHELD@", &bash::words(withheld));
        let words = flags.iter().map(|flag| (*flag).to_owned()).chain([text]).collect();
        Command { words, prints_first: flags.len() > 1 }
    }

    /// Reads what the script printed.
    ///
    /// # Errors
    /// When the shell is another one, or the fields are not those of its script, or say that the state cannot be put
    /// back, or are too much.
    pub(super) fn read(self, fields: Fields, mark: &Mark, names: &NameFilter) -> Result<State, CaptureError> {
        let mut fields = fields.undisturbed().ok_or(CaptureError::BadRecord(
            "something else was printed at the same time, as by a background job",
        ))?;
        if fields.next().as_deref() != Some(b"shell") {
            return Err(CaptureError::BadRecord("it does not begin with the kind of the shell"));
        }
        let kind = fields.next().unwrap_or_default();
        let state = match (self, kind.as_slice()) {
            (Self::Bash | Self::Sh, b"bash") => bash::read(fields, mark, names),
            (Self::Zsh, b"zsh") => zsh::read(fields, mark, names),
            (Self::Sh, b"sh") => sh::read(fields, mark),
            _ => Err(CaptureError::WrongShell(self.name())),
        }?;
        if state.script.len() > MAX_STATE {
            return Err(CaptureError::TooLarge { what: "the state of the shell", limit: MAX_STATE });
        }
        Ok(state)
    }
}

/// The line that releases the descriptor of the state, first in each script.
const RELEASE: &[u8] = b"\\exec 9<&-\n";

fn unopened() -> CaptureError {
    CaptureError::Transport("/dev/fd cannot be opened where the shell runs".to_owned())
}

/// The next field, which must be there.
fn field(fields: &mut Fields) -> Result<Vec<u8>, CaptureError> {
    fields.next().ok_or(CaptureError::BadRecord("a field is missing"))
}

/// A name that becomes part of a script as it is.
fn identifier(name: Vec<u8>) -> Result<Vec<u8>, CaptureError> {
    if is_identifier(&name) { Ok(name) } else { Err(CaptureError::BadRecord("an array has a strange name")) }
}

/// What `wc`, found by the profile's PATH, says of nothing: 0, where the PATH leads to the tools of a script. It decides
/// nothing.
fn note_count(answer: &[u8]) {
    let is_number = std::str::from_utf8(answer).is_ok_and(|text| text.trim().parse::<usize>().is_ok());
    if !is_number {
        tracing::debug!("the PATH that the start-up files leave has no usable `wc`");
    }
}

/// The variables that are a shell's own export, without those of the capture.
fn own(exported: Vec<(Vec<u8>, Vec<u8>)>, mark: &Mark) -> Vec<(Vec<u8>, Vec<u8>)> {
    exported.into_iter().filter(|(name, _)| !mark.names(name)).collect()
}
