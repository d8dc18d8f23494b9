use serde::Serialize;
use serde_json::{Map, Value};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

/// What is kept of a text that somebody else chose.
const TEXT_CHARS: usize = 1024;
/// What is kept of a structure that somebody else chose.
const VALUE_BYTES: usize = 8 << 10;

/// What happened, and when.
#[derive(Debug, Clone)]
pub struct Entry(Map<String, Value>);

impl Entry {
    /// An entry of this moment.
    #[must_use]
    pub fn new(event: &'static str) -> Self {
        let mut time = String::new();
        // Writing to a string does not fail.
        let _ = SystemTime.format_time(&mut Writer::new(&mut time));
        let mut members = Map::new();
        members.insert("time".to_owned(), time.into());
        members.insert("event".to_owned(), event.into());
        Self(members)
    }

    /// With a text, cut where it is too long.
    #[must_use]
    pub fn text(self, name: &'static str, text: &str) -> Self {
        let cut = match text.char_indices().nth(TEXT_CHARS) {
            Some((end, _)) => format!("{}…", &text[..end]).into(),
            None => text.into(),
        };
        self.member(name, cut)
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
        self.member(name, value.into())
    }

    /// With a structure, or its size if it is too large.
    #[must_use]
    pub fn value(self, name: &'static str, value: &impl Serialize) -> Self {
        let value = serde_json::to_value(value).unwrap_or_default();
        let bytes = value.to_string().len();
        let kept = if bytes <= VALUE_BYTES { value } else { format!("too large: {bytes} bytes").into() };
        self.member(name, kept)
    }

    /// With the members of another one behind its own.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        self.0.extend(other.0.into_iter().filter(|(name, _)| name != "time" && name != "event"));
        self
    }

    fn member(mut self, name: &'static str, value: Value) -> Self {
        self.0.insert(name.to_owned(), value);
        self
    }

    /// As a line of the log.
    pub(super) fn into_line(self) -> String {
        let mut line = Value::Object(self.0).to_string();
        line.push('\n');
        line
    }
}
