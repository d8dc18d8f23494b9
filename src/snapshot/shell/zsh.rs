//! zsh.

use super::quote::quoted;
use super::{RELEASE, Replay, State, field, identifier, own, unopened};
use crate::process::env::NameFilter;
use crate::snapshot::error::CaptureError;
use crate::snapshot::records::{Fields, Mark};

pub(super) const SCRIPT: &str = include_str!("scripts/zsh.zsh");

/// Options that belong to how the shell is run, and those that are turned on in another way.
const NOT_IN_SCRIPT: [&str; 13] = [
    "allexport",
    "exec",
    "interactive",
    "monitor",
    "onecmd",
    "privileged",
    "restricted",
    "shinstdin",
    "singlecommand",
    "stdin",
    "verbose",
    "xtrace",
    "zle",
];
/// Turned on before functions are read, since it says what stands in their quotes.
const QUOTES: &str = "rcquotes";
/// Turned on at the end of the prelude, since it would be traced.
const TRACES: [&str; 2] = ["xtrace", "verbose"];
/// Last, or what is assigned to after it would be exported. By assignment only where nothing else is left: it leaves a
/// variable of the option's name.
const EXPORT_ALL: &[u8] =
    b"if (( ${+functions[setopt]} )); then options[allexport]=on; else setopt allexport; fi\n";
/// Attributes of arrays, as zsh names them and as its `typeset` takes them.
const ATTRIBUTES: [(&str, char); 5] =
    [("export", 'x'), ("lower", 'l'), ("readonly", 'r'), ("unique", 'U'), ("upper", 'u')];
/// An array that zsh keeps and that has no mark of it.
const SIGNALS: &[u8] = b"signals";

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

#[derive(Debug, Default)]
struct Answer {
    options: Vec<(String, bool)>,
    functions: Pairs,
    aliases: Pairs,
    global_aliases: Pairs,
    suffix_aliases: Pairs,
    arrays: Vec<Array>,
    exported: Pairs,
    evaluator: Option<Vec<u8>>,
    readable: bool,
    descriptors: bool,
}

#[derive(Debug)]
struct Array {
    name: Vec<u8>,
    /// Words with dashes: what it is, then its attributes.
    kind: String,
    /// Of an association, keys and values in turn.
    elements: Vec<Vec<u8>>,
}

pub(super) fn read(fields: Fields, mark: &Mark, names: &NameFilter) -> Result<State, CaptureError> {
    let mut answer = Answer::read(fields)?;
    if !answer.descriptors {
        return Err(unopened());
    }
    if !answer.readable {
        return Err(CaptureError::BadRecord("zsh cannot read a function as it prints it"));
    }
    answer
        .arrays
        .retain(|array| !mark.names(&array.name) && array.name != SIGNALS && !names.excludes(&array.name));
    let script = answer.script();
    let prelude = answer.prelude()?;
    let replay = Replay::Prelude { flag: "-fc", prelude };
    Ok(State { exported: own(answer.exported, mark), script, replay })
}

impl Answer {
    fn read(mut fields: Fields) -> Result<Self, CaptureError> {
        let mut answer = Self::default();
        while let Some(tag) = fields.next() {
            let value = field(&mut fields)?;
            match tag.as_slice() {
                b"options" => answer.options = options(&value),
                b"function" => answer.functions.push((value, field(&mut fields)?)),
                b"alias" => answer.aliases.push((value, field(&mut fields)?)),
                b"global-alias" => answer.global_aliases.push((value, field(&mut fields)?)),
                b"suffix-alias" => answer.suffix_aliases.push((value, field(&mut fields)?)),
                b"array" => answer.arrays.push(Array::read(identifier(value)?, &mut fields)?),
                b"export" => answer.exported.push((value, field(&mut fields)?)),
                b"evaluator" => answer.evaluator = Some(value),
                b"readable" => answer.readable = true,
                b"descriptors" => answer.descriptors = true,
                b"wc" => super::note_count(&value),
                _ => return Err(CaptureError::BadRecord("a field is unknown")),
            }
        }
        Ok(answer)
    }

    /// What puts the state back: from the functions on by assignments alone, which no function can stand in for. The
    /// last group is read whole before any of it is run, since options change how zsh reads.
    fn script(&self) -> Vec<u8> {
        let mut script = Vec::from(RELEASE);
        if self.is_on(QUOTES) {
            script.extend_from_slice(b"options[rcquotes]=on\n");
        }
        for array in &self.arrays {
            array.push_to(&mut script);
        }
        push_table(&mut script, "functions", &self.functions);
        push_table(&mut script, "aliases", &self.aliases);
        push_table(&mut script, "galiases", &self.global_aliases);
        push_table(&mut script, "saliases", &self.suffix_aliases);
        script.extend_from_slice(b"{\n");
        for (name, on) in self.options.iter().filter(|(name, _)| !NOT_IN_SCRIPT.contains(&name.as_str())) {
            script.extend(format!("options[{name}]={}\n", if *on { "on" } else { "off" }).into_bytes());
        }
        if self.is_on("allexport") {
            script.extend_from_slice(EXPORT_ALL);
        }
        script.extend_from_slice(b"}\n");
        script
    }

    /// The command is an argument, so that it can be read after the state is there, aliases and all.
    fn prelude(&self) -> Result<String, CaptureError> {
        let evaluator = match self.evaluator.as_deref() {
            Some(b"eval") => "eval",
            Some(b"builtin eval") => "builtin eval",
            _ => return Err(CaptureError::BadRecord("functions stand in for both `eval` and `builtin`")),
        };
        let traces = TRACES.iter().filter(|name| self.is_on(name));
        // The end of the assignment would be traced.
        let traces: String = traces.map(|name| format!("{{ options[{name}]=on; }} 2>/dev/null;")).collect();
        Ok(format!(r#". /dev/fd/9 2>/dev/null;{evaluator} 'argv=("${{@:2}}");{traces}'"$1""#))
    }

    fn is_on(&self, option: &str) -> bool {
        self.options.iter().any(|(name, on)| *on && name == option)
    }
}

impl Array {
    fn read(name: Vec<u8>, fields: &mut Fields) -> Result<Self, CaptureError> {
        let kind = String::from_utf8_lossy(&field(fields)?).into_owned();
        let count = field(fields)?;
        let count: Option<usize> = std::str::from_utf8(&count).ok().and_then(|text| text.parse().ok());
        let count = count.ok_or(CaptureError::BadRecord("an array has no length"))?;
        let elements: Vec<Vec<u8>> = fields.by_ref().take(count).collect();
        Ok(Self { name, kind, elements })
    }

    fn push_to(&self, script: &mut Vec<u8>) {
        let is = |word: &str| self.kind.split('-').any(|one| one == word);
        if !is("special") {
            let mut flags = String::from(if is("association") { "A" } else { "a" });
            flags.extend(ATTRIBUTES.iter().filter(|(attribute, _)| is(attribute)).map(|(_, flag)| flag));
            script.extend(format!("typeset -{flags} ").into_bytes());
        }
        script.extend_from_slice(&self.name);
        push_list(script, self.elements.iter());
    }
}

fn push_table(script: &mut Vec<u8>, table: &str, rows: &Pairs) {
    script.extend_from_slice(table.as_bytes());
    push_list(script, rows.iter().flat_map(|(name, value)| [name, value]));
}

fn push_list<'a>(script: &mut Vec<u8>, words: impl Iterator<Item = &'a Vec<u8>>) {
    script.extend_from_slice(b"=(");
    for word in words {
        script.push(b' ');
        script.extend_from_slice(&quoted(word));
    }
    script.extend_from_slice(b" )\n");
}

/// Names and states in turn, with spaces between.
fn options(text: &[u8]) -> Vec<(String, bool)> {
    let text = String::from_utf8_lossy(text);
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let pairs = words.chunks_exact(2).filter(|pair| is_name(pair[0]));
    pairs.map(|pair| (pair[0].to_owned(), pair[1] == "on")).collect()
}
