//! From a sandbox context to rules, and what the rules say of a path.

use std::path::{Path, PathBuf};

use divan::{Bencher, black_box};
use exec_server::policy::{Access, DenyGlob, FilePolicy, Policy, Surroundings};

use crate::support::workspace;

/// Numbers of rules.
const RULES: [usize; 3] = [1, 16, 256];

#[divan::bench]
fn of_context(bencher: Bencher) {
    let context = workspace(Path::new("/srv/project"));
    bencher.bench(|| Policy::of(black_box(&context), &Surroundings::default()));
}

#[divan::bench(args = RULES)]
fn access(bencher: Bencher, rules: usize) {
    let rule = |number| (PathBuf::from(format!("/srv/project/directory-{number}")), Access::Write);
    let policy = FilePolicy::new((0..rules).map(rule).collect(), Vec::new());
    let path = Path::new("/srv/project/directory-0/src/deeply/nested/module/file.rs");
    bencher.bench(|| policy.access(black_box(path)));
}

#[divan::bench(args = RULES)]
fn denied_by_glob(bencher: Bencher, globs: usize) {
    let glob = |number| DenyGlob::new(&format!("/srv/project/**/secret-{number}.*"), None, None).unwrap();
    let policy = FilePolicy::new(Default::default(), (0..globs).map(glob).collect());
    let path = Path::new("/srv/project/src/deeply/nested/module/file.rs");
    bencher.bench(|| policy.denied_by_glob(black_box(path)));
}
