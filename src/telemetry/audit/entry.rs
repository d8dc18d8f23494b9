use std::collections::HashSet;
use std::sync::Arc;
use std::time::SystemTime;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// What is kept of a text that somebody else chose.
const TEXT_BYTES: usize = 1024;
/// What is kept of a structure that somebody else chose.
const VALUE_BYTES: usize = 8 << 10;
/// What the texts and structures of an entry have together, without those that it shares with others.
const ENTRY_BYTES: usize = 16 << 10;

/// What happened, and when.
#[derive(Debug, Clone)]
pub struct Entry {
    time: SystemTime,
    event: &'static str,
    /// Who did it.
    by: Option<Arc<Entry>>,
    members: Vec<(&'static str, Member)>,
    /// Of the members.
    bytes: usize,
}

#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
enum Member {
    Plain(Value),
    Text(String),
    Structure(Box<RawValue>),
}

impl Member {
    fn bytes(&self) -> usize {
        match self {
            Self::Plain(_) => 0,
            Self::Text(text) => text.len(),
            Self::Structure(json) => json.get().len(),
        }
    }
}

impl Entry {
    /// An entry of this moment.
    #[must_use]
    pub fn new(event: &'static str) -> Self {
        Self::at(SystemTime::now(), event)
    }

    /// An entry of a moment that has passed.
    #[must_use]
    pub const fn at(time: SystemTime, event: &'static str) -> Self {
        Self { time, event, by: None, members: Vec::new(), bytes: 0 }
    }

    /// With the members of another one, but for those that it has itself.
    #[must_use]
    pub fn by(self, somebody: Arc<Self>) -> Self {
        Self { by: Some(somebody), ..self }
    }

    /// With a text, cut where it is too long.
    #[must_use]
    pub fn text(self, name: &'static str, text: &str) -> Self {
        let end = text.floor_char_boundary(TEXT_BYTES);
        let cut = if end < text.len() { format!("{}…", &text[..end]) } else { text.to_owned() };
        self.member(name, Member::Text(cut))
    }

    /// With a text, if there is one.
    #[must_use]
    pub fn optional(self, name: &'static str, text: Option<&str>) -> Self {
        match text {
            Some(text) => self.text(name, text),
            None => self,
        }
    }

    /// With a number, or true or false.
    #[must_use]
    pub fn plain(self, name: &'static str, value: impl Into<Value>) -> Self {
        self.member(name, Member::Plain(value.into()))
    }

    /// With a structure, or its size if it is too large.
    #[must_use]
    pub fn value(self, name: &'static str, value: &impl Serialize) -> Self {
        match serde_json::value::to_raw_value(value) {
            Ok(json) if json.get().len() <= VALUE_BYTES => self.member(name, Member::Structure(json)),
            Ok(json) => self.member(name, too_large(json.get().len())),
            Err(error) => self.text(name, &format!("cannot be encoded: {error}")),
        }
    }

    fn member(mut self, name: &'static str, value: Member) -> Self {
        let bytes = value.bytes();
        let value = if self.bytes + bytes <= ENTRY_BYTES { value } else { too_large(bytes) };
        self.bytes += value.bytes();
        self.members.push((name, value));
        self
    }

    /// As a line of the log.
    pub(super) fn line(&self) -> String {
        // It has nothing that JSON cannot say.
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }
}

fn too_large(bytes: usize) -> Member {
    Member::Text(format!("too large: {bytes} bytes"))
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let own: HashSet<&str> = self.members.iter().map(|(name, _)| *name).collect();
        let others = self.by.iter().flat_map(|by| &by.members).filter(|(name, _)| !own.contains(name));
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("time", &humantime::format_rfc3339_micros(self.time).to_string())?;
        map.serialize_entry("event", self.event)?;
        for (name, value) in others.chain(&self.members) {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}
