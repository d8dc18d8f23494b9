use std::fmt;

use super::allowance::{FILE_BYTES, ROOT_BYTES};
use super::manifest::BadPath;
use super::scan::{MAX_DEPTH, MAX_DIRECTORIES, MAX_ENTRIES};
use crate::fs::FsError;
use crate::path_uri::PathUri;

/// The most notices that a root tells.
const MAX_NOTICES: usize = 1_000;

/// What somebody should know of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) about: PathUri,
    pub(super) matter: Matter,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Matter {
    /// A limit on directories ended the scan of this root.
    Directories,
    /// A limit on entries ended the scan of this root.
    Entries,
    /// The directory has others below it that are too deep.
    TooDeep,
    /// The link leads out of the root, to this place.
    LinkOut(String),
    /// The directory cannot be listed.
    Unlisted(FsError),
    /// The file cannot be read.
    Unread(FsError),
    /// The file is too large.
    Large,
    /// The file is not UTF-8 from this offset on.
    NotUtf8(usize),
    /// The file does not fit into what its root may deliver.
    RootFull,
    /// The file does not fit into the answer.
    AnswerFull,
    /// The manifest names a file in a way that does not count.
    Declaration(&'static str, BadPath),
}

/// The notices of one root, as many as are told.
#[derive(Debug, Default)]
pub(super) struct Notices {
    pub(super) kept: Vec<Notice>,
    /// How many there are more.
    pub(super) others: usize,
}

impl Notices {
    pub(super) fn add(&mut self, about: &PathUri, matter: Matter) {
        if self.kept.len() < MAX_NOTICES {
            self.kept.push(Notice { about: about.clone(), matter });
        } else {
            self.others += 1;
        }
    }
}

impl Notice {
    /// Whether something that could be of use is missing by accident: not by where it lies, and not by its own choice.
    pub(super) fn is_loss(&self) -> bool {
        match self.matter {
            Matter::TooDeep | Matter::LinkOut(_) | Matter::Declaration(..) => false,
            Matter::Directories
            | Matter::Entries
            | Matter::Unlisted(_)
            | Matter::Unread(_)
            | Matter::Large
            | Matter::NotUtf8(_)
            | Matter::RootFull
            | Matter::AnswerFull => true,
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let about = &self.about;
        match &self.matter {
            Matter::Directories => write!(
                f,
                "the scan of {about} ended at its limit of {MAX_DIRECTORIES} directories; choose a smaller root"
            ),
            Matter::Entries => {
                write!(
                    f,
                    "the scan of {about} ended at its limit of {MAX_ENTRIES} entries; choose a smaller root"
                )
            }
            Matter::TooDeep => {
                write!(
                    f,
                    "directories below {about} were not scanned: they are more than {MAX_DEPTH} levels down"
                )
            }
            Matter::LinkOut(target) => write!(f, "link {about} leads out of the root, to {target}"),
            Matter::Unlisted(error) => write!(f, "cannot scan directory {about}: {error}"),
            Matter::Unread(error) => write!(f, "cannot read file {about}: {error}"),
            Matter::Large => write!(f, "file {about} is left out: it exceeds {FILE_BYTES} bytes"),
            Matter::NotUtf8(offset) => {
                write!(f, "file {about} is left out: it is not UTF-8 from byte {offset} on")
            }
            Matter::RootFull => {
                write!(f, "file {about} is left out: the files of its root exceed {ROOT_BYTES} bytes")
            }
            Matter::AnswerFull => {
                write!(f, "file {about} is left out: the answer is full; ask for fewer roots at a time")
            }
            Matter::Declaration(key, why) => write!(f, "`{key}` in {about} is ignored: {why}"),
        }
    }
}
