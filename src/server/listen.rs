//! Binds what [`ListenAddress`] names.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};
use tokio::net::{TcpListener, UnixListener, UnixSocket, UnixStream, lookup_host};

pub use crate::config::{Host, ListenAddress};

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// An address that cannot be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The kernel or the resolver refused.
    #[error("cannot listen on {address}")]
    Io {
        /// As it was asked for.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// What the service manager has handed over is of no use.
    #[error("cannot listen on descriptor {number}, which the service manager has handed over")]
    Inherited {
        /// Of the descriptor.
        number: i32,
        /// Why.
        source: io::Error,
    },
    /// A server answers at the path.
    #[error("cannot listen on unix:{}: another server is listening there", .0.display())]
    Live(PathBuf),
    /// Something else is at the path, and is not ours to remove.
    #[error("cannot listen on unix:{}: it exists and is not a socket", .0.display())]
    NotASocket(PathBuf),
    /// stdin and stdout are served, not bound.
    #[error("stdio is no address that can be bound")]
    Stdio,
}

/// A socket that listens.
#[derive(Debug)]
pub enum BoundListener {
    /// TCP, and the address it really has.
    Tcp(TcpListener, SocketAddr),
    /// A unix socket.
    Unix(UnixPath),
}

impl BoundListener {
    /// Binds an address; of a host name, the first address that can be bound.
    pub async fn bind(address: &ListenAddress) -> Result<Self, BindError> {
        let failed = |source| BindError::Io { address: address.to_string(), source };
        match address {
            ListenAddress::Tcp { host: Host::Ip(ip), port, .. } => {
                tcp([(*ip, *port).into()]).await.map_err(failed)
            }
            ListenAddress::Tcp { host: Host::Name(name), port, .. } => {
                let found = lookup_host((name.as_str(), *port)).await.map_err(failed)?;
                tcp(found).await.map_err(failed)
            }
            ListenAddress::Unix(path) => UnixPath::bind(path).await.map(Self::Unix),
            ListenAddress::Stdio => Err(BindError::Stdio),
        }
    }

    /// Takes a socket that listens already. Its file, if it has one, is the giver's.
    fn inherited(socket: OwnedFd) -> Result<Self, BindError> {
        let number = socket.as_raw_fd();
        let failed = |source| BindError::Inherited { number, source };
        let listens =
            socket_type(&socket) == Ok(SocketType::STREAM) && socket_acceptconn(&socket) == Ok(true);
        if !listens {
            let reason = "it is no stream socket that listens (Accept=no, ListenStream=)";
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, reason)));
        }
        rustix::io::ioctl_fionbio(&socket, true).map_err(|error| failed(error.into()))?;
        let is_unix = socket_domain(&socket) == Ok(AddressFamily::UNIX);
        let listener =
            if is_unix { UnixPath::inherited(socket).map(Self::Unix) } else { Self::inherited_tcp(socket) };
        listener.map_err(failed)
    }

    fn inherited_tcp(socket: OwnedFd) -> io::Result<Self> {
        let listener = TcpListener::from_std(socket.into())?;
        let address = listener.local_addr()?;
        Ok(Self::Tcp(listener, address))
    }

    /// The line that tells clients where to connect.
    #[must_use]
    pub fn url(&self, is_secure: bool) -> String {
        match self {
            Self::Tcp(_, address) if is_secure => format!("wss://{address}"),
            Self::Tcp(_, address) => format!("ws://{address}"),
            Self::Unix(socket) => format!("unix:{}", socket.path.display()),
        }
    }

    /// The port, of TCP.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Tcp(_, address) => Some(address.port()),
            Self::Unix(_) => None,
        }
    }

    /// Only this machine can reach it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(_, address) => is_loopback(address.ip()),
            Self::Unix(_) => true,
        }
    }
}

/// Binds the addresses; sockets that a service manager has handed over stand for all of them.
pub(super) async fn all(
    addresses: &[ListenAddress],
    inherited: Vec<OwnedFd>,
) -> Result<Vec<BoundListener>, BindError> {
    if !inherited.is_empty() {
        return inherited.into_iter().map(BoundListener::inherited).collect();
    }
    let mut listeners = Vec::new();
    for address in addresses {
        listeners.push(BoundListener::bind(address).await?);
    }
    Ok(listeners)
}

/// Whether an address is reached from this machine only; also in its IPv6-mapped form.
#[must_use]
pub const fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

async fn tcp(addresses: impl IntoIterator<Item = SocketAddr>) -> io::Result<BoundListener> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match TcpListener::bind(address).await {
            Ok(listener) => {
                let address = listener.local_addr()?;
                return Ok(BoundListener::Tcp(listener, address));
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// A listening unix socket; dropping it removes its file, if the file is still the one it made.
#[derive(Debug)]
pub struct UnixPath {
    listener: UnixListener,
    path: PathBuf,
    /// Of its file, if that is ours.
    inode: Option<(u64, u64)>,
}

impl UnixPath {
    async fn bind(path: &Path) -> Result<Self, BindError> {
        remove_stale(path).await?;
        bind_private(path)
            .map_err(|source| BindError::Io { address: format!("unix:{}", path.display()), source })
    }

    fn inherited(socket: OwnedFd) -> io::Result<Self> {
        let listener = UnixListener::from_std(socket.into())?;
        let address = listener.local_addr()?;
        let path = address.as_pathname().map(Path::to_owned).unwrap_or_default();
        Ok(Self { listener, path, inode: None })
    }

    /// The listener. Its peers still have to pass [`is_permitted_peer`].
    #[must_use]
    pub const fn listener(&self) -> &UnixListener {
        &self.listener
    }
}

impl Drop for UnixPath {
    fn drop(&mut self) {
        if self.inode.is_some() && inode(&self.path).ok() == self.inode {
            // Nobody is left to tell about a failure.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn bind_private(path: &Path) -> io::Result<UnixPath> {
    let socket = UnixSocket::new_stream()?;
    // Before the bind, so that the file never exists with a wider mode.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    socket.bind(path)?;
    let listener = socket.listen(BACKLOG)?;
    Ok(UnixPath { listener, path: path.into(), inode: Some(inode(path)?) })
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|data| (data.dev(), data.ino()))
}

/// Makes room for a new socket: removes one that nobody serves, and nothing else.
async fn remove_stale(path: &Path) -> Result<(), BindError> {
    let failed = |source| BindError::Io { address: format!("unix:{}", path.display()), source };
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(data) if !data.file_type().is_socket() => return Err(BindError::NotASocket(path.into())),
        Ok(_) => {}
    }
    match UnixStream::connect(path).await {
        Ok(_) => Err(BindError::Live(path.into())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(failed)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A full backlog: somebody is there, and busy.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(BindError::Live(path.into())),
        Err(error) => Err(failed(error)),
    }
}

/// Whether the peer of a unix socket runs as the server's user or as root.
pub fn is_permitted_peer(stream: &UnixStream) -> io::Result<bool> {
    let uid = stream.peer_cred()?.uid();
    Ok(is_permitted_uid(uid, rustix::process::geteuid().as_raw()))
}

const fn is_permitted_uid(peer: u32, own: u32) -> bool {
    peer == 0 || peer == own
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use tokio::net::TcpStream;

    async fn bind(text: &str) -> Result<BoundListener, BindError> {
        BoundListener::bind(&text.parse().unwrap()).await
    }

    #[tokio::test]
    async fn the_url_has_the_real_port_and_works() {
        for text in ["127.0.0.1:0", "ws://[::1]:0"] {
            let bound = bind(text).await.unwrap();
            let url = bound.url(false);
            assert!(!url.ends_with(":0"), "{url}");
            assert!(bound.is_local());
            TcpStream::connect(url.strip_prefix("ws://").unwrap()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_name_is_resolved_and_the_open_world_is_not_local() {
        assert!(bind("localhost:0").await.unwrap().is_local());
        assert!(!bind("0.0.0.0:0").await.unwrap().is_local());
        assert!(is_loopback("::ffff:127.0.0.1".parse().unwrap()));
        assert!(!is_loopback("::".parse().unwrap()));
    }

    #[tokio::test]
    async fn a_port_in_use_is_an_error() {
        let first = bind("127.0.0.1:0").await.unwrap();
        let error = bind(&first.url(false)).await.unwrap_err();
        assert_eq!(error.to_string(), format!("cannot listen on {}", first.url(false)));
    }

    #[tokio::test]
    async fn a_unix_socket_is_private_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let bound = bind(&format!("unix:{}", path.display())).await.unwrap();
        assert_eq!(bound.url(false), format!("unix:{}", path.display()));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let BoundListener::Unix(socket) = &bound else { panic!("not a unix socket") };
        let _client = UnixStream::connect(&path).await.unwrap();
        let (stream, _) = socket.listener().accept().await.unwrap();
        assert!(is_permitted_peer(&stream).unwrap());
        drop(bound);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_live_one_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let address = ListenAddress::Unix(path.clone());
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let live = BoundListener::bind(&address).await.unwrap();
        assert!(matches!(BoundListener::bind(&address).await, Err(BindError::Live(_))));
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "mine").unwrap();
        assert!(matches!(BoundListener::bind(&address).await, Err(BindError::NotASocket(_))));
        drop(live);
        assert_eq!(std::fs::read(&path).unwrap(), b"mine", "a file of somebody else stays");
    }

    #[test]
    fn peers_are_the_own_user_and_root() {
        assert!(is_permitted_uid(0, 1000) && is_permitted_uid(1000, 1000));
        assert!(!is_permitted_uid(1001, 1000) && !is_permitted_uid(1000, 0));
    }
}
