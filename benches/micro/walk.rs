//! Listing a tree, as it is and under a policy.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use exec_server::benchmarking::Confined;
use exec_server::fsops::{WalkLimits, WalkOutcome, walk};

use crate::support::{tree, workspace};

/// Directories of ten files each.
const DIRECTORIES: [usize; 2] = [10, 100];
const LIMITS: WalkLimits = WalkLimits {
    max_depth: 64,
    max_directories: 10_000,
    max_entries: 50_000,
    follow_directory_symlinks: false,
    prune_hidden_directories: false,
};

fn complete(outcome: WalkOutcome, directories: usize) -> WalkOutcome {
    assert_eq!(outcome.found.len(), directories * 11);
    outcome
}

#[divan::bench(args = DIRECTORIES)]
fn plain(bencher: Bencher, directories: usize) {
    let (_place, root) = tree(directories);
    bencher
        .counter(ItemsCount::new(directories * 11))
        .bench(|| complete(walk(black_box(&root), &LIMITS).unwrap(), directories));
}

#[divan::bench(args = DIRECTORIES)]
fn confined(bencher: Bencher, directories: usize) {
    let (_place, root) = tree(directories);
    let scope = Confined::reading(&workspace(&root)).unwrap();
    bencher
        .counter(ItemsCount::new(directories * 11))
        .bench(|| complete(walk(scope.route(black_box(&root)), &LIMITS).unwrap(), directories));
}
