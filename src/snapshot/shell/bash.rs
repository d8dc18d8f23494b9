//! bash, in its own mode and in POSIX mode.

use std::collections::BTreeSet;

use super::quote::quoted;
use super::{RELEASE, Replay, State, field, identifier, own, unopened};
use crate::process::env::{NameFilter, Variables};
use crate::snapshot::error::CaptureError;
use crate::snapshot::records::{Fields, Mark};

pub(super) const LOGIN: &str = include_str!("scripts/bash_login.sh");
pub(super) const STARTUP: &str = include_str!("scripts/bash_startup.sh");
pub(super) const STATE: &str = include_str!("scripts/bash_state.sh");

/// The variable that carries the value of `BASH_ENV` past its use for the state.
pub(in crate::snapshot) const KEPT_BASH_ENV: &str = "__EXEC_SERVER_BASH_ENV";

/// Gives `BASH_ENV` the value that it has for the command.
const KEEP_BASH_ENV: &[u8] = b"if [[ ${BASH_ENV-} == /dev/fd/9 ]]; then unset -v BASH_ENV; fi
if [[ -v __EXEC_SERVER_BASH_ENV ]]; then export BASH_ENV=$__EXEC_SERVER_BASH_ENV; unset -v __EXEC_SERVER_BASH_ENV; fi
";

/// Begins every prelude of bash and of sh; the script knows by it how it is run.
pub(super) const PRELUDE: &str = r"\. /dev/fd/9 2>/dev/null;";

/// Options that a shell has from its start, or that only mean something at a terminal.
const NEVER_TURNED_OFF: [&str; 7] = ["emacs", "history", "monitor", "noexec", "onecmd", "privileged", "vi"];
const NEVER_TURNED_ON: [&str; 2] = ["noexec", "onecmd"];
/// Turned on at the end, each in its own way.
const LAST: [&str; 3] = ["errexit", "posix", "xtrace"];
const READ_ONLY: [&str; 2] = ["login_shell", "restricted_shell"];
/// What bash says of itself.
#[derive(Debug, Default)]
struct Answer {
    options: String,
    shopts: String,
    option_names: Vec<String>,
    shopt_names: Vec<String>,
    functions: Vec<u8>,
    /// Functions named like what the script itself runs at its end.
    tools: Vec<u8>,
    attributes: Vec<u8>,
    aliases: Vec<u8>,
    arrays: Vec<(Vec<u8>, Vec<u8>)>,
    exported: Vec<(Vec<u8>, Vec<u8>)>,
    readable: bool,
    descriptors: bool,
}

/// Names as words of the capture script.
pub(super) fn words(names: &[&[u8]]) -> String {
    let words = names.iter().map(|name| String::from_utf8_lossy(&quoted(name)).into_owned());
    words.collect::<Vec<_>>().join(" ")
}

/// Whether bash starts in POSIX mode, in which it reads no `BASH_ENV`.
pub(in crate::snapshot) fn starts_in_posix_mode(shown_as: &str, env: &Variables) -> bool {
    let name = shown_as.rsplit('/').next().unwrap_or(shown_as);
    let options = env.get(b"SHELLOPTS".as_slice());
    matches!(name, "sh" | "-sh")
        || env.contains_key(b"POSIXLY_CORRECT".as_slice())
        || env.contains_key(b"POSIX_PEDANTIC".as_slice())
        || options.is_some_and(|options| options.split(|byte| *byte == b':').any(|option| option == b"posix"))
}

/// With `BASH_ENV` bash reads that file before a script could read the login files, and there is no other to read.
pub(super) fn reads_login_files_by_script(shown_as: &str, env: &Variables) -> bool {
    !starts_in_posix_mode(shown_as, env) && !env.contains_key(b"BASH_ENV".as_slice())
}

pub(super) fn read(fields: Fields, mark: &Mark, names: &NameFilter) -> Result<State, CaptureError> {
    let mut answer = Answer::read(fields)?;
    if !answer.descriptors {
        return Err(unopened());
    }
    if !answer.readable {
        return Err(CaptureError::BadRecord("bash cannot read a function as it prints it"));
    }
    answer.exported = own(std::mem::take(&mut answer.exported), mark);
    // bash exports no arrays.
    let arrays: BTreeSet<Vec<u8>> = answer.arrays.iter().map(|(name, _)| name.clone()).collect();
    answer.exported.retain(|(name, _)| !arrays.contains(name));
    answer.arrays.retain(|(name, _)| !names.excludes(name));
    let script = answer.script();
    let trace = if has(&answer.options, "xtrace") { r"\set -x;" } else { "" };
    let replay = Replay::Bash {
        prelude: format!(r#"{PRELUDE}\eval "\shift;{trace}$1""#),
        // In a start-up file it would start the debugger.
        as_startup_file: !has(&answer.shopts, "extdebug"),
    };
    Ok(State { exported: answer.exported, script, replay })
}

impl Answer {
    fn read(mut fields: Fields) -> Result<Self, CaptureError> {
        let mut answer = Self::default();
        while let Some(tag) = fields.next() {
            let value = field(&mut fields)?;
            match tag.as_slice() {
                b"set" => answer.options = text(value),
                b"shopt" => answer.shopts = text(value),
                b"names" => answer.read_names(&value),
                b"functions" => (answer.attributes, answer.functions) = split_after(value, b"declare -f"),
                b"tools" => answer.tools = value,
                b"array" => answer.arrays.push((identifier(value)?, field(&mut fields)?)),
                b"export" => answer.exported.push((value, field(&mut fields)?)),
                b"readable" => answer.readable = true,
                b"descriptors" => answer.descriptors = true,
                b"wc" => super::note_count(&value),
                _ => return Err(CaptureError::BadRecord("a field is unknown")),
            }
        }
        Ok(answer)
    }

    /// Lines `set -o NAME` or `set +o NAME`, then `shopt -s NAME` or `shopt -u NAME`, then the aliases, whose lines may
    /// be anything.
    fn read_names(&mut self, lines: &[u8]) {
        let (options, rest) = split_after(lines.to_vec(), b"set ");
        let (shopts, aliases) = split_after(rest, b"shopt ");
        self.option_names = option_names(&options);
        self.shopt_names = option_names(&shopts);
        self.aliases = aliases;
    }

    /// What puts the state back. Everything is defined before the options that change how bash reads, but for the last
    /// group, which bash reads whole before it runs any of it.
    fn script(&self) -> Vec<u8> {
        let mut script = Vec::from(RELEASE);
        script.extend_from_slice(KEEP_BASH_ENV);
        script.extend_from_slice(b"set +o posix\nshopt -u expand_aliases\nshopt -s extglob\n");
        for (_, declaration) in &self.arrays {
            push_line(&mut script, declaration);
        }
        push_line(&mut script, &self.aliases);
        push_line(&mut script, &self.functions);
        script.extend_from_slice(b"{\n");
        self.push_shopts(&mut script);
        self.push_attributes(&mut script);
        self.push_options(&mut script);
        push_line(&mut script, &self.tools);
        if has(&self.options, "posix") {
            // No function can stand in for an assignment. It is not traced where a function set before is.
            script.extend_from_slice(b"{ POSIXLY_CORRECT=y; } 2>/dev/null\n");
        }
        script.extend_from_slice(b"}\n");
        script
    }

    fn push_shopts(&self, script: &mut Vec<u8>) {
        let names = || self.shopt_names.iter().filter(|name| !READ_ONLY.contains(&name.as_str()));
        let aliases = !self.aliases.is_empty();
        let wanted = |name: &&String| has(&self.shopts, name) || (aliases && *name == "expand_aliases");
        // To turn a compatibility level off would set another one.
        for name in names().filter(|name| !wanted(name) && !name.starts_with("compat")) {
            push_line(script, format!("shopt -u {name}").as_bytes());
        }
        for name in names().filter(wanted) {
            push_line(script, format!("shopt -s {name}").as_bytes());
        }
    }

    /// Attributes of functions beyond being one, as lines `declare -fx NAME`.
    fn push_attributes(&self, script: &mut Vec<u8>) {
        for line in self.attributes.split(|byte| *byte == b'\n') {
            let Some(rest) = line.strip_prefix(b"declare -f") else { continue };
            let Some(space) = rest.iter().position(|byte| *byte == b' ') else { continue };
            let (flags, name) = (&rest[..space], &rest[space + 1..]);
            if !flags.is_empty() && flags.iter().all(u8::is_ascii_lowercase) {
                push_line(script, &[b"declare -f", flags, b" ", &quoted(name)].concat());
            }
        }
    }

    fn push_options(&self, script: &mut Vec<u8>) {
        let on = |name: &&String| has(&self.options, name);
        let names = || self.option_names.iter().filter(|name| !LAST.contains(&name.as_str()));
        for name in names().filter(|name| !on(name) && !NEVER_TURNED_OFF.contains(&name.as_str())) {
            push_line(script, format!("set +o {name}").as_bytes());
        }
        for name in names().filter(|name| on(name) && !NEVER_TURNED_ON.contains(&name.as_str())) {
            push_line(script, format!("set -o {name}").as_bytes());
        }
        if has(&self.options, "errexit") {
            push_line(script, b"set -o errexit");
        }
        if has(&self.options, "xtrace") {
            // The prelude would be traced; it turns the option on itself.
            let line = format!(r"[[ $BASH_EXECUTION_STRING == {}* ]] || set -o xtrace", quoted_text(PRELUDE));
            push_line(script, line.as_bytes());
        }
    }
}

fn push_line(script: &mut Vec<u8>, line: &[u8]) {
    script.extend_from_slice(line);
    if !line.is_empty() && !line.ends_with(b"\n") {
        script.push(b'\n');
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

fn quoted_text(text: &str) -> String {
    String::from_utf8_lossy(&quoted(text.as_bytes())).into_owned()
}

/// Whether a list with colons, as in `SHELLOPTS`, has the name.
fn has(list: &str, name: &str) -> bool {
    list.split(':').any(|one| one == name)
}

/// The lines at the beginning that begin so, and the rest.
fn split_after(text: Vec<u8>, beginning: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut end = 0;
    while text[end..].starts_with(beginning) {
        end += text[end..].iter().position(|byte| *byte == b'\n').map_or(text.len() - end, |line| line + 1);
    }
    let rest = text[end..].to_vec();
    (text[..end].to_vec(), rest)
}

/// The names in lines such as `set +o NAME` or `shopt -s NAME`.
fn option_names(lines: &[u8]) -> Vec<String> {
    let names =
        lines.split(|byte| *byte == b'\n').filter_map(|line| line.rsplit(|byte| *byte == b' ').next());
    let is_name = |name: &&[u8]| {
        !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(byte))
    };
    names.filter(is_name).map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}
