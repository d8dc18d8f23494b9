//! From a path to what it names: by the kernel, without links, and step by step under a policy.

use std::path::{Path, PathBuf};

use divan::{Bencher, black_box};
use exec_server::benchmarking::Confined;
use exec_server::fsops::{Links, metadata};
use tempfile::TempDir;

use crate::support::workspace;

/// Directories above the file.
const DEPTHS: [usize; 3] = [1, 4, 16];

fn file_below(depth: usize) -> (TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().canonicalize().unwrap();
    let directory = (0..depth).fold(root, |above, _| above.join("directory"));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("file");
    std::fs::write(&file, "").unwrap();
    (place, file)
}

#[divan::bench(args = DEPTHS)]
fn followed(bencher: Bencher, depth: usize) {
    let (_place, file) = file_below(depth);
    bencher.bench(|| metadata(black_box(&file), Links::Follow).unwrap());
}

#[divan::bench(args = DEPTHS)]
fn without_links(bencher: Bencher, depth: usize) {
    let (_place, file) = file_below(depth);
    bencher.bench(|| metadata(black_box(&file), Links::Refuse).unwrap());
}

#[divan::bench(args = DEPTHS)]
fn confined(bencher: Bencher, depth: usize) {
    let (place, file) = file_below(depth);
    let scope = Confined::reading(&workspace(place.path())).unwrap();
    bencher.bench(|| metadata(scope.route(black_box(&file)), Links::Follow).unwrap());
}

/// What every confined call begins with.
#[divan::bench]
fn confinement(bencher: Bencher) {
    let context = workspace(Path::new("/tmp"));
    bencher.bench(|| Confined::reading(black_box(&context)).unwrap());
}
