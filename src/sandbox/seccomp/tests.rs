use super::*;

/// Runs a filter on a call as the kernel does.
fn verdict(filter: Filter, architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
    let program = filter.compile().unwrap().into_instructions();
    let mut data = [number, architecture, 0, 0].map(u32::to_ne_bytes).concat();
    data.extend(arguments.iter().flat_map(|argument| argument.to_ne_bytes()));
    let (mut at, mut accumulator) = (0, 0_u32);
    loop {
        let step = program[at];
        let compared = |holds: bool| usize::from(if holds { step.jt } else { step.jf });
        at += 1;
        match u32::from(step.code) {
            0x20 => {
                let offset = step.k as usize;
                accumulator = u32::from_ne_bytes(data[offset..offset + 4].try_into().unwrap());
            }
            0x54 => accumulator &= step.k,
            0x05 => at += step.k as usize,
            0x15 => at += compared(accumulator == step.k),
            0x25 => at += compared(accumulator > step.k),
            0x35 => at += compared(accumulator >= step.k),
            0x06 => return step.k,
            code => panic!("instruction {code:#x}"),
        }
    }
}

const REFUSED: u32 = libc::SECCOMP_RET_ERRNO | EPERM;

fn of(filter: Filter, call: i64, arguments: &[u64]) -> u32 {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    verdict(filter, ARCHITECTURE.1, u32::try_from(call).unwrap(), all)
}

fn filter(sockets: Sockets) -> Filter {
    Filter { sockets, fixed_metadata: false }
}

const ALL: [Sockets; 6] = [
    Sockets::Network,
    Sockets::Supervised,
    Sockets::Pairs,
    Sockets::Private { routing: false },
    Sockets::Private { routing: true },
    Sockets::Outgoing,
];

/// Whether a socket of this family, type and protocol can be had.
fn is_made(sockets: Sockets, socket: [i32; 3]) -> bool {
    let arguments = socket.map(|number| u64::from(number.cast_unsigned()));
    of(filter(sockets), libc::SYS_socket, &arguments) == libc::SECCOMP_RET_ALLOW
}

#[test]
fn other_architectures_and_interfaces_are_closed() {
    for sockets in ALL {
        for number in [0, 39, 102, 359, 0x4000_0001] {
            assert_eq!(verdict(filter(sockets), 0x4000_0003, number, [0; 6]), libc::SECCOMP_RET_KILL_PROCESS);
        }
        if cfg!(target_arch = "x86_64") {
            let x32 = verdict(filter(sockets), ARCHITECTURE.1, X32 | 41, [2, 1, 0, 0, 0, 0]);
            assert_eq!(x32, libc::SECCOMP_RET_ERRNO | ENOSYS);
        }
    }
}

#[test]
fn sockets_are_local_streams_only() {
    for sockets in [Sockets::Supervised, Sockets::Pairs] {
        for call in [libc::SYS_socket, libc::SYS_socketpair] {
            for (family, kind, allowed) in [
                (1, 1, true),
                (1, 5, true),
                (1, 1 | 0o2_004_000, true),
                (1, 2, false),
                (1, 3, false),
                (1, 2 | 0o2_004_000, false),
                (2, 1, false),
                (16, 3, false),
                (0xffff_ffff_0000_0001, 1, true),
                (0x1_0000_0002, 1, false),
                (1, 0xffff_ffff_0000_0002, false),
            ] {
                let expected = if allowed { libc::SECCOMP_RET_ALLOW } else { REFUSED };
                assert_eq!(of(filter(sockets), call, &[family, kind]), expected, "{family:x} {kind:x}");
            }
        }
    }
}

#[test]
fn connections_are_asked_about_or_refused() {
    assert_eq!(of(filter(Sockets::Supervised), libc::SYS_connect, &[]), libc::SECCOMP_RET_USER_NOTIF);
    assert_eq!(of(filter(Sockets::Pairs), libc::SYS_connect, &[]), REFUSED);
    assert_eq!(of(filter(Sockets::Network), libc::SYS_connect, &[]), libc::SECCOMP_RET_ALLOW);
    assert_eq!(of(filter(Sockets::Pairs), libc::SYS_sendto, &[3, 9, 1, 0, 0x1_0000_0000]), REFUSED);
    assert_eq!(of(filter(Sockets::Pairs), libc::SYS_sendto, &[3, 9, 1]), libc::SECCOMP_RET_ALLOW);
    assert_eq!(i64::from(CONNECT), libc::SYS_connect);
}

#[test]
fn metadata_is_fixed_on_demand() {
    let fixed = Filter { sockets: Sockets::Network, fixed_metadata: true };
    for call in METADATA.iter().chain(METADATA_BY_PATH) {
        assert_eq!(of(fixed, *call, &[]), REFUSED);
        assert_eq!(of(filter(Sockets::Network), *call, &[]), libc::SECCOMP_RET_ALLOW);
    }
}

#[test]
fn a_private_network_has_the_internet_s_plain_sockets() {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    for routing in [false, true] {
        let sockets = Sockets::Private { routing };
        for family in 0..=46 {
            for kind in 0..=15 {
                for protocol in [0, 6, 17, 1, 132, 262] {
                    let internet =
                        [libc::AF_INET, libc::AF_INET6].contains(&family) && [1, 2].contains(&kind);
                    let interfaces = routing && family == libc::AF_NETLINK && protocol == 0;
                    let expected = internet || interfaces;
                    let socket = [family, kind | flags, protocol];
                    assert_eq!(is_made(sockets, socket), expected, "{socket:?} {routing}");
                }
            }
        }
        for call in [libc::SYS_connect, libc::SYS_bind, libc::SYS_listen, libc::SYS_accept4] {
            assert_eq!(of(filter(sockets), call, &[]), libc::SECCOMP_RET_ALLOW);
        }
        assert_eq!(of(filter(sockets), libc::SYS_socketpair, &[1, 1]), libc::SECCOMP_RET_ALLOW);
        assert_eq!(of(filter(sockets), libc::SYS_socketpair, &[1, 2]), REFUSED);
        assert_eq!(of(filter(sockets), libc::SYS_ptrace, &[]), REFUSED);
    }
}

#[test]
fn outgoing_connections_are_of_plain_tcp_and_made_by_connect() {
    for family in 0..=46 {
        for kind in 0..=15 {
            for protocol in [0, 6, 17, 132, 256, 262] {
                let internet = [libc::AF_INET, libc::AF_INET6].contains(&family);
                let expected = internet && kind == libc::SOCK_STREAM && [0, 6].contains(&protocol);
                let socket = [family, kind | libc::SOCK_CLOEXEC, protocol];
                assert_eq!(is_made(Sockets::Outgoing, socket), expected, "{socket:?}");
            }
        }
    }
    let call = |call, arguments: &[u64]| of(filter(Sockets::Outgoing), call, arguments);
    let fast_open = u64::from(libc::MSG_FASTOPEN.cast_unsigned());
    for flags in [fast_open, fast_open | 0x4000, fast_open | 1 << 32] {
        assert_eq!(call(libc::SYS_sendto, &[3, 9, 1, flags, 9, 16]), REFUSED);
        assert_eq!(call(libc::SYS_sendmsg, &[3, 9, flags]), REFUSED);
        assert_eq!(call(libc::SYS_sendmmsg, &[3, 9, 1, flags]), REFUSED);
    }
    for flags in [0, 0x4000] {
        assert_eq!(call(libc::SYS_sendto, &[3, 9, 1, flags, 9, 16]), libc::SECCOMP_RET_ALLOW);
        assert_eq!(call(libc::SYS_sendmsg, &[3, 9, flags]), libc::SECCOMP_RET_ALLOW);
        assert_eq!(call(libc::SYS_sendmmsg, &[3, 9, 1, flags]), libc::SECCOMP_RET_ALLOW);
    }
    assert_eq!(call(libc::SYS_setsockopt, &[3, 6, 31]), REFUSED);
    assert_eq!(call(libc::SYS_setsockopt, &[3, 6, 1]), libc::SECCOMP_RET_ALLOW);
    assert_eq!(call(libc::SYS_connect, &[]), libc::SECCOMP_RET_ALLOW);
    for refused in [libc::SYS_bind, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4] {
        assert_eq!(call(refused, &[]), REFUSED);
    }
}
