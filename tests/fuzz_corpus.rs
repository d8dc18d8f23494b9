//! Replays the corpus of the fuzz targets, and inputs made from it, through the functions that the targets call.
//!
//! It needs no nightly toolchain and takes seconds. The inputs are the same in every run; `fuzz/README.md` says how to
//! search for others.

#[path = "../fuzz/src/lib.rs"]
pub mod checks;

use std::fs;
use std::path::{Path, PathBuf};

/// Inputs made from each of the corpus, and as many times two of nothing.
const OFFSPRING: u32 = 200;
/// The same where one input is a long stream.
const STREAMS: u32 = 40;

/// SplitMix64: enough to vary inputs, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap_or(0)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let length = self.below(most + 1);
        (0..length).map(|_| self.byte()).collect()
    }

    /// A part of `from`, from `at` on.
    fn part<'a>(&mut self, from: &'a [u8], at: usize) -> &'a [u8] {
        &from[at..at + self.below(from.len() - at + 1)]
    }

    /// Changes an input in a few places; `other` lends parts.
    fn vary(&mut self, input: &[u8], other: &[u8]) -> Vec<u8> {
        let mut varied = input.to_vec();
        for _ in 0..=self.below(3) {
            let at = self.below(varied.len() + 1);
            match self.below(6) {
                0 if at < varied.len() => varied[at] ^= 1 << self.below(8),
                1 if at < varied.len() => varied[at] = self.byte(),
                2 => varied.truncate(at),
                3 => {
                    let gone = self.part(&varied, at).len();
                    varied.drain(at..at + gone);
                }
                4 => {
                    let from = self.below(other.len() + 1);
                    let lent = self.part(other, from).to_vec();
                    varied.splice(at..at, lent);
                }
                _ => {
                    const TOKENS: &[&[u8]] = &[
                        b"{", b"}", b"[]", b"\"", b"\\", b":", b",", b"null", b"-1", b"1e9", b"%00", b"%2e",
                        b"/../", b"*",
                    ];
                    let token = TOKENS[self.below(TOKENS.len())];
                    varied.splice(at..at, token.iter().copied());
                }
            }
        }
        varied
    }
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let paths = fs::read_dir(&directory).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut paths: Vec<PathBuf> = paths.expect("the corpus can be listed");
    // The order of a directory is no order.
    paths.sort();
    assert!(!paths.is_empty(), "no corpus in {}", directory.display());
    paths.iter().map(|path| fs::read(path).expect("the corpus can be read")).collect()
}

fn replay(target: &str, check: fn(&[u8]), offspring: u32) {
    let seeds = corpus(target);
    let mut random = Random(0);
    for seed in &seeds {
        check(seed);
        for _ in 0..offspring {
            let other = &seeds[random.below(seeds.len())];
            check(&random.vary(seed, other));
        }
    }
    for _ in 0..2 * offspring {
        check(&random.bytes(64));
    }
}

#[test]
fn envelope() {
    replay("envelope", checks::envelope, OFFSPRING);
}

#[test]
fn path_uri() {
    replay("path_uri", checks::path_uri, OFFSPRING);
}

#[test]
fn env_pattern() {
    replay("env_pattern", checks::env_pattern, OFFSPRING);
}

#[test]
fn capability() {
    replay("capability", checks::capability, OFFSPRING);
}

#[test]
fn hosts() {
    replay("hosts", checks::hosts, OFFSPRING);
}

#[test]
fn egress() {
    replay("egress", checks::egress, OFFSPRING);
}

#[test]
fn request_head() {
    replay("request_head", checks::request_head, OFFSPRING);
}

#[test]
fn socks() {
    replay("socks", checks::socks, OFFSPRING);
}

#[test]
fn params() {
    replay("params", checks::params, OFFSPRING);
}

#[test]
fn oversize() {
    replay("oversize", checks::oversize, STREAMS);
}

#[test]
fn policy() {
    replay("policy", checks::policy, OFFSPRING);
}

#[test]
fn salvage() {
    replay("salvage", checks::salvage, OFFSPRING);
}

/// A method that no seed names would hardly be reached.
#[test]
fn every_method_has_a_seed() {
    let seeds = corpus("params");
    let texts: Vec<_> = seeds.iter().map(|seed| String::from_utf8_lossy(seed)).collect();
    for method in exec_server::fuzzing::METHODS {
        let name = format!("\"method\":\"{method}\"");
        assert!(
            texts.iter().any(|text| text.contains(&name)),
            "add a request of {method} to fuzz/corpus/params"
        );
    }
}
