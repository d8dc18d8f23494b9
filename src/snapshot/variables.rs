//! What of the environment that the start-up files leave is carried into other starts.

use std::collections::BTreeSet;

use super::error::CaptureError;
use crate::process::env::{NameFilter, Variables};
use crate::protocol::network::{
    ACTIVE_VARIABLE, ALL_VARIABLES, BYPASS_VARIABLES, HTTP_VARIABLES, OTHER_VARIABLES,
};
use crate::protocol::process::ExecEnvPolicy;

/// Everything that is exported, before any of it is filtered.
const MAX_EXPORTED: usize = 512 << 10;
/// What the kernel takes for one variable, its name and `=` included, without the NUL.
const MAX_VARIABLE: usize = (128 << 10) - 1;
/// What belongs to one run of a shell.
const OF_ONE_RUN: [&[u8]; 7] = [b"PWD", b"OLDPWD", b"SHLVL", b"_", b"SHELLOPTS", b"BASHOPTS", b"IFS"];
/// What the start-up files did to the environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// What they set to another value than was passed, as far as the policy lets it pass.
    pub(super) set: Variables,
    /// What was passed and is gone.
    pub(super) unset: BTreeSet<Vec<u8>>,
}

/// Checks the limits of what is exported.
pub(super) fn check(exported: &[(Vec<u8>, Vec<u8>)]) -> Result<(), CaptureError> {
    let size = |(name, value): &(Vec<u8>, Vec<u8>)| name.len() + 1 + value.len();
    if exported.iter().any(|variable| size(variable) > MAX_VARIABLE) {
        return Err(CaptureError::TooLarge { what: "an exported variable", limit: MAX_VARIABLE });
    }
    if exported.iter().map(|variable| size(variable) + 1).sum::<usize>() > MAX_EXPORTED {
        return Err(CaptureError::TooLarge { what: "the exported environment", limit: MAX_EXPORTED });
    }
    Ok(())
}

impl Changes {
    /// What is exported now, compared with what was passed.
    ///
    /// What was passed unchanged is in the environment of each start anyway, if it belongs there; a variable of one
    /// request must not get into another's that way.
    pub(super) fn between(passed: &Variables, exported: &Variables, policy: Option<&ExecEnvPolicy>) -> Self {
        let names = NameFilter::new(policy);
        let is_set_by_policy =
            |name: &[u8]| policy.is_some_and(|policy| policy.set.keys().any(|set| set.as_bytes() == name));
        let behind_proxy = [exported, passed].iter().any(|all| all.contains_key(ACTIVE_VARIABLE.as_bytes()));
        let is_carried = |name: &[u8]| {
            is_identifier(name) && !OF_ONE_RUN.contains(&name) && !(behind_proxy && is_of_proxy(name))
        };
        let set = exported
            .iter()
            .filter(|(name, value)| is_carried(name) && passed.get(*name) != Some(value))
            .filter(|(name, _)| !names.excludes(name) && !is_set_by_policy(name) && names.includes(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let gone = |name: &&Vec<u8>| is_carried(name) && !exported.contains_key(*name);
        Self { set, unset: passed.keys().filter(gone).cloned().collect() }
    }

    /// Lays the changes over what a start inherits.
    pub(super) fn apply(&self, variables: &mut Variables) {
        variables.retain(|name, _| !self.unset.contains(name));
        variables.extend(self.set.iter().map(|(name, value)| (name.clone(), value.clone())));
    }

    /// Bytes in memory.
    pub(super) fn size(&self) -> usize {
        let set = self.set.iter().map(|(name, value)| name.len() + value.len());
        set.chain(self.unset.iter().map(Vec::len)).sum()
    }
}

/// Whether shells take the name for a variable's. Others pass through some shells and not through others.
pub(super) fn is_identifier(name: &[u8]) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
    name.first().is_some_and(is_letter) && name.iter().all(|byte| is_letter(byte) || byte.is_ascii_digit())
}

/// Whether managed networking sets the variable: an address of one run, never to be used by another.
fn is_of_proxy(name: &[u8]) -> bool {
    let names = HTTP_VARIABLES.iter().chain(&ALL_VARIABLES).chain(&BYPASS_VARIABLES).chain(&OTHER_VARIABLES);
    // Some clients set the last one.
    names.chain(&[ACTIVE_VARIABLE, "YARN_NO_PROXY"]).any(|known| known.as_bytes().eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use pretty_assertions::assert_eq;

    use super::*;
    use crate::protocol::process::EnvInherit;

    fn variables(text: &str) -> Variables {
        let pair = |word: &str| word.split_once('=').map(|(name, value)| (name.into(), value.into()));
        text.split_whitespace().filter_map(pair).collect()
    }

    fn policy(exclude: &str, set: &str, include: &str) -> ExecEnvPolicy {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        let set = set.split_whitespace().filter_map(|word| word.split_once('='));
        ExecEnvPolicy {
            inherit: EnvInherit::None,
            ignore_default_excludes: false,
            exclude: words(exclude),
            set: set.map(|(name, value)| (name.into(), value.into())).collect::<HashMap<_, _>>(),
            include_only: words(include),
        }
    }

    #[test]
    fn only_changes_are_carried() {
        let passed = variables("A=1 B=2 C=3 ONCE=secret");
        let exported = variables("A=1 B=changed ONCE=secret NEW=n PWD=/x OLDPWD=/y SHLVL=2 _=z a-b=1");
        let changes = Changes::between(&passed, &exported, None);
        assert_eq!(changes.set, variables("B=changed NEW=n"));
        assert_eq!(changes.unset, BTreeSet::from([b"C".to_vec()]));
        let mut other = variables("A=other C=inherited D=4");
        changes.apply(&mut other);
        assert_eq!(other, variables("A=other B=changed NEW=n D=4"));
    }

    #[test]
    fn the_policy_filters_once() {
        let exported = variables("PLAIN=1 MY_KEY=1 my_token=1 PLUS=1 SET=profile OTHER=1");
        let carried =
            |policy: &ExecEnvPolicy| Changes::between(&Variables::new(), &exported, Some(policy)).set;
        assert_eq!(carried(&policy("PLU?", "SET=s", "")), variables("PLAIN=1 OTHER=1"));
        assert_eq!(carried(&policy("", "", "pl* *key")), variables("PLAIN=1 PLUS=1"));
        let everything = ExecEnvPolicy { ignore_default_excludes: true, ..policy("", "", "") };
        assert_eq!(carried(&everything), exported);
    }

    #[test]
    fn names_that_only_some_shells_keep_are_not_taken_for_unset() {
        let passed = variables("a-b=1 BASH_FUNC_f%%=x PWD=/ REAL=1");
        assert_eq!(
            Changes::between(&passed, &Variables::new(), None).unset,
            BTreeSet::from([b"REAL".to_vec()])
        );
    }

    #[test]
    fn the_address_of_a_managed_proxy_is_never_carried() {
        let proxy = "HTTP_PROXY=a no_proxy= npm_config_noproxy= NODE_USE_ENV_PROXY=1 YARN_NO_PROXY=b";
        let managed = variables(&format!("CODEX_NETWORK_PROXY_ACTIVE=1 MINE=1 {proxy}"));
        assert_eq!(Changes::between(&Variables::new(), &managed, None).set, variables("MINE=1"));
        // Without the marker it is the profile's own proxy.
        let own = variables(proxy);
        assert_eq!(Changes::between(&Variables::new(), &own, None).set, own);
    }

    #[test]
    fn limits() {
        let one = |name: usize, value: usize| (vec![b'n'; name], vec![b'v'; value]);
        assert_eq!(check(&[one(1, MAX_VARIABLE - 2)]), Ok(()));
        assert!(check(&[one(1, MAX_VARIABLE - 1)]).is_err());
        assert_eq!(check(&vec![one(10, 1012); 512]), Ok(()));
        assert!(check(&vec![one(10, 1012); 513]).is_err());
    }
}
