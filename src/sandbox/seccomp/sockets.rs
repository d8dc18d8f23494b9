//! What becomes of sockets.

use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};
use serde::{Deserialize, Serialize};

use super::{Built, Rules, refuse};

/// Which sockets a program may have, and what it may do with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Sockets {
    /// All but those of virtual machines.
    Network,
    /// Streams within the sandbox; every connect is decided by a supervisor.
    Supervised,
    /// Pairs only.
    Pairs,
    /// IPv4 and IPv6, where the network is the run's own. No sockets by path, which could be the host's, but pairs.
    Private {
        /// Interfaces and routes may be looked at.
        routing: bool,
    },
    /// TCP connections to elsewhere, where Landlock decides which. No way to be connected to.
    Outgoing,
}

/// What a socket's type is without its flags.
const TYPE_MASK: u64 = 0xf;
const TYPES: std::ops::RangeInclusive<i32> = 0..=15;
/// Types that have a connection, so that nothing can be sent to an address.
const STREAMS: [i32; 2] = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET];
/// Types of the internet's sockets that need no privilege.
const PLAIN: [i32; 2] = [libc::SOCK_STREAM, libc::SOCK_DGRAM];

// Arguments of `socket`.
const FAMILY: u8 = 0;
const TYPE: u8 = 1;
const PROTOCOL: u8 = 2;

impl Sockets {
    /// Adds what is refused.
    pub(super) fn limit(self, rules: &mut Rules) -> Built<()> {
        if self == Self::Network {
            for call in [libc::SYS_socket, libc::SYS_socketpair] {
                rules.insert(call, vec![all([is(FAMILY, libc::AF_VSOCK)])?]);
            }
            return Ok(());
        }
        refuse(rules, &[libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev]);
        rules.insert(libc::SYS_socketpair, only_local_streams()?);
        let made = match self {
            Self::Network | Self::Supervised | Self::Pairs => only_local_streams()?,
            Self::Private { routing } => only_internet(routing)?,
            Self::Outgoing => only_tcp()?,
        };
        rules.insert(libc::SYS_socket, made);
        match self {
            Self::Pairs => pairs_only(rules),
            Self::Outgoing => connections_by_connect_only(rules),
            Self::Network | Self::Supervised | Self::Private { .. } => Ok(()),
        }
    }
}

fn pairs_only(rules: &mut Rules) -> Built<()> {
    refuse(rules, &[libc::SYS_connect]);
    never_connected_to(rules);
    let with_address = SeccompCondition::new(4, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0);
    rules.insert(libc::SYS_sendto, vec![all([with_address])?]);
    Ok(())
}

/// Landlock sees what `connect` is asked for, and nothing else that leads to a connection: data that is sent with the
/// request for one, and sockets that are turned into those of another protocol.
fn connections_by_connect_only(rules: &mut Rules) -> Built<()> {
    never_connected_to(rules);
    for (call, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
        rules.insert(call, vec![all([has(flags, libc::MSG_FASTOPEN)])?]);
    }
    let (level, name) = (1, 2);
    let another_protocol = all([is(level, libc::SOL_TCP), is(name, libc::TCP_ULP)])?;
    rules.insert(libc::SYS_setsockopt, vec![another_protocol]);
    Ok(())
}

/// A socket that listens is given a port without `bind`.
fn never_connected_to(rules: &mut Rules) {
    refuse(rules, &[libc::SYS_bind, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4]);
}

/// Refuses other families, and of `AF_UNIX` every type that is no stream: the kernel takes some for datagrams.
fn only_local_streams() -> Built<Vec<SeccompRule>> {
    let mut rules = vec![all([is_not(FAMILY, libc::AF_UNIX)])?];
    for kind in TYPES.filter(|kind| !STREAMS.contains(kind)) {
        rules.push(all([is_type(kind)])?);
    }
    Ok(rules)
}

/// Refuses other families and types; of netlink, where it is wanted, every protocol that is not about interfaces.
fn only_internet(routing: bool) -> Built<Vec<SeccompRule>> {
    let families = [libc::AF_INET, libc::AF_INET6].into_iter().chain(routing.then_some(libc::AF_NETLINK));
    let mut rules = vec![all(families.map(|family| is_not(FAMILY, family)))?];
    for kind in TYPES.filter(|kind| !PLAIN.contains(kind)) {
        rules.push(all([is_not(FAMILY, libc::AF_NETLINK), is_type(kind)])?);
    }
    rules.push(all([is(FAMILY, libc::AF_NETLINK), is_not(PROTOCOL, libc::NETLINK_ROUTE)])?);
    Ok(rules)
}

/// Refuses everything else, TCP's own relatives too: Landlock knows nothing of them.
fn only_tcp() -> Built<Vec<SeccompRule>> {
    let mut rules = vec![
        all([is_not(FAMILY, libc::AF_INET), is_not(FAMILY, libc::AF_INET6)])?,
        all([is_not(PROTOCOL, 0), is_not(PROTOCOL, libc::IPPROTO_TCP)])?,
    ];
    for kind in TYPES.filter(|kind| *kind != libc::SOCK_STREAM) {
        rules.push(all([is_type(kind)])?);
    }
    Ok(rules)
}

/// Refused when all of it holds.
fn all(conditions: impl IntoIterator<Item = Built<SeccompCondition>>) -> Built<SeccompRule> {
    SeccompRule::new(conditions.into_iter().collect::<Built<_>>()?)
}

/// About an argument that is an `int`.
fn compares(argument: u8, operator: SeccompCmpOp, value: i32) -> Built<SeccompCondition> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, u64::from(value.cast_unsigned()))
}

fn is(argument: u8, value: i32) -> Built<SeccompCondition> {
    compares(argument, SeccompCmpOp::Eq, value)
}

fn is_not(argument: u8, value: i32) -> Built<SeccompCondition> {
    compares(argument, SeccompCmpOp::Ne, value)
}

fn is_type(kind: i32) -> Built<SeccompCondition> {
    compares(TYPE, SeccompCmpOp::MaskedEq(TYPE_MASK), kind)
}

fn has(argument: u8, flag: i32) -> Built<SeccompCondition> {
    compares(argument, SeccompCmpOp::MaskedEq(u64::from(flag.cast_unsigned())), flag)
}
