//! Interfaces of this network namespace, set up over netlink (`rtnetlink(7)`).

use rustix::io::{Errno, Result};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

/// Every network namespace has it under this number.
const LOOPBACK: u32 = 1;

const RTM_NEWLINK: u16 = 16;
/// `NLM_F_REQUEST` and `NLM_F_ACK`.
const REQUEST_WITH_ANSWER: u16 = 5;
const ERROR: u16 = 2;
const HEADER_BYTES: usize = 16;
const UP: u32 = 1;

/// Brings the loopback up, with the addresses that it always has.
pub(super) fn loopback_up() -> Result<()> {
    change(RTM_NEWLINK, 0, &up(LOOPBACK))
}

fn up(interface: u32) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(interface.to_ne_bytes());
    // The flags, and which of them are meant.
    body.extend(UP.to_ne_bytes());
    body.extend(UP.to_ne_bytes());
    body
}

/// Has the kernel change something, and hears whether it has.
fn change(kind: u16, flags: u16, body: &[u8]) -> Result<()> {
    let (family, socket_flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
    // Without a number the protocol is that of interfaces and routes.
    let netlink = socket_with(family, SocketType::RAW, socket_flags, None)?;
    let length = u32::try_from(HEADER_BYTES + body.len()).map_err(|_| Errno::INVAL)?;
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend((REQUEST_WITH_ANSWER | flags).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    sendto(&netlink, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0; 512];
    let (received, _) = recv(&netlink, &mut answer, RecvFlags::empty())?;
    outcome(answer.get(..received).unwrap_or_default())
}

/// What an answer says: a negative error number, or 0.
fn outcome(answer: &[u8]) -> Result<()> {
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    let error = answer.get(HEADER_BYTES..HEADER_BYTES + 4).and_then(|bytes| bytes.try_into().ok());
    match (kind, error.map(i32::from_ne_bytes)) {
        (Some(ERROR), Some(0)) => Ok(()),
        (Some(ERROR), Some(error)) => Err(Errno::from_raw_os_error(error.saturating_neg())),
        _ => Err(Errno::BADMSG),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_that_says_so_is_a_success() {
        let answer = |kind: u16, error: i32| {
            let header = [36_u32.to_ne_bytes().as_slice(), &kind.to_ne_bytes(), &[0; 10]].concat();
            [header.as_slice(), &error.to_ne_bytes()].concat()
        };
        assert_eq!(outcome(&answer(ERROR, 0)), Ok(()));
        assert_eq!(outcome(&answer(ERROR, -1)), Err(Errno::PERM));
        assert_eq!(outcome(&answer(3, 0)), Err(Errno::BADMSG));
        for length in 0..20 {
            assert_eq!(outcome(&answer(ERROR, 0)[..length]), Err(Errno::BADMSG), "{length}");
        }
    }
}
