use std::num::NonZeroU64;

use super::*;
use crate::path_uri::PathUri;
use proptest::prelude::*;
use serde_json::{Value, json};
use test_case::test_case;

fn context(entries: &Value) -> Value {
    json!({
        "permissions": {
            "type": "managed",
            "file_system": {"type": "restricted", "entries": entries},
            "network": "restricted"
        },
        "policyContext": {"cwd": "file:///w", "workspaceRoots": ["file:///w", "file:///v"]},
        "windowsSandboxLevel": "disabled"
    })
}

fn at(path: &str, access: &str) -> Value {
    json!({"path": {"type": "path", "path": format!("file://{path}")}, "access": access})
}

fn special(value: &Value, access: &str) -> Value {
    json!({"path": {"type": "special", "value": value}, "access": access})
}

fn glob(pattern: &str) -> Value {
    json!({"path": {"type": "glob_pattern", "pattern": pattern}, "access": "deny"})
}

fn compile(context: Value) -> Result<Policy, PolicyError> {
    Policy::of(&serde_json::from_value(context).unwrap(), &Surroundings::default())
}

fn limited(entries: &Value) -> FilePolicy {
    match compile(context(entries)).unwrap().files {
        Files::Limited(policy) => policy,
        Files::Unlimited => panic!("no limits: {entries}"),
    }
}

fn access(policy: &FilePolicy, path: &str) -> Access {
    policy.access(Path::new(path))
}

#[test]
fn the_deeper_path_wins_and_at_one_depth_deny_before_write_before_read() {
    let policy = limited(&json!([
        at("/w", "write"),
        at("/w/a", "deny"),
        at("/w/a/b", "write"),
        at("/same", "read"),
        at("/same", "write"),
        at("/shut", "none"),
        at("/shut", "write")
    ]));
    for (path, expected) in [
        ("/w/x", Access::Write),
        ("/w/a", Access::Deny),
        ("/w/a/x", Access::Deny),
        ("/w/a/b", Access::Write),
        ("/w/a/b/c", Access::Write),
        ("/w/ab", Access::Write),
        ("/wide", Access::Hidden),
        ("/", Access::Hidden),
        ("/same", Access::Write),
        ("/shut/x", Access::Deny),
    ] {
        assert_eq!(access(&policy, path), expected, "{path}");
    }
}

#[test]
fn special_places() {
    let temporary = Surroundings { temporary_directory: Some(Path::new("/scratch")), cwd: None };
    let entries = json!([
        special(&json!({"kind": "minimal"}), "write"),
        special(&json!({"kind": "current_working_directory", "subpath": "./sub"}), "write"),
        special(&json!({"kind": "slash_tmp", "subpath": "ignored"}), "write"),
        special(&json!({"kind": "tmpdir"}), "write"),
        special(&json!({"kind": "unknown", "path": ":later"}), "write")
    ]);
    let decoded = serde_json::from_value(context(&entries)).unwrap();
    let Files::Limited(policy) = Policy::of(&decoded, &temporary).unwrap().files else { panic!("no limits") };
    for (path, expected) in [
        ("/usr/bin", Access::Read),
        ("/etc/passwd", Access::Read),
        ("/w/sub/x", Access::Write),
        ("/v/sub", Access::Write),
        ("/w/x", Access::Hidden),
        ("/tmp/x", Access::Write),
        ("/scratch/x", Access::Write),
        ("/home", Access::Hidden),
    ] {
        assert_eq!(access(&policy, path), expected, "{path}");
    }
}

#[test_case("../out", "write", Access::Read; "up grants nothing")]
#[test_case("/out", "write", Access::Read; "absolute grants nothing")]
#[test_case(".", "write", Access::Read; "dot grants nothing")]
#[test_case("a/../b", "read", Access::Deny; "up to read hides the root")]
#[test_case("/etc", "deny", Access::Deny; "absolute to deny hides the root")]
#[test_case("", "read", Access::Deny; "empty to read hides the root")]
fn a_subpath_that_cannot_be_told(subpath: &str, wanted: &str, of_root: Access) {
    let root = special(&json!({"kind": "root"}), "read");
    let part = special(&json!({"kind": "project_roots", "subpath": subpath}), wanted);
    let policy = limited(&json!([root, part]));
    assert_eq!((access(&policy, "/w/b"), access(&policy, "/out")), (of_root, Access::Read));
}

#[test]
fn roots_are_never_invented() {
    let entry = json!([special(&json!({"kind": "project_roots"}), "write")]);
    let mut without = context(&entry);
    without["policyContext"].as_object_mut().unwrap().remove("workspaceRoots");
    let mut flat = context(&entry);
    flat.as_object_mut().unwrap().remove("policyContext");
    flat["cwd"] = json!("file:///w");
    for context in [without, flat] {
        let Files::Limited(policy) = compile(context).unwrap().files else { panic!("no limits") };
        assert!(policy.rules().is_empty());
    }
}

#[test]
fn the_newer_form_wins_over_the_flat_members_completely() {
    let mut both = context(&json!([special(&json!({"kind": "project_roots"}), "write")]));
    both["cwd"] = json!("file://host/foreign");
    both["workspaceRoots"] = json!(["file:///flat"]);
    let Files::Limited(policy) = compile(both.clone()).unwrap().files else { panic!("no limits") };
    assert_eq!((access(&policy, "/flat"), access(&policy, "/v")), (Access::Hidden, Access::Write));
    both["policyContext"] = json!(null);
    assert!(matches!(compile(both), Err(PolicyError::Foreign { member, .. }) if member == "cwd"));
}

#[test]
fn what_is_relative_needs_a_base() {
    for entry in [special(&json!({"kind": "project_roots"}), "read"), glob("**/*.env"), {
        json!({"path": {"type": "glob_pattern", "pattern": "*.x"}, "access": "read"})
    }] {
        let mut context = context(&json!([entry]));
        context["policyContext"]["cwd"] = json!(null);
        let decoded = serde_json::from_value(context).unwrap();
        let error = Policy::of(&decoded, &Surroundings::default()).unwrap_err();
        assert!(error.to_string().contains("requires cwd"), "{error}");
        let own = Surroundings { cwd: Some(Path::new("/p")), temporary_directory: None };
        Policy::of(&decoded, &own).unwrap();
    }
}

#[test]
fn what_is_granted_whole_is_not_limited() {
    let root = special(&json!({"kind": "root"}), "write");
    for (entries, is_limited) in [
        (json!([root]), false),
        (json!([root, at("/w", "write")]), false),
        (json!([root, special(&json!({"kind": "root"}), "read")]), false),
        (json!([root, at("/w", "read")]), true),
        (json!([root, at("/w", "deny")]), true),
        (json!([root, glob("/w/*.key")]), true),
        (json!([special(&json!({"kind": "root"}), "read")]), true),
        (json!([]), true),
    ] {
        let files = compile(context(&entries)).unwrap().files;
        assert_eq!(matches!(files, Files::Limited(_)), is_limited, "{entries}");
    }
    for permissions in [
        json!({"type": "disabled"}),
        json!({"type": "external", "network": "restricted"}),
        json!({"type": "managed", "file_system": {"type": "unrestricted"}, "network": "restricted"}),
    ] {
        let whole = json!({"permissions": permissions, "windowsSandboxLevel": "disabled"});
        assert!(matches!(compile(whole).unwrap().files, Files::Unlimited));
    }
}

#[test]
fn what_can_never_be_enforced_is_refused() {
    let mut mxc = context(&json!([]));
    mxc["windowsSandboxLevel"] = json!("mxc");
    assert_eq!(compile(mxc).unwrap_err(), PolicyError::Mxc);
    let foreign = compile(context(&json!([at("/w", "read"), at("host/x", "read")])));
    assert!(matches!(foreign, Err(PolicyError::Foreign { member, .. }) if member == "entries[1].path"));
    let many: Vec<Value> =
        (0..=MAX_RULES / 2).map(|_| special(&json!({"kind": "project_roots"}), "read")).collect();
    assert!(matches!(compile(context(&json!(many))), Err(PolicyError::TooLarge { .. })));
    let many: Vec<Value> = (0..=MAX_GLOBS).map(|_| glob("/w/*.key")).collect();
    assert!(matches!(compile(context(&json!(many))), Err(PolicyError::TooLarge { .. })));
}

#[test_case(""; "empty")]
#[test_case("/**/*.env"; "the whole file system")]
#[test_case("/*.env"; "the top of the file system")]
#[test_case("/secret"; "a name at the top")]
#[test_case("{a"; "an open brace")]
#[test_case("[a"; "an open bracket")]
#[test_case("a/*/../b"; "up behind a match")]
#[test_case("a\0b"; "nul")]
fn a_glob_that_would_protect_nothing_is_refused(pattern: &str) {
    let refused = compile(context(&json!([glob(pattern)])));
    assert!(matches!(refused, Err(PolicyError::Glob { .. })), "{refused:?}");
}

#[test_case("**/*.env", "/w/.env /w/a/b/x.env /w/.hid/y.env", "/w/x.ENV /w/env /v/x.env /w/x.env/below")]
#[test_case("*.env", "/w/x.env", "/w/a/x.env")]
#[test_case("/w/**/*.{pem,key}", "/w/a.pem /w/a/b.key", "/w/a.pemx")]
#[test_case("a/[b-d]?", "/w/a/cx", "/w/a/ax /w/a/c /w/a/cxx")]
#[test_case("./a//b/*", "/w/a/b/x", "/w/a/x")]
#[test_case("../v/*", "/v/x", "/w/x")]
#[test_case("secret", "/w/secret", "/w/a/secret /w/secret/x")]
#[test_case(r"a\*b*", "/w/a*bc", "/w/axbc")]
#[test_case("a*b", "/w/axb", "/w/a/b")]
#[test_case("/w/s/**", "/w/s/x /w/s/x/y", "/w/s /w/t")]
fn globs_name_files(pattern: &str, named: &str, other: &str) {
    let policy = limited(&json!([glob(pattern)]));
    for (paths, expected) in [(named, true), (other, false)] {
        for path in paths.split(' ') {
            assert_eq!(policy.denied_by_glob(Path::new(path)), expected, "{pattern} {path}");
        }
    }
}

#[test]
fn the_depth_bounds_what_a_glob_names() {
    let depth = NonZeroU64::new(2);
    let glob = DenyGlob::new("**/*.env", Some(Path::new("/w")), depth).unwrap();
    for (path, expected) in [("/w/x.env", true), ("/w/a/x.env", true), ("/w/a/b/x.env", false)] {
        assert_eq!(glob.matches(Path::new(path)), expected, "{path}");
    }
    assert_eq!(glob.depth(), 2);
    let flat = DenyGlob::new("a/*/x", Some(Path::new("/w")), None).unwrap();
    assert_eq!((flat.depth(), flat.root()), (2, Path::new("/w/a")));
}

#[test]
fn names_that_are_no_text_match_too() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let policy = limited(&json!([glob("**/*.env")]));
    assert!(policy.denied_by_glob(Path::new(OsStr::from_bytes(b"/w/\xff\xfe.env"))));
}

#[test]
fn a_context_may_be_an_array_of_its_members() {
    let named = context(&json!([at("/x", "read")]));
    let members = [
        "permissions",
        "sandboxOverride",
        "cwd",
        "policyContext",
        "workspaceRoots",
        "userHomeDir",
        "temporaryDirectories",
        "windowsSandboxLevel",
        "windowsSandboxProxySettingsMode",
        "useLegacyLandlock",
    ];
    let absent = |member: &str| match member {
        "sandboxOverride" => json!("noOverride"),
        "workspaceRoots" => json!([]),
        "useLegacyLandlock" => json!(false),
        _ => json!(null),
    };
    let array: Vec<Value> =
        members.iter().map(|member| named.get(member).cloned().unwrap_or_else(|| absent(member))).collect();
    let by_place: SandboxContext = serde_json::from_value(json!(array)).unwrap();
    assert_eq!(by_place, serde_json::from_value(named).unwrap());
}

#[test]
fn a_context_that_a_client_makes_is_read_as_it_is_meant() {
    let cwd = PathUri::parse("file:///w").unwrap();
    let mut context = SandboxContext::from_permission_profile(PermissionProfile::workspace_write(), cwd);
    let sent = |context: &SandboxContext, path: &str| {
        let Files::Limited(policy) = compile(json!(context)).unwrap().files else { panic!("no limits") };
        access(&policy, path)
    };
    for (path, expected) in [("/w/x", Access::Write), ("/tmp/x", Access::Write), ("/x", Access::Read)] {
        assert_eq!(sent(&context, path), expected, "{path}");
    }
    context.workspace_roots.clear();
    assert_eq!(sent(&context, "/w/x"), Access::Read);
}

/// Paths of one to four names out of few, so that many are above or below each other.
fn paths() -> impl Strategy<Value = PathBuf> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "ab"]), 0..4)
        .prop_map(|names| names.iter().fold(PathBuf::from("/"), |path, name| path.join(name)))
}

fn rule_sets() -> impl Strategy<Value = Vec<(PathBuf, Access)>> {
    let access = prop::sample::select(vec![Access::Deny, Access::Read, Access::Write]);
    prop::collection::vec((paths(), access), 0..8)
}

fn policy(rules: &[(PathBuf, Access)]) -> FilePolicy {
    let entries: Vec<Value> = rules
        .iter()
        .map(|(path, access)| at(path.to_str().unwrap(), &format!("{access:?}").to_lowercase()))
        // A glob that names nothing here keeps a policy that grants everything from being no policy.
        .chain([glob("/none/*")])
        .collect();
    limited(&json!(entries))
}

/// By the definition.
fn expected(rules: &[(PathBuf, Access)], path: &Path) -> Access {
    let rank = |access: &Access| {
        [Access::Hidden, Access::Read, Access::Write, Access::Deny].iter().position(|a| a == access)
    };
    let covering = rules.iter().filter(|(above, _)| path.starts_with(above));
    let decides = covering.max_by_key(|(above, access)| (above.components().count(), rank(access)));
    decides.map_or(Access::Hidden, |(_, access)| *access)
}

proptest! {
    #[test]
    fn rules_decide_as_defined(rules in rule_sets(), path in paths()) {
        prop_assert_eq!(policy(&rules).access(&path), expected(&rules, &path));
    }

    #[test]
    fn the_order_of_entries_does_not_matter(mut rules in rule_sets(), path in paths()) {
        let before = policy(&rules).access(&path);
        rules.reverse();
        prop_assert_eq!(policy(&rules).access(&path), before);
    }

    #[test]
    fn a_rule_elsewhere_changes_nothing(mut rules in rule_sets(), extra in rule_sets(), path in paths()) {
        let before = policy(&rules).access(&path);
        rules.extend(extra.into_iter().filter(|(above, _)| !path.starts_with(above)));
        prop_assert_eq!(policy(&rules).access(&path), before);
    }

    #[test]
    fn a_denial_more_never_grants(mut rules in rule_sets(), denied in paths(), path in paths()) {
        let before = policy(&rules).access(&path);
        rules.push((denied, Access::Deny));
        let after = policy(&rules).access(&path);
        prop_assert!(after == before || after == Access::Deny);
    }

    #[test]
    fn what_a_rule_names_it_decides_unless_denied_there(mut rules in rule_sets(), path in paths()) {
        rules.push((path.clone(), Access::Write));
        let denied = rules.contains(&(path.clone(), Access::Deny));
        let decided = if denied { Access::Deny } else { Access::Write };
        prop_assert_eq!(policy(&rules).access(&path), decided);
    }

    #[test]
    fn a_tree_knows_what_is_below(rules in rule_sets(), path in paths()) {
        let tree: PathTree<Access> = rules.into_iter().collect();
        let below: Vec<&Path> = tree.below(&path).map(|(at, _)| at).collect();
        let all: Vec<&Path> = tree.iter().map(|(at, _)| at).filter(|at| at.starts_with(&path) && *at != path).collect();
        prop_assert_eq!(below, all);
    }
}
