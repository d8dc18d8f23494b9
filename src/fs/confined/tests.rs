//! What calls do is what the policy says about real paths: random trees with links, random rules, one definition.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use proptest::prelude::*;

use super::view::View;
use crate::fsops::{self, Atomic, Links, Route};
use crate::policy::{Access, DenyGlob, FilePolicy, PathTree};
use crate::sandbox::ground::Ground;

/// A tree below a directory of its own: each path is a directory, a file that holds its own name, or a link.
#[derive(Debug, Clone)]
struct Case {
    links: Vec<(PathBuf, PathBuf)>,
    rules: Vec<(PathBuf, Access)>,
    glob: Option<&'static str>,
    asked: Vec<PathBuf>,
}

const DIRECTORIES: [&str; 6] = ["a", "b", "a/a", "a/b", "b/a", "a/a/b"];
const FILES: [&str; 2] = ["f", "g.env"];

fn names(most: usize) -> impl Strategy<Value = PathBuf> {
    let name = prop::sample::select(vec!["a", "b", "f", "g.env", "l", "m", ".."]);
    prop::collection::vec(name, 1..=most).prop_map(|names| names.iter().collect())
}

fn cases() -> impl Strategy<Value = Case> {
    let place = (prop::sample::select(DIRECTORIES.to_vec()), prop::sample::select(vec!["l", "m"]))
        .prop_map(|(directory, name)| Path::new(directory).join(name));
    let access = prop::sample::select(vec![Access::Deny, Access::Read, Access::Write]);
    let ruled =
        prop::sample::select([&DIRECTORIES[..], &["a/f", "a/b/f", ""]].concat()).prop_map(PathBuf::from);
    (
        prop::collection::vec((place, names(3)), 0..6),
        prop::collection::vec((ruled, access), 1..6),
        prop::sample::select(vec![None, Some("**/*.env"), Some("a/*"), Some("a/*/f")]),
        prop::collection::vec(names(4), 8),
    )
        .prop_map(|(links, rules, glob, asked)| Case { links, rules, glob, asked })
}

/// A case laid out on disk.
struct Laid {
    _dir: tempfile::TempDir,
    base: PathBuf,
    policy: FilePolicy,
    view: View,
}

fn lay(case: &Case) -> Laid {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().canonicalize().unwrap();
    for directory in DIRECTORIES {
        fs::create_dir_all(base.join(directory)).unwrap();
    }
    for directory in DIRECTORIES.iter().chain(&[""]) {
        for file in FILES {
            let path = base.join(directory).join(file);
            fs::write(&path, path.display().to_string()).unwrap();
        }
    }
    for (place, target) in &case.links {
        symlink(target, base.join(place)).ok();
    }
    let mut rules = PathTree::default();
    for (path, access) in &case.rules {
        let path = if path.as_os_str().is_empty() { base.clone() } else { base.join(path) };
        rules.entry(path).and_modify(|old: &mut Access| *old = old.or_stronger(*access)).or_insert(*access);
    }
    let globs = case.glob.iter().map(|glob| DenyGlob::new(glob, Some(&base), None).unwrap()).collect();
    let policy = FilePolicy::new(rules, globs);
    let view = View::of(&Ground::lay(&policy), None);
    Laid { _dir: dir, base, policy, view }
}

impl Laid {
    fn leads_on(&self, path: &Path) -> bool {
        self.policy.rules().below(path).any(|(_, access)| access.reads())
    }

    /// The real path of what a path leads to, if the policy lets it be followed so far: by the definition, without
    /// descriptors. The second is the other names by which it was reached.
    fn follow(&self, path: &Path) -> Option<(PathBuf, Vec<PathBuf>)> {
        let mut pending: Vec<OsString> = parts(path);
        let (mut real, mut spelled) = (PathBuf::from("/"), vec![path.to_owned()]);
        let mut links = 0;
        while let Some(name) = pending.pop() {
            if name == ".." {
                real.pop();
            } else {
                real.push(&name);
            }
            let access = self.policy.access(&real);
            let is_last = pending.is_empty();
            let is_ruled = self.policy.rules().at(&real).is_some();
            if !(access.reads() || self.leads_on(&real) || is_last && access == Access::Deny && is_ruled) {
                return None;
            }
            let metadata = real.symlink_metadata().ok()?;
            if metadata.is_symlink() {
                links += 1;
                let target = fs::read_link(&real).unwrap();
                real.pop();
                if is_last {
                    spelled.push(join(&real, &target));
                }
                pending.extend(parts(&target));
                if links > 40 {
                    return None;
                }
            } else if !is_last && !metadata.is_dir() {
                return None;
            }
        }
        Some((real, spelled))
    }

    fn denied_by_name(&self, real: &Path, spelled: &[PathBuf]) -> bool {
        self.policy.denied_by_glob(real) || spelled.iter().any(|name| self.policy.denied_by_glob(name))
    }

    /// Whether a file of this content is somewhere in a tree, under a name that is denied.
    fn denied_elsewhere(&self, tree: &Path, content: &[u8]) -> bool {
        fs::read_dir(tree).unwrap().any(|entry| {
            let path = entry.unwrap().path();
            match path.symlink_metadata().unwrap().file_type() {
                kind if kind.is_dir() => self.denied_elsewhere(&path, content),
                kind if kind.is_file() => {
                    self.policy.denied_by_glob(&path) && fs::read(&path).unwrap() == content
                }
                _ => false,
            }
        })
    }

    fn picture(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let all = DIRECTORIES.iter().chain(&[""]);
        let all = all.flat_map(|directory| FILES.map(|file| self.base.join(directory).join(file)));
        all.map(|path| (path.clone(), fs::read(path).unwrap_or_default())).collect()
    }
}

fn parts(path: &Path) -> Vec<OsString> {
    let mut parts: Vec<_> = path
        .components()
        .filter(|part| !matches!(part, Component::RootDir))
        .map(|part| part.as_os_str().to_owned())
        .collect();
    parts.reverse();
    parts
}

fn join(directory: &Path, below: &Path) -> PathBuf {
    parts(below).iter().rev().fold(directory.to_owned(), |mut path, part| {
        if part == ".." {
            path.pop();
        } else {
            path.push(part);
        }
        path
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn what_is_read_is_what_the_policy_lets_be_read(case in cases()) {
        let laid = lay(&case);
        for asked in &case.asked {
            let path = join(&laid.base, asked);
            let route = Route::guarded(&path, &laid.view);
            let read = fsops::read_file(route, Links::Follow, 1 << 20);
            let expected = laid.follow(&path).filter(|(real, spelled)| {
                laid.policy.access(real).reads() && real.is_file() && !laid.denied_by_name(real, spelled)
            });
            match (&read, &expected) {
                (Ok(content), Some((real, _))) => {
                    prop_assert_eq!(content, &real.display().to_string().into_bytes());
                }
                (Err(_), None) => {}
                _ => prop_assert!(false, "{}: {read:?}, expected {expected:?}", asked.display()),
            }
        }
    }

    #[test]
    fn what_is_changed_is_what_the_policy_lets_be_changed(case in cases(), atomic in any::<bool>()) {
        let laid = lay(&case);
        for asked in &case.asked {
            let path = join(&laid.base, asked);
            let expected = laid.follow(&path).filter(|(real, spelled)| {
                laid.policy.access(real) == Access::Write && real.is_file() && !laid.denied_by_name(real, spelled)
            });
            let exists = path.exists();
            let before = laid.picture();
            let route = Route::guarded(&path, &laid.view);
            let atomic = if atomic { Atomic::Prefer } else { Atomic::Never };
            let written = fsops::write_file(route, b"new", atomic, Links::Follow);
            if exists {
                prop_assert_eq!(written.is_ok(), expected.is_some(), "{}: {:?}", asked.display(), written);
            }
            for ((path, old), (_, new)) in before.iter().zip(laid.picture()) {
                let may_change = expected.as_ref().is_some_and(|(real, _)| real == path);
                prop_assert!(may_change || *old == new, "{} changed {}", asked.display(), path.display());
            }
        }
    }

    #[test]
    fn trees_lose_only_what_may_be_taken(case in cases()) {
        let laid = lay(&case);
        let before = laid.picture();
        for asked in &case.asked {
            let path = join(&laid.base, asked);
            let options = fsops::RemoveOptions { recursive: true, force: true, links: Links::Follow };
            let _ = fsops::remove(Route::guarded(&path, &laid.view), options);
            let aside = laid.base.join("b/aside");
            let _ = fsops::rename(Route::guarded(&path, &laid.view), Route::guarded(&aside, &laid.view), true);
        }
        for (path, old) in before {
            let may_go = laid.policy.access(&path) == Access::Write && !laid.policy.denied_by_glob(&path);
            let is_there = fs::read(&path).ok().as_ref() == Some(&old);
            // A directory may move with what is denied in it, as long as that stays denied.
            let is_kept = is_there || laid.denied_elsewhere(&laid.base, &old);
            prop_assert!(may_go || is_kept, "{} is gone", path.display());
        }
    }
}

mod spellings {
    use super::*;
    use crate::fsops::{Guard, Want};
    use rustix::fs::FileType;
    use rustix::io::Errno;

    fn view(base: &Path, rules: &[(&str, Access)]) -> View {
        let rules = rules.iter().map(|(name, access)| (base.join(name), *access)).collect();
        View::of(&Ground::lay(&FilePolicy::new(rules, Vec::new())), None)
    }

    /// Where case does not count, two spellings have one inode; hard links have that too.
    #[test]
    fn another_spelling_of_a_ruled_path_is_that_path() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        fs::create_dir(base.join("w")).unwrap();
        for name in ["w/secret", "w/OTHER"] {
            fs::write(base.join(name), name).unwrap();
        }
        fs::hard_link(base.join("w/secret"), base.join("w/SECRET")).unwrap();
        let view =
            view(&base, &[("w", Access::Write), ("w/secret", Access::Deny), ("w/other", Access::Deny)]);
        let wants = |name: &str, want| view.permits(&base.join(name), Some(FileType::RegularFile), want);
        assert_eq!(wants("w/SECRET", Want::Read), Err(Errno::ACCESS));
        assert_eq!(wants("w/Secret/below", Want::Write), Ok(()));
        assert_eq!(wants("w/SECRET", Want::Displace), Err(Errno::BUSY));
        // `other` is missing, and would come to be by this name.
        assert_eq!(wants("w/OTHER", Want::Read), Err(Errno::ACCESS));
        for name in ["w/.GIT", "w/.Git/hooks"] {
            assert_eq!(wants(name, Want::Write), Err(Errno::ROFS), "{name}");
        }
    }

    #[test]
    fn names_that_differ_in_case_are_two_where_it_counts() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        fs::create_dir(base.join("w")).unwrap();
        for name in ["w/secret", "w/Secret"] {
            fs::write(base.join(name), name).unwrap();
        }
        let view = view(&base, &[("w", Access::Write), ("w/secret", Access::Deny)]);
        let file = Some(FileType::RegularFile);
        assert_eq!(view.permits(&base.join("w/Secret"), file, Want::Write), Ok(()));
        assert_eq!(view.permits(&base.join("w/Secret"), file, Want::Displace), Ok(()));
        assert_eq!(view.permits(&base.join("w/secret"), file, Want::Write), Err(Errno::ACCESS));
    }
}
