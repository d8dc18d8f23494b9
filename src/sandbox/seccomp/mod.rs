//! Which system calls a sandboxed program may make.
//!
//! The filter allows what it does not name. What it refuses fails with EPERM, as if the kernel had refused it; calls
//! of another architecture kill the process, and those of the x32 interface, which would go past every rule, do not
//! exist. `connect` is not refused where somebody supervises it (`helper::jail::connect`). What becomes of sockets is in
//! `sockets`.

mod sockets;

use std::collections::BTreeMap;

use seccompiler::{SeccompAction, SeccompFilter, SeccompRule, TargetArch, sock_filter};
use serde::{Deserialize, Serialize};

pub use self::sockets::Sockets;

/// What a filter is to refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Filter {
    /// What becomes of sockets.
    pub sockets: Sockets,
    /// Refuse to change modes, owners, times and attributes of files: where no mount does it.
    pub fixed_metadata: bool,
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
        self.sockets.limit(&mut rules)?;
        Ok(rules)
    }
}

fn refuse(rules: &mut Rules, calls: &[i64]) {
    rules.extend(calls.iter().map(|call| (*call, Vec::new())));
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
mod tests;
