//! What the helper is told: everything about one sandboxed run, decided before it starts.
//!
//! A plan is data. It crosses to the helper through a file in memory; nothing of the request reaches the helper in
//! another way, its environment above all, which only the final exec sees.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::seccomp::Filter;

/// A path as bytes: paths need not be text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RawPath(Vec<u8>);

impl RawPath {
    /// The path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }
}

impl From<&Path> for RawPath {
    fn from(path: &Path) -> Self {
        Self(path.as_os_str().as_bytes().to_vec())
    }
}

impl From<PathBuf> for RawPath {
    fn from(path: PathBuf) -> Self {
        Self(path.into_os_string().into_vec())
    }
}

/// One sandboxed run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// What exists.
    pub view: View,
    /// What may be opened, as a second layer under the view.
    pub grants: Vec<Grant>,
    /// What becomes of a network namespace. None: nothing, and there is no loopback either.
    pub network: Option<PrivateNetwork>,
    /// Which system calls are refused.
    pub filter: Filter,
    /// What runs.
    pub program: Program,
}

/// A network of the run's own, from which nothing leads out but what the server accepts inside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateNetwork {
    /// Where the server listens on its 127.0.0.1. Every port is free in a new network.
    pub ports: Vec<u16>,
    /// TCP to other networks, and DNS, come to the server as well.
    pub transparent: bool,
}

/// Ports that a private network may have for the server.
pub const MAX_PORTS: usize = 56;

/// The files that a run sees: a base and what lies on it, later layers over earlier ones.
///
/// `/proc` and `/dev` are always the run's own and need no layer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct View {
    /// What everything lies on.
    pub base: Base,
    /// What lies on it, in order.
    pub layers: Vec<Layer>,
    /// Directories that the private `/dev/shm` has from the beginning, for layers below it.
    pub shared_memory: Skeleton,
}

/// See [`View::base`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Base {
    /// Everything that the server sees.
    Host {
        /// Not read-only.
        writable: bool,
    },
    /// Nothing but this; read-only once the view is complete.
    Empty(Skeleton),
}

/// A small directory tree in memory, for layers to lie on. Paths are relative to its top.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skeleton {
    /// Directories, parents first.
    pub directories: Vec<RawPath>,
    /// Empty files.
    pub files: Vec<RawPath>,
    /// Symbolic links: path and target.
    pub links: Vec<(RawPath, RawPath)>,
}

/// One part of a view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Absolute, without links.
    pub path: RawPath,
    /// What is there.
    pub content: Content,
}

/// See [`Layer::content`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// What the server sees at this path, with everything mounted below.
    Host {
        /// Not read-only.
        writable: bool,
    },
    /// What the layers before this one have put there, read-only. The path may name a link, which then stays as it is.
    Fixed,
    /// The same, as it is, but it can be neither moved nor removed.
    Held,
    /// A read-only directory in place of what is there.
    Directory {
        /// Its permission bits, and those of the directories in it.
        mode: u32,
        /// What is in it.
        skeleton: Skeleton,
    },
    /// A read-only empty file in place of what is there.
    File {
        /// Its permission bits.
        mode: u32,
    },
}

/// What may be done with a path and everything below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Absolute.
    pub path: RawPath,
    /// What may be done.
    pub access: GrantAccess,
}

/// See [`Grant::access`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrantAccess {
    /// List directories.
    List,
    /// Read and execute.
    Read,
    /// Read, write and control devices.
    Device,
    /// Everything.
    Write,
}

/// What runs in the sandbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Program {
    /// Paths to try in order, as the run sees them.
    pub candidates: Vec<CString>,
    /// Arguments, with what the program sees as its own name first.
    pub argv: Vec<CString>,
    /// The whole environment, as `NAME=value`.
    pub env: Vec<CString>,
    /// Working directory, as the run sees it.
    pub cwd: CString,
    /// Standard input is a terminal, which becomes the controlling one.
    pub terminal: bool,
    /// What is said, as a shell would, if no candidate exists; the program has then ended with 127. `None`: the start
    /// fails.
    pub absence: Option<CString>,
    /// Numbers of the descriptors that it inherits besides the standard streams; the helper has them at these already.
    pub inherited: Vec<i32>,
}

/// What the helper answers, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// The program has been executed. With the message come a pidfd of it, and of a private network the socket to its
    /// broker, then the listeners in the order of their ports, then, where it is transparent, three sockets of IPv4 and, if
    /// the machine has it, three of IPv6: for connections to elsewhere, for DNS by messages and by connections.
    Started,
    /// Nothing runs.
    Failed(Failure),
}

/// Why nothing runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Where it failed.
    pub stage: Stage,
    /// The system's error.
    pub errno: i32,
    /// What it was about.
    pub what: String,
}

/// A step of the helper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// The plan did not arrive.
    Plan,
    /// A part of the kernel that the sandbox stands on.
    Facility,
    /// A layer of the view, which `what` names.
    Layer,
    /// The working directory.
    WorkingDirectory,
    /// The terminal.
    Terminal,
    /// The program.
    Exec,
}

/// Bytes that a report may have.
pub const REPORT_BYTES: usize = 16 << 10;

/// Descriptors that may come with a report.
pub const REPORT_DESCRIPTORS: usize = 64;

/// What the server asks the broker of a private network for: a socket of it. The answer is the error, four bytes, 0 if
/// the socket comes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketKind {
    /// TCP over IPv4.
    Stream4,
    /// TCP over IPv6.
    Stream6,
    /// UDP over IPv4.
    Datagram4,
}

/// Bytes of a request to a broker.
pub const BROKER_REQUEST_BYTES: usize = 1;

impl SocketKind {
    /// As a request.
    #[must_use]
    pub fn request(self) -> [u8; BROKER_REQUEST_BYTES] {
        match self {
            Self::Stream4 => [4],
            Self::Stream6 => [6],
            Self::Datagram4 => [14],
        }
    }

    /// What a request is for.
    #[must_use]
    pub fn asked_for(request: [u8; BROKER_REQUEST_BYTES]) -> Option<Self> {
        let all = [Self::Stream4, Self::Stream6, Self::Datagram4];
        all.into_iter().find(|kind| kind.request() == request)
    }
}
