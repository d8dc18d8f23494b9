#[cfg(test)]
mod tests;

use serde::Deserialize;

use super::{collapse, from_yaml};

/// The longest name, in characters.
const MAX_NAME: usize = 64;

/// What the head of a `SKILL.md` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::discovery) struct Frontmatter {
    pub(in crate::discovery) name: String,
    pub(in crate::discovery) description: String,
    pub(in crate::discovery) short_description: Option<String>,
}

#[derive(Deserialize)]
struct Fields {
    name: Option<String>,
    description: Option<String>,
    metadata: Option<More>,
}

#[derive(Deserialize)]
struct More {
    #[serde(rename = "short-description")]
    short_description: Option<String>,
}

impl Frontmatter {
    /// Reads a `SKILL.md` in a directory of this name. None for one that has no head, no description, or no name that is
    /// short enough.
    pub(in crate::discovery) fn of(text: &str, directory: &str) -> Option<Self> {
        let head = head(text)?;
        let fields: Fields = from_yaml(&head).or_else(|| from_yaml(&repaired(&head)?))?;
        let text = |field: Option<String>| field.map(|text| collapse(&text)).filter(|text| !text.is_empty());
        let name = text(fields.name).or_else(|| text(Some(directory.to_owned())))?;
        if name.chars().count() > MAX_NAME {
            return None;
        }
        let short_description = fields.metadata.and_then(|more| more.short_description);
        Some(Self {
            name,
            description: text(fields.description)?,
            short_description: text(short_description),
        })
    }
}

/// The lines between the first, which is `---`, and the next that is.
fn head(text: &str) -> Option<String> {
    let mut lines = text.lines();
    let is_border = |line: &str| line.trim() == "---";
    lines.next().filter(|line| is_border(line))?;
    let mut head = String::new();
    for line in lines {
        if is_border(line) {
            return Some(head);
        }
        head.push_str(line);
        head.push('\n');
    }
    None
}

/// The head with quotes around values like `text: more`, which people write and YAML does not have.
fn repaired(head: &str) -> Option<String> {
    let mut is_changed = false;
    let mut lines = String::with_capacity(head.len() + 64);
    for line in head.lines() {
        let quoted = quoted_value(line);
        is_changed |= quoted.is_some();
        lines.push_str(quoted.as_deref().unwrap_or(line));
        lines.push('\n');
    }
    is_changed.then_some(lines)
}

fn quoted_value(line: &str) -> Option<String> {
    let (key, rest) = line.split_once(':')?;
    if key.trim_start().starts_with('#') || !rest.starts_with([' ', '\t']) {
        return None;
    }
    let value = rest.split(" #").next().unwrap_or(rest).trim();
    let is_quotable = value.contains(": ") && !value.starts_with(['"', '\'', '|', '>']);
    // YAML keeps these letters for itself.
    if !is_quotable && !value.starts_with(['@', '`']) {
        return None;
    }
    Some(format!("{key}: '{}'", value.replace('\'', "''")))
}
