//! The environment of a child, computed from the server's by a policy.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::protocol::process::{EnvInherit, ExecEnvPolicy};

/// Variables by name, as bytes: neither names nor values need be UTF-8.
pub type Variables = BTreeMap<Vec<u8>, Vec<u8>>;

/// What `inherit: core` keeps, compared without case.
const CORE: [&str; 11] =
    ["PATH", "SHELL", "TMPDIR", "TEMP", "TMP", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "USER"];

/// Names that look secret.
const DEFAULT_EXCLUDES: [&str; 3] = ["*KEY*", "*SECRET*", "*TOKEN*"];

/// The first name in `env` or the policy's `set` that cannot be a variable's name: empty, or with `=` in it.
#[must_use]
pub fn invalid_name<'a>(
    policy: Option<&'a ExecEnvPolicy>,
    env: &'a HashMap<String, String>,
) -> Option<&'a str> {
    let set = policy.map(|policy| policy.set.keys()).into_iter().flatten();
    let wrong = |name: &&String| name.is_empty() || name.contains('=');
    env.keys().chain(set).find(wrong).map(String::as_str)
}

/// The policy applied to what the server has. Without a policy nothing.
#[must_use]
pub fn inherited(
    policy: Option<&ExecEnvPolicy>,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Variables {
    policy.map_or_else(Variables::new, |policy| apply(policy, environment))
}

/// Lays the variables of a request over others.
pub fn lay_over(variables: &mut Variables, env: &HashMap<String, String>) {
    variables.extend(owned(env));
}

fn apply(policy: &ExecEnvPolicy, environment: impl Iterator<Item = (OsString, OsString)>) -> Variables {
    let inherits = |name: &str| match policy.inherit {
        EnvInherit::None => false,
        EnvInherit::Core => CORE.iter().any(|core| core.eq_ignore_ascii_case(name)),
        EnvInherit::All => true,
    };
    let names = NameFilter::new(Some(policy));
    let mut variables: Variables = environment
        .filter(|(name, _)| inherits(&name.to_string_lossy()) && !names.excludes(name.as_bytes()))
        .map(|(name, value)| (name.into_vec(), value.as_bytes().to_vec()))
        .collect();
    variables.extend(owned(&policy.set));
    variables.retain(|name, _| names.includes(name));
    variables
}

/// Which names a policy lets pass. Without a policy all.
#[derive(Debug, Clone, Default)]
pub struct NameFilter {
    exclude: Vec<Pattern>,
    /// Empty: everything is included.
    include: Vec<Pattern>,
}

impl NameFilter {
    /// The filter of a policy.
    #[must_use]
    pub fn new(policy: Option<&ExecEnvPolicy>) -> Self {
        let Some(policy) = policy else { return Self::default() };
        let defaults = if policy.ignore_default_excludes { &[][..] } else { &DEFAULT_EXCLUDES[..] };
        let exclude = defaults.iter().copied().chain(policy.exclude.iter().map(String::as_str));
        Self {
            exclude: exclude.map(Pattern::new).collect(),
            include: policy.include_only.iter().map(|text| Pattern::new(text)).collect(),
        }
    }

    /// Whether a default exclude or `exclude` drops the name.
    #[must_use]
    pub fn excludes(&self, name: &[u8]) -> bool {
        let name = String::from_utf8_lossy(name);
        self.exclude.iter().any(|pattern| pattern.matches(&name))
    }

    /// Whether `includeOnly` keeps the name.
    #[must_use]
    pub fn includes(&self, name: &[u8]) -> bool {
        let name = String::from_utf8_lossy(name);
        self.include.is_empty() || self.include.iter().any(|pattern| pattern.matches(&name))
    }
}

fn owned(variables: &HashMap<String, String>) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    variables.iter().map(|(name, value)| (name.clone().into_bytes(), value.clone().into_bytes()))
}

/// A pattern for whole names, without case: `*` is any run, `?` exactly one character, all else literal.
#[derive(Debug, Clone)]
pub struct Pattern(Vec<char>);

impl Pattern {
    /// Reads a pattern; every text is one. The empty one matches nothing.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(folded(text))
    }

    /// Whether the whole name matches. Linear in the product of both lengths at worst.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let name = folded(name);
        if self.0.is_empty() {
            return false;
        }
        let (mut at, mut in_name) = (0, 0);
        // Where the last star stood, and how much of the name it has taken.
        let mut star: Option<(usize, usize)> = None;
        while in_name < name.len() {
            match self.0.get(at) {
                Some('*') => {
                    star = Some((at, in_name));
                    at += 1;
                }
                Some(wanted) if *wanted == '?' || *wanted == name[in_name] => {
                    at += 1;
                    in_name += 1;
                }
                _ => match star {
                    Some((star_at, taken)) => {
                        star = Some((star_at, taken + 1));
                        at = star_at + 1;
                        in_name = taken + 1;
                    }
                    None => return false,
                },
            }
        }
        self.0[at..].iter().all(|rest| *rest == '*')
    }
}

/// Case folded character by character, so that `?` still means one character of the name.
fn folded(text: &str) -> Vec<char> {
    text.chars().map(|char| char.to_lowercase().next().unwrap_or(char)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn policy(inherit: EnvInherit) -> ExecEnvPolicy {
        ExecEnvPolicy {
            inherit,
            ignore_default_excludes: false,
            exclude: Vec::new(),
            set: HashMap::new(),
            include_only: Vec::new(),
        }
    }

    fn environment() -> impl Iterator<Item = (OsString, OsString)> {
        ["PATH", "path", "monkey", "API_TOKEN", "PLAIN", "Home"]
            .into_iter()
            .map(|name| (name.into(), "v".into()))
    }

    fn names(policy: &ExecEnvPolicy) -> Vec<String> {
        let variables = inherited(Some(policy), environment());
        variables.into_keys().map(|name| String::from_utf8(name).unwrap()).collect()
    }

    #[test]
    fn the_steps_of_a_policy() {
        assert_eq!(names(&policy(EnvInherit::All)), ["Home", "PATH", "PLAIN", "path"]);
        assert_eq!(names(&policy(EnvInherit::Core)), ["Home", "PATH", "path"]);
        assert!(names(&policy(EnvInherit::None)).is_empty());
        let mut full = policy(EnvInherit::All);
        full.ignore_default_excludes = true;
        full.exclude = vec!["p*".into()];
        full.set = HashMap::from([("PATH".into(), "set".into()), ("X_SECRET".into(), "1".into())]);
        assert_eq!(names(&full), ["API_TOKEN", "Home", "PATH", "X_SECRET", "monkey"]);
        full.include_only = vec!["*secret".into(), "MONKE?".into()];
        assert_eq!(names(&full), ["X_SECRET", "monkey"]);
    }

    #[test]
    fn without_a_policy_nothing_is_inherited() {
        let mut variables = inherited(None, environment());
        lay_over(&mut variables, &HashMap::from([("A".to_owned(), "1".to_owned())]));
        assert_eq!(variables, Variables::from([(b"A".to_vec(), b"1".to_vec())]));
    }

    #[test]
    fn bytes_that_are_no_text_pass_through() {
        let odd = || [(OsString::from_vec(vec![b'N', 0xff]), OsString::from_vec(vec![0xfe]))].into_iter();
        let variables = inherited(Some(&policy(EnvInherit::All)), odd());
        assert_eq!(variables, Variables::from([(vec![b'N', 0xff], vec![0xfe])]));
    }

    #[test]
    fn names_that_cannot_be() {
        let none = HashMap::new();
        for bad in ["", "A=B", "="] {
            let env = HashMap::from([(bad.to_owned(), String::new())]);
            assert_eq!(invalid_name(None, &env), Some(bad));
            let mut set = policy(EnvInherit::None);
            set.set = env;
            assert_eq!(invalid_name(Some(&set), &none), Some(bad));
        }
        assert_eq!(invalid_name(Some(&policy(EnvInherit::All)), &none), None);
    }

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("", "", false),
            ("*", "", true),
            ("*", "x", true),
            ("?", "", false),
            ("?", "é", true),
            ("?", "ab", false),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "aXbY", false),
            ("ÄÖ", "äö", true),
            ("a.c", "abc", false),
            ("[ab]", "a", false),
            ("***", "anything", true),
            ("*key*", "MONKEY", true),
            ("*aab", "aaaab", true),
        ] {
            assert_eq!(Pattern::new(pattern).matches(name), expected, "{pattern:?} {name:?}");
        }
    }

    /// The definition, slow and plain.
    fn model(pattern: &[char], name: &[char]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some(('*', rest)) => (0..=name.len()).any(|skip| model(rest, &name[skip..])),
            Some((wanted, rest)) => name
                .split_first()
                .is_some_and(|(first, name)| (*wanted == '?' || wanted == first) && model(rest, name)),
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_the_definition(pattern in "[ab*?]{1,8}", name in "[ab]{0,10}") {
            let (chars, letters): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
            prop_assert_eq!(Pattern::new(&pattern).matches(&name), model(&chars, &letters));
        }
    }
}
