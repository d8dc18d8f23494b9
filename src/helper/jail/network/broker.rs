//! Gives the server sockets of this network namespace, so that it can connect to what listens inside.
//!
//! The server asks for one at a time and connects it itself, so nothing here waits for anybody. The program cannot ask:
//! in it both ends are closed when it is executed.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, Result};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    recv, sendmsg, socket_with, socketpair,
};

use crate::sandbox::plan::{BROKER_REQUEST_BYTES, SocketKind};

/// This side of the socket over which the server asks.
pub(in super::super) struct Broker(OwnedFd);

impl Broker {
    /// With the server's side of the socket.
    pub(super) fn new() -> Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Self(ours), theirs))
    }

    /// Readable when the server asks.
    pub(in super::super) fn requests(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Answers one request; false when there will be no more.
    pub(in super::super) fn serve(&self) -> bool {
        let mut request = [0; BROKER_REQUEST_BYTES];
        match recv(&self.0, &mut request, RecvFlags::empty()) {
            Ok((0, _)) => false,
            Ok(_) => self.answer(made(request)).is_ok(),
            Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        }
    }

    fn answer(&self, made: Result<OwnedFd>) -> Result<()> {
        let errno = made.as_ref().err().map_or(0, |errno| errno.raw_os_error());
        let given = made.as_ref().ok().map(|socket| [socket.as_fd()]);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if let Some(given) = &given {
            ancillary.push(SendAncillaryMessage::ScmRights(given));
        }
        let bytes = errno.to_ne_bytes();
        sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL).map(drop)
    }
}

fn made(request: [u8; BROKER_REQUEST_BYTES]) -> Result<OwnedFd> {
    let (family, kind) = match SocketKind::asked_for(request).ok_or(Errno::AFNOSUPPORT)? {
        SocketKind::Stream4 => (AddressFamily::INET, SocketType::STREAM),
        SocketKind::Stream6 => (AddressFamily::INET6, SocketType::STREAM),
        SocketKind::Datagram4 => (AddressFamily::INET, SocketType::DGRAM),
    };
    socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}
