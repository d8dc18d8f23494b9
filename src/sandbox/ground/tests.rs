use super::*;
use crate::policy::DenyGlob;
use std::fs;
use std::os::unix::fs::symlink;
use test_case::test_case;

/// A workspace `w` and a place `out` beside it.
struct Room {
    _dir: tempfile::TempDir,
    base: PathBuf,
}

impl Room {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("w")).unwrap();
        fs::create_dir_all(base.join("out")).unwrap();
        Self { _dir: dir, base }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.base.join(name)
    }

    /// The ground of rules on paths of the room.
    fn lay(&self, rules: &[(&str, Access)]) -> Ground {
        let rules = rules.iter().map(|(name, access)| (self.at(name), *access)).collect();
        Ground::lay(&FilePolicy::new(rules, Vec::new()))
    }

    fn globs(&self, rules: &[(&str, Access)], globs: &[&str]) -> Ground {
        let rules = rules.iter().map(|(name, access)| (self.at(name), *access)).collect();
        let cwd = self.at("w");
        let globs = globs.iter().map(|glob| DenyGlob::new(glob, Some(&cwd), None).unwrap()).collect();
        Ground::lay(&FilePolicy::new(rules, globs))
    }

    fn access(&self, ground: &Ground, name: &str) -> Access {
        ground.access(&self.at(name))
    }

    fn rule<'a>(&self, ground: &'a Ground, name: &str) -> Option<&'a Rule> {
        ground.rules().at(&self.at(name))
    }
}

const W: (&str, Access) = ("w", Access::Write);
const NAMES: [&str; 4] = [".git", ".codex", ".agents", ".aws"];

#[test]
fn the_metadata_of_writable_roots_is_protected_there_or_not() {
    let room = Room::new();
    fs::create_dir_all(room.at("w/.git/hooks")).unwrap();
    fs::create_dir_all(room.at("w/sub")).unwrap();
    fs::write(room.at("w/.aws"), "").unwrap();
    let ground = room.lay(&[W, ("w/sub", Access::Write), ("out", Access::Read)]);
    for name in NAMES {
        assert_eq!(room.access(&ground, &format!("w/{name}/x")), Access::Read, "{name}");
        assert_eq!(room.access(&ground, &format!("w/sub/{name}")), Access::Read, "{name}");
        assert_eq!(room.access(&ground, &format!("w/deep/{name}")), Access::Write, "{name}");
        assert_eq!(room.rule(&ground, &format!("out/{name}")), None);
    }
    let missing = Presence::Missing { first: room.at("w/.codex") };
    for (name, presence) in [(".git", Presence::Directory), (".aws", Presence::File), (".codex", missing)] {
        let rule = Rule { access: Access::Read, origin: Origin::Protected, presence };
        assert_eq!(room.rule(&ground, &format!("w/{name}")), Some(&rule));
    }
}

#[test]
fn roots_are_where_their_links_lead_and_missing_ones_are_left_out() {
    let room = Room::new();
    symlink(room.at("w"), room.at("link")).unwrap();
    symlink("loop", room.at("loop")).unwrap();
    let ground = room.lay(&[
        ("link", Access::Write),
        ("later", Access::Write),
        ("loop", Access::Write),
        ("out", Access::Read),
        ("out/gone", Access::Read),
    ]);
    assert_eq!(room.access(&ground, "w/x"), Access::Write);
    assert_eq!(room.access(&ground, "w/.git"), Access::Read);
    // The link is there, so that the root is reached by the name that the policy gives it.
    assert_eq!(room.rule(&ground, "link").unwrap().presence, Presence::Link);
    assert_eq!(room.access(&ground, "link"), Access::Read);
    for name in ["later", "loop"] {
        assert_eq!(room.access(&ground, name), Access::Hidden, "{name}");
    }
    let gone = room.rule(&ground, "out/gone").unwrap();
    assert_eq!(gone.presence, Presence::Missing { first: room.at("out/gone") });
}

#[test]
fn a_file_can_be_a_root() {
    let room = Room::new();
    fs::write(room.at("out/log"), "").unwrap();
    let ground = room.lay(&[("out/log", Access::Write)]);
    assert_eq!(
        (room.access(&ground, "out/log"), room.access(&ground, "out/x")),
        (Access::Write, Access::Hidden)
    );
    assert_eq!(ground.rules().len(), 1);
}

#[test_case("real", "w/real", true; "a directory inside")]
#[test_case("../out", "out", false; "a directory outside")]
#[test_case("gone", "w/gone", true; "dangling inside")]
#[test_case("second", "w/real", true; "two links")]
fn metadata_that_is_a_link_is_protected_with_what_it_names(target: &str, real: &str, inside: bool) {
    let room = Room::new();
    fs::create_dir(room.at("w/real")).unwrap();
    symlink("real", room.at("w/second")).unwrap();
    for name in NAMES {
        symlink(target, room.at("w").join(name)).unwrap();
    }
    let ground = room.lay(&[W]);
    for name in NAMES {
        let rule = room.rule(&ground, &format!("w/{name}")).unwrap();
        assert_eq!((rule.access, &rule.presence), (Access::Read, &Presence::Link));
    }
    assert_eq!(room.rule(&ground, real).map(|rule| rule.access), inside.then_some(Access::Read));
    assert_eq!(room.rule(&ground, "w/second").is_some(), target == "second");
    assert_eq!(room.access(&ground, "w/x"), Access::Write);
}

#[test]
fn links_that_lead_nowhere_or_to_the_root_itself_stop_nothing() {
    let room = Room::new();
    symlink(".git", room.at("w/.git")).unwrap();
    symlink(".", room.at("w/.codex")).unwrap();
    symlink("..", room.at("w/.agents")).unwrap();
    let ground = room.lay(&[W]);
    for name in NAMES {
        assert_eq!(room.access(&ground, &format!("w/{name}")), Access::Read, "{name}");
    }
    assert_eq!(room.access(&ground, "w/x"), Access::Write);
    assert_eq!(room.rule(&ground, ""), None);
}

#[test]
fn a_git_file_protects_the_directory_that_it_names() {
    let room = Room::new();
    fs::create_dir(room.at("w/real")).unwrap();
    fs::write(room.at("w/.git"), "gitdir: real\n").unwrap();
    assert_eq!(room.access(&room.lay(&[W]), "w/real/x"), Access::Read);
    fs::write(room.at("w/.git"), format!("gitdir: {}\n", room.at("out/main/.git/worktrees/w").display()))
        .unwrap();
    let ground = room.lay(&[W, ("out", Access::Write)]);
    assert_eq!(room.access(&ground, "out/main/.git/worktrees/w"), Access::Read);
    assert_eq!(room.access(&ground, "out/main/.git/config"), Access::Write);
    let granted = room.lay(&[W, ("out", Access::Write), ("out/main/.git", Access::Write)]);
    assert_eq!(room.access(&granted, "out/main/.git/worktrees/w/index"), Access::Write);
    assert_eq!(room.access(&granted, "out/main/.git/hooks/x"), Access::Read);
    assert_eq!(room.access(&granted, "out/main/.git/worktrees/w/hooks"), Access::Read);
    assert_eq!(room.access(&granted, "w/.git"), Access::Read);
}

#[test]
fn a_grant_of_git_reaches_all_of_it_but_the_hooks() {
    let room = Room::new();
    for exists in [false, true] {
        if exists {
            fs::create_dir_all(room.at("w/.git")).unwrap();
        }
        let ground = room.lay(&[W, ("w/.git", Access::Write)]);
        assert_eq!(room.access(&ground, "w/.git/index"), Access::Write);
        assert_eq!(room.access(&ground, "w/.git/hooks/pre-commit"), Access::Read);
        let named = room.lay(&[W, ("w/.git", Access::Write), ("w/.git/hooks", Access::Write)]);
        assert_eq!(room.access(&named, "w/.git/hooks/pre-commit"), Access::Write);
    }
}

#[test]
fn entries_have_the_last_word_about_metadata() {
    let room = Room::new();
    fs::create_dir_all(room.at("w/.codex/skills")).unwrap();
    fs::create_dir_all(room.at("w/.aws")).unwrap();
    let rules = [W, ("w/.codex/skills", Access::Write), ("w/.aws", Access::Deny), ("w/.git", Access::Read)];
    let ground = room.lay(&rules);
    assert_eq!(room.access(&ground, "w/.codex/x"), Access::Read);
    assert_eq!(room.access(&ground, "w/.codex/skills/x"), Access::Write);
    assert_eq!(room.access(&ground, "w/.aws/x"), Access::Deny);
    assert_eq!(room.rule(&ground, "w/.git").unwrap().origin, Origin::Entry);
}

#[test]
fn a_link_on_the_way_to_a_rule_cannot_be_changed() {
    let room = Room::new();
    fs::create_dir_all(room.at("w/a/real")).unwrap();
    symlink("a/real", room.at("w/link")).unwrap();
    let ground = room.lay(&[W, ("w/link/secret", Access::Deny)]);
    assert_eq!(room.access(&ground, "w/a/real/secret"), Access::Deny);
    let link = Rule { access: Access::Read, origin: Origin::Protected, presence: Presence::Link };
    assert_eq!(room.rule(&ground, "w/link"), Some(&link));
    let pinned = ground.pinned();
    assert_eq!(pinned, BTreeSet::from([room.at("w/a"), room.at("w/a/real")]));
}

#[test]
fn what_is_missing_is_held_where_it_begins() {
    let room = Room::new();
    fs::write(room.at("w/file"), "").unwrap();
    symlink("nowhere/../../out", room.at("w/up")).unwrap();
    let rules = [W, ("w/a/b/c", Access::Deny), ("w/file/x", Access::Deny), ("w/up/x", Access::Read)];
    let ground = room.lay(&rules);
    for (name, first) in [("w/a/b/c", "w/a"), ("w/file/x", "w/file"), ("w/nowhere", "w/nowhere")] {
        let presence = Presence::Missing { first: room.at(first) };
        assert_eq!(room.rule(&ground, name).unwrap().presence, presence, "{name}");
    }
    assert_eq!(room.rule(&ground, "out/x"), None);
}

#[test]
fn globs_are_matched_where_their_root_really_is() {
    let room = Room::new();
    symlink("w", room.at("link")).unwrap();
    let pattern = format!("{}/**/*.env", room.at("link").display());
    let ground = room.globs(&[W], &[&pattern]);
    for name in ["w/a/x.env", "link/a/x.env"] {
        assert!(ground.denied_by_glob(&room.at(name)), "{name}");
    }
}

#[test]
fn a_scan_finds_the_files_that_globs_name() {
    let room = Room::new();
    for directory in ["w/a/b", "w/dir.env", "w/shut", "w/.hid"] {
        fs::create_dir_all(room.at(directory)).unwrap();
    }
    for file in
        ["w/.env", "w/a/b/x.env", "w/a/ok", "w/shut/y.env", "w/.hid/z.env", "w/data", "out/far", "w/key.pem"]
    {
        fs::write(room.at(file), "").unwrap();
    }
    symlink("data", room.at("w/link.env")).unwrap();
    symlink("../out/far", room.at("w/far.env")).unwrap();
    symlink("a", room.at("w/to-a.env")).unwrap();
    symlink("nowhere", room.at("w/lost.env")).unwrap();
    let ground = room.globs(&[W, ("w/shut", Access::Deny)], &["**/*.env", "*.pem", "a/*.pem"]);
    let found = denied_files(&ground).unwrap();
    let names = ["out/far", "w/.env", "w/.hid/z.env", "w/a/b/x.env", "w/data", "w/key.pem"];
    assert_eq!(found, names.map(|name| room.at(name)).into());
}

#[test]
fn a_scan_that_finds_too_much_is_refused() {
    let room = Room::new();
    for index in 0..8193 {
        fs::write(room.at(&format!("w/{index}.env")), "").unwrap();
    }
    let error = denied_files(&room.globs(&[W], &["*.env"])).unwrap_err();
    assert!(matches!(&error, ScanError::TooMuch { pattern, .. } if pattern == "*.env"), "{error}");
    assert!(denied_files(&room.globs(&[W], &["1*.env"])).is_ok());
}
