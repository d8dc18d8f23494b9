//! Which files are bound by sockets of this network namespace, as the kernel tells over netlink.

use rustix::fs::Stat;
use rustix::io::{Errno, Result, retry_on_intr};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const UDIAG_SHOW_VFS: u32 = 2;
const UNIX_DIAG_VFS: u16 = 1;
/// `NLM_F_REQUEST` and `NLM_F_DUMP`.
const REQUEST_A_DUMP: u16 = 0x301;
const REQUEST_BYTES: u32 = 40;
const AF_UNIX: u8 = 1;
const HEADER: usize = 16;
const MESSAGE: usize = 16;
/// More than the kernel puts into one part of an answer.
const PART: usize = 64 << 10;

/// Whether a socket of this network namespace is bound to a file.
pub(super) fn is_bound_here(file: &Stat) -> Result<bool> {
    // The kernel tells the lower half of an inode number, and its own form of a device number.
    let inode = u32::try_from(file.st_ino & u64::from(u32::MAX)).map_err(|_| Errno::INVAL)?;
    let device = (rustix::fs::major(file.st_dev) << 20) | (rustix::fs::minor(file.st_dev) & 0xf_ffff);
    let mut found = false;
    for_each(|bound| found |= bound == (inode, device))?;
    Ok(found)
}

fn for_each(mut seen: impl FnMut((u32, u32))) -> Result<()> {
    let kind = SocketType::RAW;
    let protocol = Some(rustix::net::netlink::SOCK_DIAG);
    let netlink = socket_with(AddressFamily::NETLINK, kind, SocketFlags::CLOEXEC, protocol)?;
    sendto(&netlink, &request(), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut part = vec![0_u8; PART];
    loop {
        let (length, _) = retry_on_intr(|| recv(&netlink, &mut part[..], RecvFlags::empty()))?;
        let mut rest = &part[..length];
        while let Some((kind, body)) = next(&mut rest) {
            match i32::from(kind) {
                libc::NLMSG_DONE => return Ok(()),
                libc::NLMSG_ERROR => return Err(Errno::PERM),
                _ => body.get(MESSAGE..).and_then(vfs).into_iter().for_each(&mut seen),
            }
        }
    }
}

fn request() -> Vec<u8> {
    let mut bytes = REQUEST_BYTES.to_ne_bytes().to_vec();
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(REQUEST_A_DUMP.to_ne_bytes());
    bytes.extend([0; 8]);
    // Family, protocol and padding; states; inode; what to show; cookie.
    bytes.extend([AF_UNIX, 0, 0, 0]);
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(UDIAG_SHOW_VFS.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes
}

/// The next message, or attribute: both begin with a length, and are aligned to four bytes.
fn next<'a>(rest: &mut &'a [u8]) -> Option<(u16, &'a [u8])> {
    let length = usize::try_from(u32_at(rest, 0)?).ok()?;
    let kind = u16_at(rest, 4)?;
    let body = rest.get(HEADER..length)?;
    *rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((kind, body))
}

/// Inode and device of the file that a socket is bound to, from the attributes of its message.
fn vfs(mut attributes: &[u8]) -> Option<(u32, u32)> {
    loop {
        let length = usize::from(u16_at(attributes, 0)?);
        let body = attributes.get(4..length)?;
        if u16_at(attributes, 2)? == UNIX_DIAG_VFS {
            return Some((u32_at(body, 0)?, u32_at(body, 4)?));
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}
