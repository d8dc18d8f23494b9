use std::collections::BTreeMap;
use std::ffi::OsStr;

use serde::Deserialize;

use super::room::{Loss, Room};
use crate::discovery::place::Place;
use crate::discovery::stop::Stop;
use crate::fs::Scope;
use crate::fsops::{self, Entry, Links};
use crate::protocol::failure::FileErrorKind;

/// Plugins that are looked at.
const MAX_PLUGINS: usize = 512;
/// Entries of the cache that are looked at, and of the directory of one plugin.
const MAX_ENTRIES: usize = 20_000;

/// The version of a plugin that is being developed: it wins over all others.
const LOCAL_VERSION: &str = "local";

/// What was noted when a plugin was installed.
const INSTALL_FILE: &str = ".codex-remote-plugin-install.json";
const MAX_INSTALL_BYTES: u64 = 16 << 10;
const MAX_REMOTE_ID: usize = 1_024;

/// A plugin in the cache.
#[derive(Debug)]
pub(super) struct Installed {
    /// `name@marketplace`.
    pub(super) id: String,
    pub(super) version: String,
    /// The directory of that version.
    pub(super) root: Place,
    pub(super) remote_plugin_id: Option<String>,
}

/// The plugins in a cache, by id.
pub(super) fn find(cache: &Place, scope: &Scope, stop: &Stop, room: &mut Room) -> Vec<Installed> {
    let mut found = Vec::new();
    for (id, plugin) in candidates(cache, scope, stop, room) {
        if !stop.is_wanted() {
            break;
        }
        let Some(version) = version(&plugin, scope, room) else { continue };
        if found.len() == MAX_PLUGINS {
            room.lose(Loss::Locations, format_args!("{}: more than {MAX_PLUGINS} plugins", cache.uri));
            break;
        }
        let remote_plugin_id = remote_plugin_id(&plugin.child(INSTALL_FILE), scope, room);
        found.push(Installed { id, root: plugin.child(&version), version, remote_plugin_id });
    }
    found
}

/// The directories of plugins, by their ids.
fn candidates(cache: &Place, scope: &Scope, stop: &Stop, room: &mut Room) -> BTreeMap<String, Place> {
    let mut left = MAX_ENTRIES;
    let mut found = BTreeMap::new();
    for market in directories(cache, &mut left, scope, room) {
        let Some(market_name) = valid(&market.name, is_marketplace).filter(|_| stop.is_wanted()) else {
            continue;
        };
        let market = cache.child(&market.name);
        for plugin in directories(&market, &mut left, scope, room) {
            if let Some(name) = valid(&plugin.name, is_plugin) {
                found.insert(format!("{name}@{market_name}"), market.child(&plugin.name));
            }
        }
    }
    found
}

/// The directories in a directory, links to some among them.
fn directories(place: &Place, left: &mut usize, scope: &Scope, room: &mut Room) -> Vec<Entry> {
    let Ok(mut listing) = fsops::list_some(scope.route(&place.path), *left) else { return Vec::new() };
    *left -= listing.entries.len();
    if listing.is_cut {
        room.lose(Loss::Locations, format_args!("{}: more than {MAX_ENTRIES} entries", place.uri));
    }
    listing.entries.retain(|entry| entry.is_directory);
    listing.entries
}

fn valid(name: &OsStr, is_valid: fn(&str) -> bool) -> Option<&str> {
    name.to_str().filter(|name| is_valid(name))
}

fn is_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_')
}

fn is_marketplace(name: &str) -> bool {
    !name.is_empty() && name.chars().all(is_word)
}

/// Words with single dots between them.
fn is_plugin(name: &str) -> bool {
    name.split('.').all(is_marketplace)
}

fn is_version(name: &str) -> bool {
    name.chars().all(|letter| is_word(letter) || matches!(letter, '.' | '+'))
}

/// The version that counts: `local`, or the highest. Links are none.
fn version(plugin: &Place, scope: &Scope, room: &mut Room) -> Option<String> {
    let mut left = MAX_ENTRIES;
    let entries = directories(plugin, &mut left, scope, room);
    let own = entries.iter().filter(|entry| entry.link_target.is_none());
    highest(own.filter_map(|entry| valid(&entry.name, is_version))).map(str::to_owned)
}

fn highest<'a>(versions: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let is_higher =
        |one: &str, other: &str| match (semver::Version::parse(one), semver::Version::parse(other)) {
            (Ok(one), Ok(other)) => one > other,
            _ => one > other,
        };
    versions.reduce(|best, version| match (best, version) {
        (LOCAL_VERSION, _) | (_, LOCAL_VERSION) => LOCAL_VERSION,
        _ if is_higher(version, best) => version,
        _ => best,
    })
}

#[derive(Deserialize)]
struct Install {
    schema_version: u64,
    remote_plugin_id: String,
}

fn remote_plugin_id(file: &Place, scope: &Scope, room: &mut Room) -> Option<String> {
    let text = match fsops::read_file(scope.route(&file.path), Links::Follow, MAX_INSTALL_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == FileErrorKind::NotFound => return None,
        Err(error) => {
            room.lose(Loss::Locations, format_args!("{error}"));
            return None;
        }
    };
    let id = noted_id(&text);
    if id.is_none() {
        room.lose(Loss::Locations, format_args!("{}: no id of a plugin", file.uri));
    }
    id
}

fn noted_id(text: &[u8]) -> Option<String> {
    let install: Install =
        serde_json::from_slice(text).ok().filter(|noted: &Install| noted.schema_version == 1)?;
    let id = install.remote_plugin_id.trim();
    (!id.is_empty() && id.len() <= MAX_REMOTE_ID).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case("UP_x-1", true, true; "words")]
    #[test_case("-x", true, true; "a dash in front")]
    #[test_case("do.t", true, false; "a dot")]
    #[test_case(".x", false, false; "a dot in front")]
    #[test_case("x.", false, false; "a dot behind")]
    #[test_case("a..b", false, false; "two dots")]
    #[test_case("a+b", false, false; "a plus")]
    #[test_case("a b", false, false; "a space")]
    #[test_case("@a", false, false; "an at sign")]
    #[test_case("\u{fc}", false, false; "another letter")]
    #[test_case("", false, false; "nothing")]
    fn ids(name: &str, is_valid_plugin: bool, is_valid_marketplace: bool) {
        assert_eq!((is_plugin(name), is_marketplace(name)), (is_valid_plugin, is_valid_marketplace));
    }

    #[test_case(&["1.10.0", "1.9.0"], "1.10.0"; "by number")]
    #[test_case(&["1.10.0", "1.10.0-rc1"], "1.10.0"; "before a candidate")]
    #[test_case(&["1.0.0", "1.0.0+a", "1.0.0+b"], "1.0.0+b"; "by build")]
    #[test_case(&["0.1.0", "abc", "zzz"], "zzz"; "others by letter")]
    #[test_case(&["9.9.9", "local", "zzz"], "local"; "local")]
    fn versions(names: &[&str], expected: &str) {
        assert_eq!(highest(names.iter().copied()), Some(expected));
        assert_eq!(highest(names.iter().rev().copied()), Some(expected));
    }

    #[test_case(r#"{"schema_version":1,"remote_plugin_id":" a b/\u00fc ","x":1}"#, Some("a b/\u{fc}"); "an id")]
    #[test_case(r#"{"schema_version":2,"remote_plugin_id":"r"}"#, None; "another schema")]
    #[test_case(r#"{"remote_plugin_id":"r"}"#, None; "no schema")]
    #[test_case(r#"{"schema_version":1}"#, None; "no id")]
    #[test_case(r#"{"schema_version":1,"remote_plugin_id":" "}"#, None; "a blank id")]
    #[test_case("x", None; "no json")]
    fn installs(text: &str, expected: Option<&str>) {
        assert_eq!(noted_id(text.as_bytes()).as_deref(), expected);
    }

    #[test]
    fn ids_have_1024_bytes_at_most() {
        let noted = |length| {
            noted_id(
                format!(r#"{{"schema_version":1,"remote_plugin_id":"{}"}}"#, "i".repeat(length)).as_bytes(),
            )
        };
        assert!(noted(1024).is_some() && noted(1025).is_none());
    }
}
