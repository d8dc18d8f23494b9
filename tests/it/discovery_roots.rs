//! Discovery below chosen roots, on this machine and on a server alike.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use exec_server::backend::ExecServerError;
use exec_server::path_uri::PathUri;
use exec_server::protocol::discovery::{
    CapabilityRootDiscoverRequest, CapabilityRootDiscovery, CapabilityRootsDiscoverParams,
};
use exec_server::protocol::sandbox::SandboxContext;
use exec_server::protocol::{MAX_MESSAGE_BYTES, code};
use pretty_assertions::assert_eq;
use rustix::fs::{CWD, FileType, mknodat};
use test_case::test_case;

use crate::support::place::{Place, Room};
use crate::support::sandbox::{disabled, mxc, reading, reading_everything, reading_without};
use crate::support::soon;

const MIB: usize = 1 << 20;

fn write(room: &Room, name: impl AsRef<OsStr>, text: impl AsRef<[u8]>) {
    let path = room.path("").join(name.as_ref());
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn request(path: &Path, sandbox: Option<SandboxContext>) -> CapabilityRootDiscoverRequest {
    let path = PathUri::from_native_path(path).unwrap();
    CapabilityRootDiscoverRequest { id: "root".into(), path, sandbox }
}

async fn discover_under(
    place: &Place,
    path: &Path,
    sandbox: Option<SandboxContext>,
) -> CapabilityRootDiscovery {
    let params = CapabilityRootsDiscoverParams { roots: vec![request(path, sandbox)] };
    let mut found = soon(place.environment.discover_capability_roots(params)).await.unwrap();
    assert_eq!(found.roots.len(), 1);
    found.roots.remove(0)
}

async fn discover(place: &Place, path: &Path) -> CapabilityRootDiscovery {
    discover_under(place, path, None).await
}

/// Directories of the skills, below a root.
fn skills<'a>(found: &'a CapabilityRootDiscovery) -> Vec<&'a str> {
    let below = |path: &'a PathUri| {
        let directory = path.as_str().strip_suffix("/SKILL.md").unwrap();
        directory.get(found.path.as_str().len() + 1..).unwrap_or("")
    };
    found.skills.iter().map(|skill| below(&skill.instructions.path)).collect()
}

#[test_case(false; "here")]
#[test_case(true; "on a server")]
#[tokio::test]
async fn a_root_that_is_a_skill_and_a_plugin(remote: bool) {
    let place = Place::new(remote).await;
    let room = Room::new();
    write(&room, "SKILL.md", "i\r\n\0\u{feff}");
    write(&room, "agents/openai.yaml", "a: 1");
    write(&room, ".cursor-plugin/plugin.json", r#"{"apps":{"inline":1}}"#);
    write(&room, ".app.json", "apps");
    write(&room, ".mcp.json", "mcp");
    let found = discover(&place, &room.path("")).await;
    assert_eq!((found.warnings.len(), &found.error), (0, &None));
    let plugin = found.plugin.unwrap();
    assert_eq!(plugin.mcp_config.unwrap().contents, "mcp");
    assert_eq!(plugin.apps_config.unwrap().contents, "apps");
    assert_eq!(found.namespace_manifests, [plugin.manifest]);
    assert_eq!(found.skills[0].instructions.contents, "i\r\n\0\u{feff}");
    assert_eq!(found.skills[0].metadata.as_ref().unwrap().contents, "a: 1");
}

#[test_case(false; "here")]
#[test_case(true; "on a server")]
#[tokio::test]
async fn names_that_are_no_text_are_told_exactly(remote: bool) {
    let place = Place::new(remote).await;
    let room = Room::new();
    write(&room, OsStr::from_bytes(b"\xff\xfe/SKILL.md"), "raw");
    write(&room, "C:/SKILL.md", "drive");
    write(&room, "a%20b\n/SKILL.md", "escapes");
    let found = discover(&place, &room.path("")).await;
    assert_eq!(skills(&found), ["%FF%FE", "C:", "a%2520b%0A"]);
    for skill in &found.skills {
        let path = skill.instructions.path.to_native_path().unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), skill.instructions.contents);
    }
    let spelled = PathUri::parse(&format!("{}/a%2520b%0a/", found.path)).unwrap();
    let params = CapabilityRootsDiscoverParams {
        roots: vec![CapabilityRootDiscoverRequest {
            id: String::new(),
            path: spelled.clone(),
            sandbox: None,
        }],
    };
    let found = soon(place.environment.discover_capability_roots(params)).await.unwrap().roots.remove(0);
    assert_eq!(found.path, spelled);
    assert_eq!(found.skills[0].instructions.path.as_str(), format!("{spelled}SKILL.md"));
}

#[test_case(false; "here")]
#[test_case(true; "on a server")]
#[tokio::test]
async fn what_is_no_file_is_neither_found_nor_waited_for(remote: bool) {
    let place = Place::new(remote).await;
    let room = Room::new();
    let pipe = |name: &str| {
        std::fs::create_dir_all(room.path(name).parent().unwrap()).unwrap();
        mknodat(CWD, room.path(name), FileType::Fifo, 0o600.into(), 0).unwrap();
    };
    pipe("pipe/SKILL.md");
    pipe("meta/agents/openai.yaml");
    write(&room, "meta/SKILL.md", "m");
    pipe(".codex-plugin/plugin.json");
    write(&room, ".claude-plugin/plugin.json", r#"{"mcpServers":"./declared"}"#);
    pipe("declared");
    std::fs::create_dir(room.path("socket")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(room.path("socket/SKILL.md")).unwrap();
    symlink("/dev/zero", room.path("socket/link")).unwrap();
    let found = discover(&place, &room.path("")).await;
    assert_eq!(skills(&found), ["meta"]);
    assert_eq!((found.skills[0].metadata.as_ref(), found.warnings.len()), (None, 0));
    let plugin = found.plugin.unwrap();
    assert!(plugin.manifest.path.as_str().ends_with("/.claude-plugin/plugin.json"));
    assert_eq!(plugin.mcp_config, None);
}

#[test_case(false; "here")]
#[test_case(true; "on a server")]
#[tokio::test]
async fn the_nearest_manifest_above_that_can_be_read_is_told(remote: bool) {
    let place = Place::new(remote).await;
    let room = Room::new();
    write(&room, ".codex-plugin/plugin.json", "{}");
    write(&room, "m/.codex-plugin/plugin.json", "x".repeat(MIB + 1));
    write(&room, "m/.claude-plugin/plugin.json", b"\xff");
    write(&room, "m/r/n/.codex-plugin/plugin.json", b"\xff");
    write(&room, "m/r/n/.claude-plugin/plugin.json", "{}");
    write(&room, "m/r/p/.claude-plugin/plugin.json", "{}");
    let found = discover(&place, &room.path("m/r")).await;
    let manifests: Vec<_> = found.namespace_manifests.iter().map(|file| file.path.clone()).collect();
    // Below the root the first of a directory counts, whether it can be read or not.
    assert_eq!(
        manifests,
        [room.uri(".codex-plugin/plugin.json"), room.uri("m/r/p/.claude-plugin/plugin.json")]
    );
    let about = |name: &str| found.warnings.iter().any(|text| text.contains(room.uri(name).as_str()));
    assert!(about("m/.codex-plugin/plugin.json") && about("m/.claude-plugin/plugin.json"));
    assert!(about("m/r/n/.codex-plugin/plugin.json"), "{:?}", found.warnings);
    assert_eq!(found.warnings.len(), 3);
}

#[test_case(false; "here")]
#[test_case(true; "on a server")]
#[tokio::test]
async fn links_out_of_the_root_are_followed_and_named(remote: bool) {
    let place = Place::new(remote).await;
    let room = Room::new();
    write(&room, "other/deep/SKILL.md", "o");
    write(&room, "root/in/SKILL.md", "i");
    symlink("../other", room.path("root/out")).unwrap();
    symlink("../other", room.path("root/out-again")).unwrap();
    symlink("in", room.path("root/same")).unwrap();
    symlink(".", room.path("root/cycle")).unwrap();
    symlink("gone", room.path("root/dangling")).unwrap();
    let found = discover(&place, &room.path("root")).await;
    assert_eq!(skills(&found), ["in", "out/deep"]);
    let [warning] = found.warnings.as_slice() else { panic!("{:?}", found.warnings) };
    assert!(warning.contains(room.uri("root/out").as_str()), "{warning}");
    assert!(warning.contains(room.path("other").to_str().unwrap()), "{warning}");
}

#[test_case(false; "here")]
#[test_case(true; "on a server")]
#[tokio::test]
async fn a_directory_with_two_paths_is_told_by_the_shorter_one(remote: bool) {
    let place = Place::new(remote).await;
    let room = Room::new();
    write(&room, "a/b/c/SKILL.md", "x");
    symlink("a/b", room.path("z")).unwrap();
    let found = discover(&place, &room.path("")).await;
    assert_eq!((skills(&found), found.warnings.len()), (vec!["z/c"], 0));
}

#[test_case(false; "here")]
#[test_case(true; "on a server")]
#[tokio::test]
async fn too_many_directories_cost_those_that_are_least_likely_of_use(remote: bool) {
    let place = Place::new(remote).await;
    let room = Room::new();
    for number in 0..2_200 {
        std::fs::create_dir_all(room.path(&format!("root/d{number:04}"))).unwrap();
    }
    write(&room, "root/d2190/SKILL.md", "lost");
    write(&room, "root/d2195/.claude-plugin/plugin.json", "{}");
    write(&room, "root/skills/one/two/SKILL.md", "kept");
    let found = discover(&place, &room.path("root")).await;
    assert_eq!(skills(&found), ["skills/one/two"]);
    assert_eq!(found.namespace_manifests.len(), 1);
    let [warning] = found.warnings.as_slice() else { panic!("{:?}", found.warnings) };
    assert!(warning.contains("2000 directories") && warning.contains(found.path.as_str()), "{warning}");
}

#[test_case(false; "here")]
#[test_case(true; "on a server")]
#[tokio::test]
async fn too_many_entries_end_the_scan(remote: bool) {
    let place = Place::new(remote).await;
    let room = Room::new();
    std::fs::create_dir(room.path("a")).unwrap();
    for number in 0..19_997 {
        std::fs::write(room.path(&format!("a/f{number}")), "").unwrap();
    }
    write(&room, "b/SKILL.md", "x");
    // The links to files are none of the 20,000 that there are now.
    symlink("../b/SKILL.md", room.path("a/link")).unwrap();
    symlink("../b/SKILL.md", room.path("a/link2")).unwrap();
    let found = discover(&place, &room.path("")).await;
    assert_eq!((skills(&found), found.warnings.len()), (vec!["b"], 0));
    std::fs::write(room.path("a/more"), "").unwrap();
    let found = discover(&place, &room.path("")).await;
    let [warning] = found.warnings.as_slice() else { panic!("{:?}", found.warnings) };
    assert!(warning.contains("20000 entries"), "{warning}");
    assert_eq!(found.error, None);
}

#[test_case(false; "here")]
#[test_case(true; "on a server")]
#[tokio::test]
async fn what_is_too_deep_is_said(remote: bool) {
    let place = Place::new(remote).await;
    let room = Room::new();
    write(&room, "1/2/3/4/5/6/SKILL.md", "found");
    let found = discover(&place, &room.path("")).await;
    assert_eq!((skills(&found), found.warnings.len()), (vec!["1/2/3/4/5/6"], 0));
    write(&room, "1/2/3/4/5/6/7/SKILL.md", "too deep");
    symlink("../../../..", room.path("1/2/3/4/5/6/up")).unwrap();
    let found = discover(&place, &room.path("")).await;
    assert_eq!(skills(&found), ["1/2/3/4/5/6"]);
    let [warning] = found.warnings.as_slice() else { panic!("{:?}", found.warnings) };
    assert!(warning.contains(room.uri("1/2/3/4/5/6").as_str()), "{warning}");
}

#[test_case(false; "here")]
#[test_case(true; "on a server")]
#[tokio::test]
async fn a_bundle_keeps_what_still_fits(remote: bool) {
    let place = Place::new(remote).await;
    let room = Room::new();
    write(&room, ".codex-plugin/plugin.json", "{}");
    for number in 0..16 {
        write(&room, format!("s{number:02}/SKILL.md"), "x".repeat(MIB));
    }
    write(&room, "s15/agents/openai.yaml", "never told without its skill");
    write(&room, "t/SKILL.md", "small");
    let found = discover(&place, &room.path("")).await;
    // The manifest has taken two bytes of the 16 MiB.
    assert_eq!((found.skills.len(), skills(&found).last()), (16, Some(&"t")));
    let [warning] = found.warnings.as_slice() else { panic!("{:?}", found.warnings) };
    assert!(warning.contains(room.uri("s15/SKILL.md").as_str()), "{warning}");
}

/// 16 MiB of control characters are 96 MiB of JSON, and a message has 64.
#[tokio::test]
async fn an_answer_never_exceeds_a_message() {
    let place = Place::new(false).await;
    let room = Room::new();
    for number in 0..16 {
        write(&room, format!("s{number:02}/SKILL.md"), "\u{1}".repeat(MIB));
    }
    let roots = vec![request(&room.path(""), None), request(&room.path("s00"), None)];
    let params = CapabilityRootsDiscoverParams { roots };
    let found = soon(place.environment.discover_capability_roots(params)).await.unwrap();
    let delivered: usize = found.roots.iter().map(|root| root.skills.len()).sum();
    assert_eq!(delivered, 9);
    let warnings: Vec<_> = found.roots.iter().flat_map(|root| &root.warnings).collect();
    assert_eq!(warnings.len(), 17 - delivered);
    assert!(warnings.iter().all(|warning| warning.contains("the answer is full")), "{warnings:?}");
    let encoded = serde_json::to_vec(&found).unwrap().len();
    assert!(encoded < MAX_MESSAGE_BYTES, "{encoded}");
}

/// The manifest of a plugin is told twice: with the plugin, and among those that name skills.
#[tokio::test]
async fn an_answer_of_plugins_never_exceeds_a_message() {
    let place = Place::new(false).await;
    let room = Room::new();
    let plugins: Vec<_> = (0..8).map(|number| format!("p{number}")).collect();
    for plugin in &plugins {
        write(&room, format!("{plugin}/.codex-plugin/plugin.json"), "\u{1}".repeat(MIB));
    }
    let roots = plugins.iter().map(|plugin| request(&room.path(plugin), None)).collect();
    let params = CapabilityRootsDiscoverParams { roots };
    let found = soon(place.environment.discover_capability_roots(params)).await.unwrap();
    let delivered: usize = found
        .roots
        .iter()
        .map(|root| usize::from(root.plugin.is_some()) + root.namespace_manifests.len())
        .sum();
    assert_eq!(delivered, 9);
    let left_out = found.roots.iter().filter(|root| root.namespace_manifests.is_empty());
    assert!(left_out.clone().all(|root| root.warnings.iter().any(|why| why.contains("the answer is full"))));
    let encoded = serde_json::to_vec(&found).unwrap().len();
    assert!(encoded < MAX_MESSAGE_BYTES, "{encoded}");
}

#[test_case(false; "here")]
#[test_case(true; "on a server")]
#[tokio::test]
async fn warnings_have_a_limit(remote: bool) {
    let place = Place::new(remote).await;
    let room = Room::new();
    for number in 0..1_100 {
        write(&room, format!("s{number}/SKILL.md"), b"\xff");
    }
    let found = discover(&place, &room.path("")).await;
    assert_eq!((found.skills.len(), found.warnings.len()), (0, 1_001));
    assert_eq!(found.warnings[1_000], "100 further warnings are left out");
}

#[test_case(false; "here")]
#[test_case(true; "on a server")]
#[tokio::test]
async fn a_sandbox_hides_what_it_does_not_show(remote: bool) {
    let place = Place::new(remote).await;
    let room = Room::new();
    write(&room, ".codex-plugin/plugin.json", "{}");
    write(&room, "root/open/SKILL.md", "open");
    write(&room, "root/shut/SKILL.md", "shut");
    write(&room, "root/.claude-plugin/plugin.json", r#"{"mcpServers":"./servers"}"#);
    write(&room, "secret/SKILL.md", "secret");
    write(&room, "shared/SKILL.md", "shared");
    symlink("../secret", room.path("root/to-secret")).unwrap();
    symlink("../shared", room.path("root/to-shared")).unwrap();
    symlink("shut", room.path("root/to-shut")).unwrap();
    symlink("../secret/SKILL.md", room.path("root/servers")).unwrap();
    let (root, shut) = (room.path("root"), room.path("root/shut"));
    let sandbox = reading(&[&root, &room.path("shared")], &[&shut]);
    let found = discover_under(&place, &root, Some(sandbox)).await;
    assert_eq!(skills(&found), ["open", "to-shared"]);
    assert_eq!(found.plugin.as_ref().unwrap().mcp_config, None);
    assert_eq!(found.namespace_manifests.len(), 1);
    let text = format!("{found:?}");
    assert!(!text.contains("\"secret\"") && !text.contains("\"shut\""), "{text}");
    // The link out of the root that may be followed, and the denied directory by both its names.
    assert_eq!(found.warnings.len(), 3, "{:?}", found.warnings);
    for name in ["root/shut:", "root/to-shut:", "root/to-shared "] {
        let about = room.uri("").to_string() + "/" + name;
        assert!(found.warnings.iter().any(|text| text.contains(&about)), "{name} {:?}", found.warnings);
    }
}

#[test_case(false; "here")]
#[test_case(true; "on a server")]
#[tokio::test]
async fn a_denied_pattern_holds_under_every_name(remote: bool) {
    let place = Place::new(remote).await;
    let room = Room::new();
    write(&room, "a/SKILL.md", "a");
    write(&room, "b/SKILL.md", "b");
    write(&room, "b/agents/openai.yaml", "y");
    symlink("b", room.path("c")).unwrap();
    let sandbox = reading_without(&room.path(""), "**/b/**");
    let found = discover_under(&place, &room.path(""), Some(sandbox)).await;
    assert_eq!(skills(&found), ["a"]);
    let [warning] = found.warnings.as_slice() else { panic!("{:?}", found.warnings) };
    assert!(warning.contains(room.uri("b/SKILL.md").as_str()), "{warning}");
}

#[test_case(false; "here")]
#[test_case(true; "on a server")]
#[tokio::test]
async fn one_request_may_mix_sandboxes_and_broken_roots(remote: bool) {
    let place = Place::new(remote).await;
    let room = Room::new();
    write(&room, "a/SKILL.md", "a");
    write(&room, "b/SKILL.md", "b");
    symlink("gone", room.path("dangling")).unwrap();
    let (a, b) = (room.path("a"), room.path("b"));
    let only_a = reading(&[&a], &[]);
    let mut roots = vec![
        request(&a, Some(only_a.clone())),
        request(&b, Some(only_a.clone())),
        request(&b, Some(reading_everything(&a))),
        request(&b, Some(disabled(&a))),
        request(&a, Some(only_a.clone())),
        request(&a, Some(mxc(only_a.clone()))),
        request(&room.path("dangling"), None),
        request(&room.path("a/SKILL.md"), None),
        request(&room.path("a/SKILL.md/x"), None),
    ];
    if remote {
        // A client does not send this to a server without it.
        roots.remove(5);
    }
    let asked = roots.clone();
    let params = CapabilityRootsDiscoverParams { roots };
    let found = soon(place.environment.discover_capability_roots(params)).await.unwrap().roots;
    assert_eq!(found.len(), asked.len());
    let counts: Vec<_> = found.iter().map(|root| (root.skills.len(), root.error.is_some())).collect();
    let good = (1, false);
    let bad = (0, true);
    assert_eq!(counts[..5], [good, bad, good, good, good]);
    assert!(counts[5..].iter().all(|count| *count == bad), "{counts:?}");
    for (root, asked) in found.iter().zip(&asked) {
        assert_eq!(root.path, asked.path);
        assert!(root.error.as_ref().is_none_or(|text| text.contains(asked.path.as_str())), "{root:?}");
    }
}

#[test_case(false; "here")]
#[test_case(true; "on a server")]
#[tokio::test]
async fn a_root_of_another_platform_fails_alone(remote: bool) {
    let place = Place::new(remote).await;
    let room = Room::new();
    let foreign = PathUri::parse("file://host/share").unwrap();
    let roots = vec![
        CapabilityRootDiscoverRequest { id: "f".into(), path: foreign, sandbox: None },
        request(&room.path(""), None),
    ];
    let found = soon(place.environment.discover_capability_roots(CapabilityRootsDiscoverParams { roots }));
    let found = found.await.unwrap().roots;
    assert!(found[0].error.as_ref().unwrap().contains("file://host/share"), "{:?}", found[0]);
    assert_eq!(found[1].error, None);
}

#[test_case(false; "here")]
#[test_case(true; "on a server")]
#[tokio::test]
async fn more_roots_than_a_request_may_have_are_refused(remote: bool) {
    let place = Place::new(remote).await;
    let room = Room::new();
    let ask = |count| {
        let roots = vec![request(&room.path(""), None); count];
        soon(place.environment.discover_capability_roots(CapabilityRootsDiscoverParams { roots }))
    };
    assert_eq!(ask(128).await.unwrap().roots.len(), 128);
    let Err(ExecServerError::Server { code, message, .. }) = ask(129).await else { panic!("accepted") };
    assert_eq!(code, code::INVALID_REQUEST);
    assert!(message.contains("128") && message.contains("129"), "{message}");
}

/// Directories come and go under the scan: every answer is whole, whatever it has seen.
#[test_case(false; "here")]
#[test_case(true; "on a server")]
#[tokio::test]
async fn a_tree_may_change_under_the_scan(remote: bool) {
    let place = Place::new(remote).await;
    let room = Room::new();
    let root = room.path("root");
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    write(&room, "stay/SKILL.md", "stay");
    std::fs::create_dir(&root).unwrap();
    symlink("../stay", root.join("link")).unwrap();
    let churn = std::thread::spawn({
        let root = root.clone();
        move || {
            while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                let directory = root.join("come/and/go");
                std::fs::create_dir_all(&directory).unwrap();
                std::fs::write(directory.join("SKILL.md"), "go").unwrap();
                std::fs::rename(root.join("come"), root.join("gone")).unwrap();
                std::fs::remove_dir_all(root.join("gone")).unwrap();
            }
        }
    });
    for _ in 0..100 {
        let found = discover(&place, &root).await;
        assert_eq!(found.error, None);
        assert!(skills(&found).contains(&"link"), "{found:?}");
    }
    drop(stop);
    churn.join().unwrap();
    std::fs::remove_dir_all(&root).unwrap();
    assert!(discover(&place, &root).await.error.is_some());
}
