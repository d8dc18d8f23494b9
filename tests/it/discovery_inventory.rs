//! The inventory of what is installed for a server's user.

use std::os::unix::fs::symlink;

use exec_server::environment::Environment;
use exec_server::path_uri::PathUri;
use exec_server::protocol::discovery::{DiscoverV2CapabilitiesRequest, DiscoverV2CapabilitiesResponse};
use exec_server::protocol::sandbox::SandboxContext;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::support::place::Room;
use crate::support::sandbox::{mxc, reading};
use crate::support::server::ServerProcess;
use crate::support::soon;

const CACHE: &str = ".codex/plugins/cache";
const SKILLS: &str = ".codex/skills";

const SIZE: &str = "capability discovery size limit reached";
const LOCATIONS: &str = "some capability locations could not be resolved; discovery may be incomplete";
const METADATA: &str = "some capability metadata could not be loaded; discovery may be incomplete";

/// A user with a server.
struct Home {
    room: Room,
    environment: Environment,
    _server: ServerProcess,
}

impl Home {
    async fn new() -> Self {
        Self::with(&[]).await
    }

    /// A user whose server has more arguments.
    async fn with(arguments: &[&str]) -> Self {
        let room = Room::new();
        let home = format!("HOME={}", room.path("").display());
        let server = ServerProcess::start_with_environment(arguments, &home).await;
        let environment = Environment::create_for_tests(Some(server.url().to_owned())).unwrap();
        Self { room, environment, _server: server }
    }

    fn write(&self, name: impl AsRef<str>, text: impl AsRef<[u8]>) {
        let path = self.room.path(name.as_ref());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn skill(&self, directory: impl AsRef<str>, name: &str) {
        let text = format!("---\nname: {name}\ndescription: Does it.\n---\nSECRET\n");
        self.write(format!("{}/SKILL.md", directory.as_ref()), text);
    }

    async fn inventory_under(&self, sandbox: Option<SandboxContext>) -> DiscoverV2CapabilitiesResponse {
        let request = DiscoverV2CapabilitiesRequest { cwd: self.room.uri("absent"), sandbox };
        let found = soon(self.environment.discover_capabilities(request)).await.unwrap();
        assert!(!serde_json::to_string(&found).unwrap().contains("SECRET"));
        found
    }

    async fn inventory(&self) -> DiscoverV2CapabilitiesResponse {
        self.inventory_under(None).await
    }
}

fn names(found: &DiscoverV2CapabilitiesResponse) -> Vec<&str> {
    found.skills.iter().map(|skill| skill.name.as_str()).collect()
}

fn ids(found: &DiscoverV2CapabilitiesResponse) -> Vec<(&str, &str)> {
    found.plugins.iter().map(|plugin| (plugin.id.as_str(), plugin.version.as_str())).collect()
}

#[tokio::test]
async fn everything_has_its_place_and_its_name() {
    let home = Home::new().await;
    home.write(format!("{CACHE}/m/p/1.0.0/.claude-plugin/plugin.json"), r#"{"name":" P ","apps":"./a"}"#);
    home.write(format!("{CACHE}/m/p/1.0.0/a"), "apps");
    home.write(
        format!("{CACHE}/m/p/.codex-remote-plugin-install.json"),
        r#"{"schema_version":1,"remote_plugin_id":"r"}"#,
    );
    home.skill(format!("{CACHE}/m/p/1.0.0/skills/s"), "s");
    home.write(".codex/.codex-plugin/plugin.json", r#"{"name":"home"}"#);
    home.skill(format!("{SKILLS}/x/.git/y"), "y");
    home.write(format!("{SKILLS}/x/agents/openai.yaml"), "policy: {products: [atlas]}");
    home.skill(format!("{SKILLS}/x"), "x");
    home.write(format!("{SKILLS}/inner/.cursor-plugin/plugin.json"), "{}");
    home.skill(format!("{SKILLS}/inner/z"), "z");
    home.write(format!("{SKILLS}/broken/.codex-plugin/plugin.json"), "{");
    home.skill(format!("{SKILLS}/broken/w"), "w");
    home.skill(".agents/skills/x", "x");
    let found = home.inventory().await;
    assert_eq!(names(&found), ["home:w", "inner:z", "home:y", "home:x", "x"]);
    let root = home.room.uri(&format!("{CACHE}/m/p/1.0.0"));
    let manifest = format!("{root}/.claude-plugin/plugin.json");
    let expected = json!({
        "id": "p@m", "displayName": " P ", "remotePluginId": "r", "version": "1.0.0", "root": root,
        "files": {
            "manifest": {"path": manifest, "contents": r#"{"name":" P ","apps":"./a"}"#},
            "mcpConfig": null, "appsConfig": {"path": format!("{root}/a"), "contents": "apps"}},
        "skills": [{"name": " P :s", "description": "Does it.", "shortDescription": null,
            "path": format!("{root}/skills/s/SKILL.md"), "dependencies": null, "policy": null}]});
    assert_eq!(serde_json::to_value(&found.plugins).unwrap(), json!([expected]));
    let last: Vec<Value> =
        found.skills[3..].iter().map(|skill| serde_json::to_value(skill).unwrap()).collect();
    assert_eq!(last[0]["policy"], json!({"allowImplicitInvocation": null, "products": ["atlas"]}));
    assert_eq!(last[0]["discoveryRoot"], json!({"id": "codex-home-skills", "path": home.room.uri(SKILLS)}));
    let agents = json!({"id": "user-agent-skills", "path": home.room.uri(".agents/skills")});
    assert_eq!(last[1]["discoveryRoot"], agents);
    assert_eq!(found.warnings, Vec::<String>::new());
}

#[tokio::test]
async fn directories_that_are_links_count_but_linked_versions_do_not() {
    let home = Home::new().await;
    home.skill("real/a", "a");
    std::fs::create_dir_all(home.room.path(".codex")).unwrap();
    symlink(home.room.path("real"), home.room.path(SKILLS)).unwrap();
    home.write("real-market/p/2.0.0/.codex-plugin/plugin.json", "{}");
    symlink("2.0.0", home.room.path("real-market/p/local")).unwrap();
    std::fs::create_dir_all(home.room.path(CACHE)).unwrap();
    symlink(home.room.path("real-market"), home.room.path(&format!("{CACHE}/m"))).unwrap();
    symlink("p", home.room.path("real-market/q")).unwrap();
    home.skill(".agents/skills/z", "z");
    symlink(home.room.path("real"), home.room.path(".agents/skills/y")).unwrap();
    let found = home.inventory().await;
    assert_eq!(ids(&found), [("p@m", "2.0.0"), ("q@m", "2.0.0")]);
    assert_eq!(names(&found), ["a", "a", "z"]);
    // What leads out of a home is the user's own choice.
    assert_eq!(found.warnings, Vec::<String>::new());
}

#[tokio::test]
async fn what_is_missing_is_said_once_for_each_location_and_without_paths() {
    let home = Home::new().await;
    home.write(format!("{CACHE}/m/bad/local/.codex-plugin/plugin.json"), "[]");
    home.write(format!("{CACHE}/m/list/local/.codex-plugin/plugin.json"), r#"{"interface":[]}"#);
    home.write(format!("{CACHE}/m/good/local/.codex-plugin/plugin.json"), "{}");
    home.write(format!("{CACHE}/m/good/.codex-remote-plugin-install.json"), " ".repeat(20_000));
    home.write(format!("{CACHE}/m/good/local/s/SKILL.md"), "no head");
    home.write(format!("{CACHE}/m/not a name/local/x"), "");
    home.write(format!("{CACHE}/m/file"), "");
    home.write(format!("{SKILLS}/raw/SKILL.md"), b"\xff");
    home.write(format!("{SKILLS}/large/SKILL.md"), "x".repeat((1 << 20) + 1));
    home.write(".agents/skills", "a file");
    let found = home.inventory().await;
    assert_eq!((ids(&found), names(&found)), (vec![("good@m", "local")], vec![]));
    assert_eq!(found.warnings, [LOCATIONS, METADATA, METADATA, METADATA, METADATA]);
}

#[tokio::test]
async fn nothing_installed_is_nothing_found() {
    let home = Home::new().await;
    assert_eq!(home.inventory().await, DiscoverV2CapabilitiesResponse::default());
}

#[tokio::test]
async fn names_have_limits() {
    let home = Home::new().await;
    let long = "p".repeat(64);
    home.write(format!("{CACHE}/m/a/local/.codex-plugin/plugin.json"), json!({"name": long}).to_string());
    home.skill(format!("{CACHE}/m/a/local/s"), &"s".repeat(64));
    home.write(
        format!("{CACHE}/m/b/local/.codex-plugin/plugin.json"),
        json!({"name": long + "p"}).to_string(),
    );
    home.skill(format!("{CACHE}/m/b/local/s"), &"s".repeat(64));
    home.skill(format!("{CACHE}/m/b/local/t"), "t");
    let found = home.inventory().await;
    let counts: Vec<_> = found.plugins.iter().map(|plugin| plugin.skills.len()).collect();
    assert_eq!((counts, found.warnings), (vec![1, 1], vec![METADATA.to_owned()]));
}

#[tokio::test]
async fn a_large_skill_does_not_keep_small_ones_out() {
    let home = Home::new().await;
    for number in 0..5 {
        let text = format!("---\nname: n{number}\ndescription: {}\n---\n", "D".repeat(1_000_000));
        home.write(format!("{SKILLS}/d{number}/SKILL.md"), text);
    }
    home.skill(format!("{SKILLS}/z"), "z");
    let found = home.inventory().await;
    assert_eq!(names(&found), ["n0", "n1", "n2", "n3", "z"]);
    assert_eq!(found.warnings, [SIZE]);
    assert!(serde_json::to_vec(&found).unwrap().len() <= 4_194_304);
}

#[tokio::test]
async fn at_most_512_plugins_are_looked_at() {
    let home = Home::new().await;
    for number in 0..515 {
        home.write(format!("{CACHE}/m/p{number:03}/local/.codex-plugin/plugin.json"), "{}");
    }
    // One without a version takes nobody's place.
    std::fs::create_dir(home.room.path(&format!("{CACHE}/m/a"))).unwrap();
    let found = home.inventory().await;
    assert_eq!((found.plugins.len(), found.plugins[511].id.as_str()), (512, "p511@m"));
    assert_eq!(found.warnings, [LOCATIONS]);
}

#[tokio::test]
async fn a_sandbox_limits_what_is_listed() {
    let home = Home::new().await;
    home.write(format!("{CACHE}/m/p/local/.codex-plugin/plugin.json"), "{}");
    home.write(format!("{CACHE}/m/q/local/.codex-plugin/plugin.json"), "{}");
    home.skill(format!("{SKILLS}/a"), "a");
    home.skill(format!("{SKILLS}/b"), "b");
    home.skill(".agents/skills/c", "c");
    symlink(home.room.path(".agents/skills/c"), home.room.path(&format!("{SKILLS}/c"))).unwrap();
    let at = |name: &str| home.room.path(name);
    let plugin = format!("{CACHE}/m/p");
    let sandbox = reading(&[&at(&plugin), &at(SKILLS)], &[&at(&format!("{SKILLS}/b"))]);
    let found = home.inventory_under(Some(sandbox.clone())).await;
    assert_eq!((ids(&found), names(&found)), (vec![("p@m", "local")], vec!["a"]));
    assert_eq!(found.warnings, [METADATA]);
    let request = DiscoverV2CapabilitiesRequest { cwd: home.room.uri(""), sandbox: Some(mxc(sandbox)) };
    let refused = soon(home.environment.discover_capabilities(request)).await.unwrap_err();
    assert!(refused.to_string().contains("MXC"), "{refused}");
}

/// Nothing is kept: every edit is in the next answer.
#[tokio::test]
async fn edits_are_seen_at_once() {
    let home = Home::new().await;
    for number in 0..20 {
        home.skill(format!("{SKILLS}/a"), &format!("n{number}"));
        assert_eq!(names(&home.inventory().await), [format!("n{number}")]);
    }
    std::fs::remove_dir_all(home.room.path(SKILLS)).unwrap();
    assert_eq!(names(&home.inventory().await), Vec::<&str>::new());
}

/// Discoveries wait for each other, and hold up nobody else, even where one request runs at a time.
#[tokio::test]
async fn other_calls_go_on_beside_discoveries() {
    let home = Home::with(&["--concurrent-requests", "1"]).await;
    for number in 0..400 {
        home.skill(format!("{SKILLS}/s{number}"), "s");
    }
    home.write("file", "x");
    let discoveries = futures_util::future::join_all((0..10).map(|_| home.inventory()));
    let (files, file) = (home.environment.get_filesystem(), home.room.uri("file"));
    let others = async {
        for _ in 0..5 {
            soon(files.read_file(&file, Default::default(), None)).await.unwrap();
        }
    };
    tokio::pin!(discoveries);
    tokio::select! {
        biased;
        _ = &mut discoveries => panic!("the files waited for all discoveries"),
        () = others => {}
    }
    assert!(discoveries.await.iter().all(|found| found.skills.len() == 400));
}

/// This machine answers what a server of the same user answers.
#[tokio::test]
async fn this_machine_and_a_server_agree() {
    let server = ServerProcess::start().await;
    let remote = Environment::create_for_tests(Some(server.url().to_owned())).unwrap();
    let local = Environment::create_for_tests(None).unwrap();
    let request = DiscoverV2CapabilitiesRequest { cwd: PathUri::parse("file:///").unwrap(), sandbox: None };
    let here = soon(local.discover_capabilities(request.clone())).await.unwrap();
    assert_eq!(here, soon(remote.discover_capabilities(request)).await.unwrap());
    let (here, there) = (soon(local.info()).await.unwrap(), soon(remote.info()).await.unwrap());
    for info in [here, there] {
        assert!(info.capabilities.capability_discovery_sandbox && info.capabilities.capability_discovery_v2);
    }
}
