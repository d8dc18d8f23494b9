//! Which system calls a sandboxed program may make.
//!
//! The filter allows what it does not name. What it refuses fails with EPERM, as if the kernel had refused it; calls
//! of another architecture kill the process, and those of the x32 interface, which would go past every rule, do not
//! exist. `connect` is not refused where somebody supervises it (`helper::jail::connect`).

use std::collections::BTreeMap;

use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
    sock_filter,
};
use serde::{Deserialize, Serialize};

/// What a filter is to refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Filter {
    /// What becomes of sockets.
    pub sockets: Sockets,
    /// Refuse to change modes, owners, times and attributes of files: where no mount does it.
    pub fixed_metadata: bool,
}

/// See [`Filter::sockets`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Sockets {
    /// All but those of virtual machines.
    Network,
    /// Streams within the sandbox; every connect is decided by a supervisor.
    Supervised,
    /// Pairs only.
    Pairs,
}

/// A filter as the kernel takes it.
#[derive(Debug, Clone)]
pub struct Program(Vec<libc::sock_filter>);

impl Program {
    /// For `seccomp(2)`.
    #[must_use]
    pub fn instructions(&self) -> &[libc::sock_filter] {
        &self.0
    }

    /// The same, to keep.
    #[must_use]
    pub fn into_instructions(self) -> Vec<libc::sock_filter> {
        self.0
    }
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: (TargetArch, u32) = (TargetArch::x86_64, 0xc000_003e);
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: (TargetArch, u32) = (TargetArch::aarch64, 0xc000_00b7);

#[cfg(target_arch = "x86_64")]
const CONNECT: u32 = 42;
#[cfg(target_arch = "aarch64")]
const CONNECT: u32 = 203;

// Instructions, and where in what is filtered the call's number and architecture are.
const LOAD_WORD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_NOT_BELOW: u16 = 0x35;
const RETURN: u16 = 0x06;
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

const EPERM: u32 = libc::EPERM.cast_unsigned();
const ENOSYS: u32 = libc::ENOSYS.cast_unsigned();
/// Numbers from here on are of the x32 interface, on the architecture that has it.
const X32: u32 = 0x4000_0000;
/// What a socket's type is without its flags.
const TYPE_MASK: u64 = 0xf;
/// Types that have a connection, so that nothing can be sent to an address.
const STREAMS: [i32; 2] = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;
type Built<T> = Result<T, seccompiler::BackendError>;

impl Filter {
    /// Compiles the filter.
    ///
    /// # Errors
    /// When the rules do not fit a filter, which depends on nothing but this module.
    pub fn compile(self) -> Result<Program, String> {
        self.build().map_err(|error| error.to_string())
    }

    fn build(self) -> Built<Program> {
        let filter = SeccompFilter::new(
            self.rules()?,
            SeccompAction::Allow,
            SeccompAction::Errno(EPERM),
            ARCHITECTURE.0,
        )?;
        let rules: Vec<sock_filter> = filter.try_into()?;
        let mut program = self.prologue();
        program.extend(rules.iter().map(|one| libc::sock_filter {
            code: one.code,
            jt: one.jt,
            jf: one.jf,
            k: one.k,
        }));
        Ok(Program(program))
    }

    /// What the rules' compiler cannot say.
    fn prologue(self) -> Vec<libc::sock_filter> {
        let step = |code: u16, jt: u8, jf: u8, k: u32| libc::sock_filter { code, jt, jf, k };
        let load = |offset: u32| step(LOAD_WORD, 0, 0, offset);
        let give = |action: u32| step(RETURN, 0, 0, action);
        let mut program = vec![
            load(ARCHITECTURE_AT),
            step(JUMP_IF_EQUAL, 1, 0, ARCHITECTURE.1),
            give(libc::SECCOMP_RET_KILL_PROCESS),
            load(NUMBER_AT),
        ];
        if cfg!(target_arch = "x86_64") {
            program.push(step(JUMP_IF_NOT_BELOW, 0, 1, X32));
            program.push(give(libc::SECCOMP_RET_ERRNO | ENOSYS));
        }
        if self.sockets == Sockets::Supervised {
            program.push(step(JUMP_IF_EQUAL, 0, 1, CONNECT));
            program.push(give(libc::SECCOMP_RET_USER_NOTIF));
        }
        program
    }

    fn rules(self) -> Built<Rules> {
        let mut rules = Rules::new();
        refuse(
            &mut rules,
            &[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register],
        );
        // Keyrings are not of any namespace: the session's is the server's own.
        refuse(&mut rules, &[libc::SYS_add_key, libc::SYS_keyctl, libc::SYS_request_key]);
        if self.fixed_metadata {
            refuse(&mut rules, METADATA);
            refuse(&mut rules, METADATA_BY_PATH);
        }
        if self.sockets == Sockets::Network {
            for call in [libc::SYS_socket, libc::SYS_socketpair] {
                rules.insert(call, vec![when(0, SeccompCmpOp::Eq, libc::AF_VSOCK)?]);
            }
            return Ok(rules);
        }
        refuse(&mut rules, &[libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev]);
        for call in [libc::SYS_socket, libc::SYS_socketpair] {
            rules.insert(call, only_local_streams()?);
        }
        if self.sockets == Sockets::Pairs {
            refuse(&mut rules, &[libc::SYS_connect, libc::SYS_bind, libc::SYS_listen]);
            refuse(&mut rules, &[libc::SYS_accept, libc::SYS_accept4]);
            let with_address = SeccompCondition::new(4, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?;
            rules.insert(libc::SYS_sendto, vec![SeccompRule::new(vec![with_address])?]);
        }
        Ok(rules)
    }
}

fn refuse(rules: &mut Rules, calls: &[i64]) {
    rules.extend(calls.iter().map(|call| (*call, Vec::new())));
}

/// Refused when an argument, an `int`, compares so.
fn when(argument: u8, operator: SeccompCmpOp, value: i32) -> Built<SeccompRule> {
    let value = u64::from(value.cast_unsigned());
    SeccompRule::new(vec![SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?])
}

/// Refuses other families, and of `AF_UNIX` every type that is no stream: the kernel takes some for datagrams.
fn only_local_streams() -> Built<Vec<SeccompRule>> {
    let mut rules = vec![when(0, SeccompCmpOp::Ne, libc::AF_UNIX)?];
    for kind in (0..=15).filter(|kind| !STREAMS.contains(kind)) {
        rules.push(when(1, SeccompCmpOp::MaskedEq(TYPE_MASK), kind)?);
    }
    Ok(rules)
}

const METADATA: &[i64] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SYS_SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SYS_REMOVEXATTRAT,
    SYS_FILE_SETATTR,
];

// The same on all architectures; the C library's bindings do not have them everywhere yet.
const SYS_FCHMODAT2: i64 = 452;
const SYS_SETXATTRAT: i64 = 463;
const SYS_REMOVEXATTRAT: i64 = 466;
const SYS_FILE_SETATTR: i64 = 469;

/// Older calls that only the older architecture has.
#[cfg(target_arch = "x86_64")]
const METADATA_BY_PATH: &[i64] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
];
#[cfg(not(target_arch = "x86_64"))]
const METADATA_BY_PATH: &[i64] = &[];

#[cfg(test)]
mod tests {
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

    #[test]
    fn other_architectures_and_interfaces_are_closed() {
        for sockets in [Sockets::Network, Sockets::Supervised, Sockets::Pairs] {
            for number in [0, 39, 102, 359, 0x4000_0001] {
                assert_eq!(
                    verdict(filter(sockets), 0x4000_0003, number, [0; 6]),
                    libc::SECCOMP_RET_KILL_PROCESS
                );
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
}
