use super::*;
use pretty_assertions::assert_eq;
use test_case::test_case;

struct Machine {
    _dir: tempfile::TempDir,
    root: PathBuf,
}

impl Machine {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let machine = Self { _dir: dir, root };
        for (name, text) in files {
            machine.write(name, text);
        }
        machine
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text.replace("ROOT", self.root.to_str().unwrap())).unwrap();
    }

    fn read(
        &self,
        cwd: &str,
        config: &[&str],
        requirements: &[&str],
    ) -> Result<ConfigReadResponse, ConfigReadError> {
        let paths = |keys: &[&str]| keys.iter().map(|key| vec![(*key).to_owned()]).collect();
        let cwd = PathUri::from_abs_path(self.root.join(cwd)).unwrap();
        let params =
            ConfigReadParams { cwd, config_paths: paths(config), requirements_paths: paths(requirements) };
        EnvironmentConfig::new(Some(self.root.join("home")), None, Some("box".to_owned()))
            .with_system_dir(self.root.join("etc"))
            .read(&params)
    }

    /// Base directory below the root, and the selected text, of each layer.
    fn layers(&self, cwd: &str) -> Vec<(String, String)> {
        self.below(self.read(cwd, &["model"], &[]).unwrap().config)
    }

    fn below(&self, layers: ConfigLayers) -> Vec<(String, String)> {
        let base = |layer: &ConfigLayer| layer.base_dir.to_native_path().unwrap();
        let below = |layer: &ConfigLayer| base(layer).strip_prefix(&self.root).unwrap().display().to_string();
        layers.layers.into_iter().map(|layer| (below(&layer), layer.toml)).collect()
    }
}

fn row(base: &str, model: &str) -> (String, String) {
    (base.to_owned(), format!("model = \"{model}\"\n"))
}

const TRUSTING: &str = "model = \"user\"\n[projects.\"ROOT/p\"]\ntrust_level = \"trusted\"\n";

#[test]
fn layers_from_the_machine_to_the_innermost_directory() {
    let machine = Machine::new(&[
        ("etc/config.toml", "model = \"system\""),
        ("etc/managed_config.toml", "model = \"managed\""),
        ("home/.codex/config.toml", TRUSTING),
        ("p/.git/HEAD", ""),
        ("p/.codex/config.toml", "model = \"project\""),
        ("p/sub/deep/.codex/config.toml", "model = \"deep\""),
    ]);
    let expected = [
        row("etc", "system"),
        row("home/.codex", "user"),
        row("p/.codex", "project"),
        row("p/sub/deep/.codex", "deep"),
        row("etc", "managed"),
    ];
    assert_eq!(machine.layers("p/sub/deep/not/there"), expected);
    let response = machine.read("p", &["model"], &[]).unwrap();
    assert_eq!(response.config.cloud_insertion_index, 1);
    let source = format!("user ({})", machine.root.join("home/.codex/config.toml").display());
    assert_eq!(response.config.layers[1].source, source);
    assert_eq!(machine.read("p", &["none"], &[]).unwrap().config, ConfigLayers::default());
}

#[test]
fn the_response_describes_the_machine() {
    let machine = Machine::new(&[]);
    let response = machine.read("", &["model"], &["model"]).unwrap();
    assert_eq!(response.user_home_dir, Some(PathUri::from_abs_path(machine.root.join("home")).unwrap()));
    assert_eq!(response.codex_home_dir, PathUri::from_abs_path(machine.root.join("home/.codex")).unwrap());
    assert_eq!(response.hostname.as_deref(), Some("box"));
    assert_eq!((response.config, response.requirements), Default::default());
}

#[test]
fn codex_home_wins_over_home() {
    let machine = Machine::new(&[("elsewhere/config.toml", "model = \"m\"")]);
    let params = ConfigReadParams {
        cwd: PathUri::from_abs_path("/").unwrap(),
        config_paths: vec![vec!["model".to_owned()]],
        requirements_paths: vec![],
    };
    let reader = |codex_home| {
        EnvironmentConfig::new(None, codex_home, None).with_system_dir(machine.root.join("etc")).read(&params)
    };
    assert_eq!(reader(Some(machine.root.join("elsewhere"))).unwrap().config.layers.len(), 1);
    assert!(matches!(reader(Some(PathBuf::new())), Err(ConfigReadError::NoHome)));
}

#[test_case("", &["home/.codex"]; "nothing said")]
#[test_case("[projects.\"ROOT/p\"]\ntrust_level = \"untrusted\"\n", &["home/.codex"]; "root untrusted")]
#[test_case("[projects.\"ROOT/p/sub\"]\ntrust_level = \"trusted\"\n", &["home/.codex", "p/sub/.codex"]; "directory only")]
#[test_case("[projects.\"ROOT\"]\ntrust_level = \"trusted\"\n", &["home/.codex"]; "above the root")]
fn projects_need_trust(projects: &str, expected: &[&str]) {
    let machine = Machine::new(&[
        ("home/.codex/config.toml", &format!("model = \"user\"\n{projects}")),
        ("p/.git/HEAD", ""),
        ("p/.codex/config.toml", "model = [ broken"),
        ("p/sub/.codex/config.toml", "model = \"sub\"\n"),
    ]);
    let bases: Vec<_> = machine.layers("p/sub").into_iter().map(|(base, _)| base).collect();
    assert_eq!(bases, expected);
}

#[test]
fn an_untrusted_directory_in_a_trusted_project_does_not_count() {
    let user = format!("{TRUSTING}[projects.\"ROOT/p/sub\"]\ntrust_level = \"untrusted\"\n");
    let machine = Machine::new(&[
        ("home/.codex/config.toml", &user),
        ("p/.git/HEAD", ""),
        ("p/sub/.codex/config.toml", "model = [ broken"),
    ]);
    assert_eq!(machine.layers("p/sub"), [row("home/.codex", "user")]);
}

#[test]
fn a_linked_project_is_trusted_by_its_real_path() {
    let machine = Machine::new(&[
        ("home/.codex/config.toml", TRUSTING),
        ("p/.git/HEAD", ""),
        ("p/.codex/config.toml", "model = \"project\""),
    ]);
    std::os::unix::fs::symlink("p", machine.root.join("link")).unwrap();
    assert_eq!(machine.layers("link"), [row("home/.codex", "user"), row("link/.codex", "project")]);
}

#[test]
fn the_user_chooses_the_markers_of_a_root() {
    let user = format!("project_root_markers = [\".hg\"]\n{TRUSTING}");
    let machine = Machine::new(&[
        ("home/.codex/config.toml", &user),
        ("p/.hg/x", ""),
        ("p/sub/.git/HEAD", ""),
        ("p/.codex/config.toml", "model = \"project\""),
    ]);
    assert_eq!(machine.layers("p/sub"), [row("home/.codex", "user"), row("p/.codex", "project")]);
}

#[test]
fn the_home_as_a_project_is_no_second_layer() {
    let user = "model = \"user\"\n[projects.\"ROOT/home\"]\ntrust_level = \"trusted\"\n";
    let machine = Machine::new(&[("home/.codex/config.toml", user)]);
    assert_eq!(machine.layers("home"), [row("home/.codex", "user")]);
}

#[test]
fn requirements_are_stated_or_implied() {
    let machine = Machine::new(&[
        ("etc/requirements.toml", "allowed_approval_policies = [\"never\"]\n[mcp_servers.a]\nx = 1\n"),
        ("etc/managed_config.toml", "approval_policy = \"on-request\"\nsandbox_mode = \"workspace-write\"\n"),
        ("home/.codex/requirements.toml", "allowed_approval_policies = []\n"),
    ]);
    let wanted = ["allowed_approval_policies", "allowed_sandbox_modes"];
    let requirements = machine.read("", &[], &wanted).unwrap().requirements;
    assert_eq!(requirements.cloud_insertion_index, 1);
    let implied = "allowed_approval_policies = [\"on-request\"]\nallowed_sandbox_modes = [\"read-only\", \"workspace-write\"]\n";
    let expected = [("etc", "allowed_approval_policies = [\"never\"]\n"), ("etc", implied)];
    assert_eq!(machine.below(requirements), expected.map(|(base, toml)| (base.to_owned(), toml.to_owned())));
}

#[test]
fn bad_params_are_told_from_bad_files() {
    let machine = Machine::new(&[("home/.codex/config.toml", "a = 1\nmodel = [\n")]);
    let error = machine.read("", &["model"], &[]).unwrap_err();
    assert!(!error.is_invalid_params());
    let path = machine.root.join("home/.codex/config.toml");
    assert!(
        error.to_string().starts_with(&format!("'{}' is not valid TOML, line ", path.display())),
        "{error}"
    );
    assert!(machine.read("", &[], &[]).unwrap_err().is_invalid_params());
    for uri in ["file://host/x", "file:///C:/x"] {
        let params = ConfigReadParams {
            cwd: PathUri::parse(uri).unwrap(),
            config_paths: vec![vec!["a".to_owned()]],
            requirements_paths: vec![],
        };
        let reader = EnvironmentConfig::new(Some(machine.root.clone()), None, None);
        assert!(reader.read(&params).unwrap_err().is_invalid_params());
        let empty = ConfigReadParams { config_paths: vec![vec![]], ..params };
        assert!(matches!(reader.read(&empty), Err(ConfigReadError::EmptyPath)));
    }
    machine.write("home/.codex/config.toml", "model = \"fixed\"");
    assert_eq!(machine.layers(""), [row("home/.codex", "fixed")]);
    std::fs::write(&path, b"model = \"\xff\"").unwrap();
    assert!(machine.read("", &["model"], &[]).unwrap_err().to_string().contains("not UTF-8"));
}
