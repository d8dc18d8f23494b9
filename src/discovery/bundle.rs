//! Reads what a scan has found, as far as the limits allow.

use super::allowance::{AnswerAllowance, FILE_BYTES, ROOT_BYTES};
use super::manifest::{Declarations, Declared, MANIFEST_DIRS, MANIFEST_FILE, declared_names};
use super::notice::{Matter, Notices};
use super::place::Place;
use super::scan::{self, SKILL_FILE};
use super::stop::Stop;
use crate::fs::Scope;
use crate::fsops::{self, Links};
use crate::path_uri::PathUri;
use crate::protocol::discovery::{
    CapabilityPluginFiles, CapabilityRootDiscovery, CapabilitySkillFiles, CapabilityTextFile,
};
use crate::protocol::failure::FileErrorKind;

/// Where a plugin has its servers and apps, unless its manifest says otherwise.
const MCP_FILE: &str = ".mcp.json";
const APPS_FILE: &str = ".app.json";
/// What is said of a skill beside its instructions.
const METADATA: [&str; 2] = ["agents", "openai.yaml"];

/// The files of a root.
#[derive(Debug)]
pub(super) struct Bundle {
    pub(super) plugin: Option<CapabilityPluginFiles>,
    pub(super) skills: Vec<CapabilitySkillFiles>,
    pub(super) namespace_manifests: Vec<CapabilityTextFile>,
    pub(super) notices: Notices,
}

/// Scans a root and reads what it finds.
///
/// # Errors
///
/// Why the root cannot be scanned, for people.
pub(super) fn gather(
    root: &Place,
    scope: &Scope,
    answer: &AnswerAllowance,
    stop: &Stop,
) -> Result<Bundle, String> {
    let found = scan::scan(root, scope, stop).map_err(|error| error.to_string())?;
    let mut reader = Reader { scope, answer, stop, left: ROOT_BYTES, notices: found.notices };
    let own = reader.manifest_of(root);
    let first = match &own {
        Some(manifest) => reader.again(manifest),
        None => reader.enclosing_manifest(root),
    };
    let below = found.manifests.values().filter_map(|place| reader.read(place));
    let namespace_manifests = first.into_iter().chain(below.collect::<Vec<_>>()).collect();
    let plugin = own.map(|manifest| reader.plugin(root, manifest));
    let skills = found.skills.iter().filter_map(|directory| reader.skill(directory)).collect();
    Ok(Bundle { plugin, skills, namespace_manifests, notices: reader.notices })
}

impl Bundle {
    pub(super) fn into_discovery(
        self,
        id: String,
        path: PathUri,
        answer: &AnswerAllowance,
    ) -> CapabilityRootDiscovery {
        CapabilityRootDiscovery {
            id,
            path,
            plugin: self.plugin,
            skills: self.skills,
            namespace_manifests: self.namespace_manifests,
            warnings: warnings(&self.notices, answer),
            error: None,
        }
    }
}

/// The notices for people, as many as there is room for.
fn warnings(notices: &Notices, answer: &AnswerAllowance) -> Vec<String> {
    let texts = notices.kept.iter().map(ToString::to_string);
    let mut warnings: Vec<String> = texts.take_while(|text| answer.take("", text)).collect();
    let rest = notices.kept.len() - warnings.len() + notices.others;
    if rest > 0 {
        warnings.push(format!("{rest} further warnings are left out"));
    }
    warnings
}

struct Reader<'a> {
    scope: &'a Scope,
    answer: &'a AnswerAllowance,
    stop: &'a Stop,
    left: usize,
    notices: Notices,
}

impl Reader<'_> {
    /// A file, if it is there and may be delivered.
    fn read(&mut self, place: &Place) -> Option<CapabilityTextFile> {
        if !self.stop.is_wanted() {
            return None;
        }
        match self.text(place) {
            Ok(contents) => contents.map(|contents| CapabilityTextFile { path: place.uri.clone(), contents }),
            Err(matter) => {
                self.notices.add(&place.uri, matter);
                None
            }
        }
    }

    fn text(&mut self, place: &Place) -> Result<Option<String>, Matter> {
        let bytes = match fsops::read_file(self.scope.route(&place.path), Links::Follow, FILE_BYTES) {
            Ok(bytes) => bytes,
            Err(error) => {
                return match error.kind() {
                    FileErrorKind::NotFound | FileErrorKind::NotDirectory | FileErrorKind::NotRegularFile => {
                        Ok(None)
                    }
                    FileErrorKind::TooLarge => Err(Matter::Large),
                    _ => Err(Matter::Unread(error)),
                };
            }
        };
        let text =
            String::from_utf8(bytes).map_err(|error| Matter::NotUtf8(error.utf8_error().valid_up_to()))?;
        let left = self.left.checked_sub(text.len()).ok_or(Matter::RootFull)?;
        if !self.answer.take(place.uri.as_str(), &text) {
            return Err(Matter::AnswerFull);
        }
        self.left = left;
        Ok(Some(text))
    }

    /// The same file for another part of the answer, if there is room.
    fn again(&mut self, file: &CapabilityTextFile) -> Option<CapabilityTextFile> {
        if self.answer.take(file.path.as_str(), &file.contents) {
            return Some(file.clone());
        }
        self.notices.add(&file.path, Matter::AnswerFull);
        None
    }

    /// The first manifest of a directory that can be read.
    fn manifest_of(&mut self, directory: &Place) -> Option<CapabilityTextFile> {
        MANIFEST_DIRS.iter().find_map(|kind| self.read(&directory.below([*kind, MANIFEST_FILE])))
    }

    /// The manifest of the nearest directory above that has one.
    fn enclosing_manifest(&mut self, root: &Place) -> Option<CapabilityTextFile> {
        let above = root.path.ancestors().skip(1).filter_map(Place::of);
        above.into_iter().find_map(|directory| self.manifest_of(&directory))
    }

    fn plugin(&mut self, root: &Place, manifest: CapabilityTextFile) -> CapabilityPluginFiles {
        let declared = Declarations::of(&manifest.contents);
        let mcp_config = match &declared.mcp_servers {
            // Apps are read all the same.
            Declared::Inline => None,
            other => self.declared(root, &manifest.path, "mcpServers", other, MCP_FILE),
        };
        let apps_config = self.declared(root, &manifest.path, "apps", &declared.apps, APPS_FILE);
        CapabilityPluginFiles { manifest, mcp_config, apps_config }
    }

    /// The declared file, or the usual one where none is declared.
    fn declared(
        &mut self,
        root: &Place,
        manifest: &PathUri,
        key: &'static str,
        declared: &Declared,
        usual: &str,
    ) -> Option<CapabilityTextFile> {
        if let Declared::File(path) = declared {
            match declared_names(path) {
                Ok(names) => return self.read(&root.below(names)),
                Err(why) => self.notices.add(manifest, Matter::Declaration(key, why)),
            }
        }
        self.read(&root.child(usual))
    }

    fn skill(&mut self, directory: &Place) -> Option<CapabilitySkillFiles> {
        let instructions = self.read(&directory.child(SKILL_FILE))?;
        Some(CapabilitySkillFiles { instructions, metadata: self.read(&directory.below(METADATA)) })
    }
}
