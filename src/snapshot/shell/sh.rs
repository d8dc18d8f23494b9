//! dash and its relatives, whose functions nobody can list.

use super::quote::{quoted, unquoted};
use super::{RELEASE, Replay, State, bash, field, own, unopened};
use crate::snapshot::error::CaptureError;
use crate::snapshot::records::{Fields, Mark};

pub(super) const STARTUP: &str = include_str!("scripts/sh_startup.sh");
pub(super) const STATE: &str = include_str!("scripts/sh_state.sh");

/// Options that belong to how the shell is run.
const OF_THE_RUN: [&str; 6] = ["interactive", "stdin", "noexec", "privileged", "debug", "xtrace"];

pub(super) fn read(mut fields: Fields, mark: &Mark) -> Result<State, CaptureError> {
    let (mut options, mut exports, mut aliases, mut descriptors) =
        (Vec::new(), Vec::new(), Vec::new(), false);
    while let Some(tag) = fields.next() {
        let value = field(&mut fields)?;
        match tag.as_slice() {
            b"options" => options = enabled(&value),
            b"exports" => exports = exported(&value).ok_or(UNREADABLE)?,
            b"aliases" => aliases = assignments(&value).ok_or(UNREADABLE)?,
            b"descriptors" => descriptors = true,
            b"wc" => super::note_count(&value),
            _ => return Err(CaptureError::BadRecord("a field is unknown")),
        }
    }
    if !descriptors {
        return Err(unopened());
    }
    let trace = if options.iter().any(|option| option == "xtrace") { r"\set -x;" } else { "" };
    let prelude = format!(r#"{}\eval "\shift;{trace}$1""#, bash::PRELUDE);
    let replay = Replay::Prelude { flag: "-c", prelude };
    Ok(State { exported: own(exports, mark), script: script(&options, &aliases), replay })
}

const UNREADABLE: CaptureError = CaptureError::BadRecord("the shell quotes in a way that is not known");

fn script(options: &[String], aliases: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut script = Vec::from(RELEASE);
    for (name, value) in aliases {
        script.extend([b"\\alias ", quoted(name).as_slice(), b"=", &quoted(value), b"\n"].concat());
    }
    for option in options.iter().filter(|option| !OF_THE_RUN.contains(&option.as_str())) {
        script.extend(format!("\\set -o {option}\n").into_bytes());
    }
    script
}

/// The options that are on in the list of `set -o`.
fn enabled(list: &[u8]) -> Vec<String> {
    let list = String::from_utf8_lossy(list);
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, state) = (words.next()?, words.next()?);
        let is_name = name.bytes().all(|byte| byte.is_ascii_lowercase());
        (is_name && state == "on" && words.next().is_none()).then(|| name.to_owned())
    };
    list.lines().filter_map(row).collect()
}

/// The output of `export -p`. Names without a value are in no environment.
fn exported(text: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let (mut variables, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        rest = rest.strip_prefix(b"export ")?;
        let end = rest.iter().position(|byte| b"=\n".contains(byte)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        match after {
            [b'=', value @ ..] => {
                let (value, after) = unquoted(value)?;
                variables.push((name.to_vec(), value));
                rest = after;
            }
            [] => rest = after,
            [_, after @ ..] => rest = after,
        }
    }
    Some(variables)
}

/// The output of `alias`: lines `NAME='VALUE'`, values of several lines included.
fn assignments(text: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let (mut aliases, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        rest = rest.strip_prefix(b"alias ").unwrap_or(rest);
        let end = rest.iter().position(|byte| *byte == b'=')?;
        let (value, after) = unquoted(&rest[end + 1..])?;
        aliases.push((rest[..end].to_vec(), value));
        rest = after;
    }
    Some(aliases)
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        Some(pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect())
    }

    #[test]
    fn exports() {
        let text = b"export A='1'\nexport EMPTY\nexport B='two\nexport C='\"'\"''\nexport D=''";
        assert_eq!(exported(text), pairs(&[("A", "1"), ("B", "two\nexport C='"), ("D", "")]));
        assert_eq!(exported(b"typeset -x A=1\n"), None);
        assert_eq!(exported(b"export A=$'x'\n"), None);
    }

    #[test]
    fn aliases() {
        assert_eq!(
            assignments(b"mi='printf \"x\"'\na;b='c'\n"),
            pairs(&[("mi", "printf \"x\""), ("a;b", "c")])
        );
        assert_eq!(assignments(b"junk\n"), None);
        let script =
            script(&["nounset".to_owned(), "stdin".to_owned()], &[(b"a;b".to_vec(), b"it's".to_vec())]);
        assert_eq!(script, b"\\exec 9<&-\n\\alias 'a;b'='it'\\''s'\n\\set -o nounset\n");
    }

    #[test]
    fn options() {
        let list = b"Current option settings\nerrexit         off\nnounset         on\nX-Y on\n";
        assert_eq!(enabled(list), ["nounset"]);
    }
}
