use std::path::Path;

use crate::discovery::bundle::Bundle;
use crate::discovery::manifest::Naming;
use crate::discovery::skill::{Frontmatter, Metadata};
use crate::path_uri::PathUri;
use crate::protocol::discovery::{
    CapabilityDiscoveryRoot, CapabilitySkillFiles, CapabilityTextFile, DiscoveredSkill,
};

/// The longest qualified name, in characters.
const MAX_QUALIFIED_NAME: usize = 129;

/// The skills of a bundle.
#[derive(Debug, Default)]
pub(super) struct Described {
    pub(super) skills: Vec<DiscoveredSkill>,
    /// Those that cannot be described, and why not.
    pub(super) left_out: Vec<String>,
}

/// Describes the skills of a bundle, by path.
pub(super) fn describe_skills(bundle: &Bundle, root: Option<&CapabilityDiscoveryRoot>) -> Described {
    let namespaces: Vec<Namespace> = bundle.namespace_manifests.iter().filter_map(Namespace::of).collect();
    let mut described = Described::default();
    for files in &bundle.skills {
        match skill(files, &namespaces, root) {
            Some(skill) => described.skills.push(skill),
            None => described.left_out.push(format!("{}: no usable frontmatter", files.instructions.path)),
        }
    }
    described
}

fn skill(
    files: &CapabilitySkillFiles,
    namespaces: &[Namespace],
    root: Option<&CapabilityDiscoveryRoot>,
) -> Option<DiscoveredSkill> {
    let path = &files.instructions.path;
    let native = path.to_native_path().ok()?;
    let directory = native.parent()?;
    let head = Frontmatter::of(&files.instructions.contents, &name_of(directory))?;
    let enclosing = namespaces.iter().filter(|namespace| namespace.encloses(path));
    let name = match enclosing.max_by_key(|namespace| namespace.directory.len()) {
        Some(namespace) => format!("{}:{}", namespace.name, head.name),
        None => head.name,
    };
    if name.chars().count() > MAX_QUALIFIED_NAME {
        return None;
    }
    let metadata = files.metadata.as_ref().map(|file| Metadata::of(&file.contents)).unwrap_or_default();
    Some(DiscoveredSkill {
        name,
        description: head.description,
        short_description: head.short_description,
        path: path.clone(),
        discovery_root: root.cloned(),
        dependencies: metadata.dependencies,
        policy: metadata.policy,
    })
}

/// The name of a directory, for people.
fn name_of(directory: &Path) -> String {
    directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// A plugin that names the skills below it.
#[derive(Debug)]
struct Namespace {
    /// The URI of its directory, with a slash behind it.
    directory: String,
    name: String,
}

impl Namespace {
    /// None for a manifest that is none.
    fn of(manifest: &CapabilityTextFile) -> Option<Self> {
        let naming = Naming::of(&manifest.contents)?;
        let directory = plugin_directory(&manifest.path)?;
        let native = manifest.path.to_native_path().ok()?;
        let own_name = name_of(native.parent()?.parent()?);
        Some(Self { directory, name: naming.name(&own_name).to_owned() })
    }

    fn encloses(&self, path: &PathUri) -> bool {
        path.as_str().starts_with(&self.directory)
    }
}

/// From `…/plugin/.codex-plugin/plugin.json` to `…/plugin/`.
fn plugin_directory(manifest: &PathUri) -> Option<String> {
    let (holder, _) = manifest.as_str().rsplit_once('/')?;
    let (plugin, _) = holder.rsplit_once('/')?;
    Some(format!("{plugin}/"))
}
