use std::fs;
use std::os::unix::fs::symlink;

use pretty_assertions::assert_eq;

use super::*;
use crate::policy::PathTree;
use crate::sandbox::plan::RawPath;

/// A directory with `w/ro/deep`, `w/den/open`, `w/key`, `out/f` and the link `l` to `w`.
struct Place {
    _dir: tempfile::TempDir,
    base: PathBuf,
    placeholders: Placeholders,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        for directory in ["w/ro/deep", "w/den/open", "out"] {
            fs::create_dir_all(base.join(directory)).unwrap();
        }
        for file in ["w/key", "out/f"] {
            fs::write(base.join(file), "").unwrap();
        }
        symlink("w", base.join("l")).unwrap();
        Self { _dir: dir, base, placeholders: Placeholders::new(None) }
    }

    fn at(&self, name: &str) -> PathBuf {
        if name.starts_with('/') { name.into() } else { self.base.join(name) }
    }

    fn policy(&self, rules: &[(&str, Access)]) -> FilePolicy {
        let rules = rules.iter().map(|(name, access)| (self.at(name), *access));
        FilePolicy::new(rules.collect::<PathTree<_>>(), Vec::new())
    }

    fn compose(&self, rules: &[(&str, Access)]) -> (View, Lease) {
        let policy = self.policy(rules);
        compose(&Ground::lay(&policy), &policy, &self.placeholders, None, Vec::new()).unwrap()
    }

    /// The layers below the place, by name.
    fn layers(&self, view: &View) -> Vec<(String, Content)> {
        let name = |layer: &Layer| {
            let below = layer.path.as_path().strip_prefix(&self.base).ok()?;
            Some((below.to_str()?.to_owned(), layer.content.clone()))
        };
        view.layers.iter().filter_map(name).collect()
    }
}

fn blank() -> Content {
    Content::Directory { mode: BLANK, skeleton: Skeleton::default() }
}

fn metadata(root: &str) -> Vec<(String, Content)> {
    [".agents", ".aws", ".codex", ".git"].map(|name| (format!("{root}/{name}"), blank())).to_vec()
}

fn named(layers: &[(&str, Content)]) -> Vec<(String, Content)> {
    layers.iter().map(|(name, content)| ((*name).to_owned(), content.clone())).collect()
}

#[test]
fn a_read_only_disk_needs_no_layers() {
    let (view, _lease) = Place::new().compose(&[("/", Access::Read)]);
    assert!(matches!(view.base, Base::Host { writable: false }) && view.layers.is_empty());
}

#[test]
fn a_workspace_is_laid_on_with_its_protection() {
    let place = Place::new();
    let (view, _lease) = place.compose(&[("/", Access::Read), ("w", Access::Write)]);
    let mut expected = named(&[("w", Content::Host { writable: true })]);
    expected.extend(metadata("w"));
    assert_eq!(place.layers(&view), expected);
    assert_eq!(fs::read_dir(place.at("w")).unwrap().count(), 3 + 4, "placeholders are there");
}

#[test]
fn narrower_rules_lie_on_wider_ones() {
    let place = Place::new();
    let (view, _lease) = place.compose(&[
        ("/", Access::Read),
        ("w", Access::Write),
        ("w/ro", Access::Read),
        ("w/ro/deep", Access::Write),
        ("w/den", Access::Deny),
        ("w/den/open", Access::Write),
        ("w/key", Access::Deny),
    ]);
    let layers: Vec<_> = place.layers(&view).into_iter().filter(|(name, _)| !name.contains("/.")).collect();
    let open = Skeleton { directories: vec![RawPath::from(Path::new("open"))], ..Skeleton::default() };
    let expected = named(&[
        ("w", Content::Host { writable: true }),
        ("w/den", Content::Directory { mode: PASSABLE, skeleton: open }),
        ("w/den/open", Content::Host { writable: true }),
        ("w/key", Content::File { mode: CLOSED }),
        ("w/ro", Content::Fixed),
        ("w/ro/deep", Content::Host { writable: true }),
    ]);
    assert_eq!(layers, expected);
}

#[test]
fn what_leads_to_something_protected_cannot_be_moved() {
    let place = Place::new();
    let (view, _lease) =
        place.compose(&[("/", Access::Read), ("w", Access::Write), ("w/ro/deep", Access::Read)]);
    assert!(place.layers(&view).contains(&("w/ro".to_owned(), Content::Held)));
}

#[test]
fn an_empty_root_has_places_for_its_layers_and_links_that_lead_to_them() {
    let place = Place::new();
    let (view, _lease) = place.compose(&[("l", Access::Read), ("out/f", Access::Read)]);
    let Base::Empty(skeleton) = &view.base else { panic!("{view:?}") };
    let inside = |name: &str| RawPath::from(place.at(name).strip_prefix("/").unwrap());
    assert!(skeleton.directories.contains(&inside("w")) && skeleton.files.contains(&inside("out/f")));
    assert_eq!(skeleton.links, [(inside("l"), RawPath::from(Path::new("w")))]);
    let read = Content::Host { writable: false };
    assert_eq!(place.layers(&view), named(&[("out/f", read.clone()), ("w", read)]));
}

#[test]
fn a_missing_path_that_is_denied_cannot_come_into_being() {
    let place = Place::new();
    let (view, _lease) =
        place.compose(&[("/", Access::Read), ("w", Access::Write), ("w/no/such", Access::Deny)]);
    assert!(place.layers(&view).contains(&("w/no".to_owned(), blank())));
    assert!(place.at("w/no").is_dir());
}

#[test]
fn devices_and_processes_are_the_views_own() {
    let place = Place::new();
    let (view, _lease) = place.compose(&[
        ("/", Access::Read),
        ("/dev", Access::Write),
        ("/dev/null", Access::Deny),
        ("/proc/sys", Access::Write),
    ]);
    assert_eq!(view.layers, []);
    let (view, _lease) = place.compose(&[("/", Access::Read), ("/proc", Access::Deny)]);
    assert_eq!(view.layers.len(), 1);
}

#[test]
fn a_hidden_directory_to_run_in_is_empty() {
    let place = Place::new();
    let policy = place.policy(&[("out", Access::Read)]);
    let (view, _lease) =
        compose(&Ground::lay(&policy), &policy, &place.placeholders, Some(&place.at("w")), Vec::new())
            .unwrap();
    let Base::Empty(skeleton) = &view.base else { panic!("{view:?}") };
    assert!(skeleton.directories.contains(&RawPath::from(place.at("w").strip_prefix("/").unwrap())));
    assert!(!view.layers.iter().any(|layer| layer.path.as_path() == place.at("w")));
}
