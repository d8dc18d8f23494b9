//! What a plugin's manifest declares, as far as discovery needs it. Pure.

#[cfg(test)]
mod tests;

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Directories that hold a manifest, the one that counts first.
pub(super) const MANIFEST_DIRS: [&str; 3] = [".codex-plugin", ".claude-plugin", ".cursor-plugin"];
/// The manifest in one of them.
pub(super) const MANIFEST_FILE: &str = "plugin.json";

/// The files that a manifest declares.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Declarations {
    pub(super) mcp_servers: Declared,
    pub(super) apps: Declared,
}

impl Declarations {
    /// A text that is no manifest declares nothing.
    pub(super) fn of(manifest: &str) -> Self {
        serde_json::from_str(manifest).unwrap_or_default()
    }
}

/// Where a manifest says that something is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Declared {
    /// Nothing that counts is said.
    #[default]
    Nowhere,
    /// In the manifest itself.
    Inline,
    /// In a file.
    File(String),
}

/// Why a declared path does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadPath {
    #[error("the path must start with `./`")]
    NotRelative,
    #[error("the path must remain below the plugin's directory")]
    NotBelow,
}

/// The names on the way to a declared file. Nothing in them is decoded.
pub(super) fn declared_names(path: &str) -> Result<Vec<&str>, BadPath> {
    let below = path.strip_prefix("./").ok_or(BadPath::NotRelative)?;
    let leaves = below.split(['/', '\\']).any(|name| name == "..");
    if below.is_empty() || below.contains('\0') || leaves {
        return Err(BadPath::NotBelow);
    }
    Ok(below.split('/').filter(|name| !matches!(*name, "" | ".")).collect())
}

impl<'de> Deserialize<'de> for Declared {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DeclaredVisitor)
    }
}

/// Keeps nothing of what it does not need, however large.
struct DeclaredVisitor;

macro_rules! nowhere {
    ($($visit:ident($value:ty)),*) => {
        $(fn $visit<E>(self, _: $value) -> Result<Declared, E> { Ok(Declared::Nowhere) })*
    };
}

impl<'de> Visitor<'de> for DeclaredVisitor {
    type Value = Declared;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    nowhere!(visit_bool(bool), visit_i64(i64), visit_u64(u64), visit_f64(f64));

    fn visit_unit<E>(self) -> Result<Declared, E> {
        Ok(Declared::Nowhere)
    }

    fn visit_str<E>(self, path: &str) -> Result<Declared, E> {
        Ok(Declared::File(path.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Declared, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Declared::Nowhere)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Declared, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Declared::Inline)
    }
}

/// What a plugin is called.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub(super) struct Naming {
    name: String,
    interface: Option<Object<Interface>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Interface {
    display_name: Option<String>,
}

/// A value that is written as an object. A bare struct could be written as the list of its values too.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

impl Naming {
    /// None for a text that is no manifest.
    pub(super) fn of(manifest: &str) -> Option<Self> {
        serde_json::from_str::<Object<Self>>(manifest).ok().map(|Object(naming)| naming)
    }

    /// The name for programs: that of the directory where the manifest has none.
    pub(super) fn name<'a>(&'a self, directory: &'a str) -> &'a str {
        if self.name.trim().is_empty() { directory } else { &self.name }
    }

    /// The name for people.
    pub(super) fn display_name<'a>(&'a self, directory: &'a str) -> &'a str {
        let given = self.interface.as_ref().and_then(|Object(interface)| interface.display_name.as_deref());
        given.map(str::trim).filter(|name| !name.is_empty()).unwrap_or_else(|| self.name(directory))
    }
}
