//! What is installed for the user: plugins in the cache of the settings directory, and skills in the homes.

mod entries;
mod plugins;
mod room;

use std::path::{Path, PathBuf};

use self::entries::{Described, describe_skills};
use self::plugins::Installed;
use self::room::{Loss, Room};
use super::allowance::AnswerAllowance;
use super::bundle::{self, Bundle};
use super::manifest::Naming;
use super::place::Place;
use super::stop::Stop;
use crate::fs::Scope;
use crate::protocol::discovery::{
    CapabilityDiscoveryRoot, DiscoverV2CapabilitiesResponse, DiscoveredPlugin, DiscoveredSkill,
};

/// Where the settings of the whole machine are.
const SYSTEM_DIR: &str = "/etc/codex";

/// Reasons that the log has of one location.
const LOGGED: usize = 20;

/// Where a user's capabilities are.
#[derive(Debug, Clone)]
pub(super) struct Homes {
    home: Option<PathBuf>,
    codex_home: Option<PathBuf>,
    pub(super) system: PathBuf,
}

impl Homes {
    pub(super) fn new(home: Option<&Path>, codex_home: Option<&Path>) -> Self {
        let owned = |path: &Path| path.to_owned();
        Self { home: home.map(owned), codex_home: codex_home.map(owned), system: SYSTEM_DIR.into() }
    }

    fn plugin_cache(&self) -> Option<Place> {
        Place::of(&self.codex_home.as_ref()?.join("plugins/cache"))
    }

    /// Directories of skills, in the order in which they are told.
    fn skill_roots(&self) -> Vec<(&'static str, Place)> {
        let directories = [
            ("codex-home-skills", self.codex_home.as_ref().map(|home| home.join("skills"))),
            ("user-agent-skills", self.home.as_ref().map(|home| home.join(".agents/skills"))),
            ("system-skills", Some(self.system.join("skills"))),
        ];
        let placed = |(id, path): (_, Option<PathBuf>)| Some((id, Place::of(&path?)?));
        directories.into_iter().filter_map(placed).collect()
    }
}

/// Takes the inventory.
pub(super) fn take(homes: &Homes, scope: &Scope, stop: &Stop) -> DiscoverV2CapabilitiesResponse {
    let mut inventory = Inventory { scope, stop, room: Room::default(), plugins: vec![], skills: vec![] };
    if let Some(cache) = homes.plugin_cache() {
        for installed in plugins::find(&cache, scope, stop, &mut inventory.room) {
            inventory.plugin(installed);
        }
    }
    for (id, root) in homes.skill_roots() {
        inventory.skills_of(id, &root);
    }
    let Inventory { room, plugins, skills, .. } = inventory;
    DiscoverV2CapabilitiesResponse { plugins, skills, warnings: room.into_warnings() }
}

struct Inventory<'a> {
    scope: &'a Scope,
    stop: &'a Stop,
    room: Room,
    plugins: Vec<DiscoveredPlugin>,
    skills: Vec<DiscoveredSkill>,
}

impl Inventory<'_> {
    /// What is at a place. A directory that is missing or cannot be read is as good as an empty one.
    fn bundle(&self, root: &Place) -> Option<Bundle> {
        if self.room.is_exhausted() || !self.stop.is_wanted() {
            return None;
        }
        let found = bundle::gather(root, self.scope, &AnswerAllowance::default(), self.stop);
        found.inspect_err(|reason| tracing::debug!(root = %root.uri, reason, "no capabilities")).ok()
    }

    fn plugin(&mut self, installed: Installed) {
        let Some(mut bundle) = self.bundle(&installed.root) else { return };
        let named =
            bundle.plugin.take().and_then(|files| Some((Naming::of(&files.manifest.contents)?, files)));
        let Some((naming, files)) = named else {
            return self.room.lose(Loss::Metadata, format_args!("{}: no manifest", installed.root.uri));
        };
        let mut plugin = DiscoveredPlugin {
            id: installed.id,
            display_name: naming.display_name(&installed.version).to_owned(),
            remote_plugin_id: installed.remote_plugin_id,
            root: installed.root.uri,
            version: installed.version,
            files,
            skills: Vec::new(),
        };
        if self.room.admit(&plugin) {
            let Described { skills, .. } = self.described(bundle, None);
            plugin.skills = skills;
            self.plugins.push(plugin);
        }
    }

    fn skills_of(&mut self, id: &str, root: &Place) {
        let Some(bundle) = self.bundle(root) else { return };
        let root = CapabilityDiscoveryRoot { id: id.to_owned(), path: root.uri.clone() };
        let Described { skills, .. } = self.described(bundle, Some(&root));
        self.skills.extend(skills);
    }

    /// The skills of a bundle for which there is room. One location complains once.
    fn described(&mut self, bundle: Bundle, root: Option<&CapabilityDiscoveryRoot>) -> Described {
        let mut described = describe_skills(&bundle, root);
        let losses = bundle.notices.kept.iter().filter(|notice| notice.is_loss()).map(ToString::to_string);
        described.left_out.extend(losses);
        if !described.left_out.is_empty() {
            let (count, some) = (described.left_out.len(), LOGGED.min(described.left_out.len()));
            let reasons = described.left_out[..some].join("; ");
            self.room.lose(Loss::Metadata, format_args!("{reasons} ({count} in all)"));
        }
        described.skills.retain(|skill| self.room.admit(skill));
        described
    }
}
