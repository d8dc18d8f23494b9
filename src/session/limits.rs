//! Which limits a run gets: those that it asks for, within what the settings and this machine allow.

use std::sync::Arc;

use super::{Session, StartError};
use crate::process::Terms;
use crate::protocol::limits::{ProcessLimit, ProcessLimits};
use crate::spawn::cgroup::{Hierarchy, Need};

/// The limits of the settings, and what this machine can hold runs to.
#[derive(Debug, Clone, Default)]
pub struct LimitPolicy {
    default: ProcessLimits,
    max: ProcessLimits,
    host: LimitHost,
}

/// What holds runs to their limits on this machine.
#[derive(Debug, Clone)]
pub struct LimitHost(Result<Arc<Hierarchy>, String>);

impl Default for LimitHost {
    fn default() -> Self {
        Self::without_cgroups("it has no cgroups of its own")
    }
}

impl LimitHost {
    /// A server with cgroups of its own.
    #[must_use]
    pub fn with(groups: Arc<Hierarchy>) -> Self {
        Self(Ok(groups))
    }

    /// A server without, for this reason.
    #[must_use]
    pub fn without_cgroups(reason: &str) -> Self {
        Self(Err(reason.to_owned()))
    }

    /// The cgroups, if there are any.
    #[must_use]
    pub fn groups(&self) -> Option<&Arc<Hierarchy>> {
        self.0.as_ref().ok()
    }

    /// Why a whole tree cannot be held to a limit; `None` if it can.
    fn why_not(&self, limit: ProcessLimit) -> Option<&str> {
        match (Need::of(limit), &self.0) {
            (Need::Nothing, _) | (Need::Group, Ok(_)) => None,
            (Need::Controller(controller), Ok(groups)) => groups.why_not(controller),
            (Need::Group | Need::Controller(_), Err(reason)) => Some(reason),
        }
    }
}

impl LimitPolicy {
    /// The policy of these settings.
    ///
    /// # Errors
    /// A sentence that names the key: a default above its ceiling, or a limit that this machine cannot hold runs to.
    pub fn new(default: ProcessLimits, max: ProcessLimits, host: LimitHost) -> Result<Self, String> {
        let policy = Self { default, max, host };
        for limit in ProcessLimit::ALL {
            let key = limit.key();
            if let (Some(default), Some(max)) = (default.get(limit), max.get(limit))
                && default > max
            {
                return Err(format!("limits.default.{key} is {default}, above limits.max.{key}, {max}"));
            }
            let table = if default.get(limit).is_some() { "default" } else { "max" };
            if policy.of_a_start_without(limit).is_some()
                && let Some(reason) = policy.host.why_not(limit)
            {
                return Err(format!("limits.{table}.{key} cannot be enforced: {reason}"));
            }
        }
        Ok(policy)
    }

    /// The cgroups of the runs, if there are any.
    #[must_use]
    pub fn groups(&self) -> Option<&Arc<Hierarchy>> {
        self.host.groups()
    }

    /// The limits of a run that asks for these.
    ///
    /// # Errors
    /// [`StartError::InvalidParams`], naming the limit.
    pub(super) fn resolve(&self, asked: Option<&ProcessLimits>) -> Result<ProcessLimits, StartError> {
        let mut limits = ProcessLimits::default();
        for limit in ProcessLimit::ALL {
            let value = match asked.and_then(|asked| asked.get(limit)) {
                Some(value) => Some(self.checked(limit, value).map_err(StartError::InvalidParams)?),
                None => self.of_a_start_without(limit),
            };
            limits.set(limit, value);
        }
        Ok(limits)
    }

    /// A ceiling that a start could get over by not asking would be none.
    fn of_a_start_without(&self, limit: ProcessLimit) -> Option<u64> {
        self.default.get(limit).or(self.max.get(limit))
    }

    fn checked(&self, limit: ProcessLimit, value: u64) -> Result<u64, String> {
        if value == 0 {
            return Err(format!("`limits.{limit}` must be 1 or more; leave it out for no limit"));
        }
        if let Some(max) = self.max.get(limit).filter(|max| value > *max) {
            return Err(format!("`limits.{limit}` must be at most {max} here (limits.max.{})", limit.key()));
        }
        match self.host.why_not(limit) {
            Some(reason) => Err(format!("`limits.{limit}` cannot be enforced: {reason}")),
            None => Ok(value),
        }
    }
}

impl Session {
    /// On what terms a run goes on.
    pub(super) fn terms(&self, limits: ProcessLimits) -> Terms {
        Terms {
            mark: self.mark.run(),
            groups: self.groups.clone(),
            limits,
            oom_score_adj: self.executor.settings().child_oom_score_adj,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Those that need nothing of the machine.
    const HELD_ANYWHERE: [ProcessLimit; 3] =
        [ProcessLimit::WallMs, ProcessLimit::OutputBytes, ProcessLimit::OpenFiles];

    fn values() -> impl Strategy<Value = ProcessLimits> {
        proptest::collection::vec(proptest::option::of(prop_oneof![0..9_u64, any::<u64>()]), 6).prop_map(
            |values| {
                let mut limits = ProcessLimits::default();
                ProcessLimit::ALL.into_iter().zip(values).for_each(|(limit, value)| limits.set(limit, value));
                limits
            },
        )
    }

    fn only(limits: &ProcessLimits, kept: &[ProcessLimit]) -> ProcessLimits {
        let mut only = ProcessLimits::default();
        kept.iter().for_each(|limit| only.set(*limit, limits.get(*limit)));
        only
    }

    proptest! {
        #[test]
        fn a_run_gets_what_it_asks_for_within_the_ceiling_or_is_refused_by_name(
            default in values(), max in values(), asked in values(),
        ) {
            let (default, max) = (only(&default, &HELD_ANYWHERE), only(&max, &HELD_ANYWHERE));
            let above = |limit| default.get(limit).zip(max.get(limit)).is_some_and(|(default, max)| default > max);
            let Ok(policy) = LimitPolicy::new(default, max, LimitHost::default()) else {
                prop_assert!(ProcessLimit::ALL.into_iter().any(above));
                return Ok(());
            };
            prop_assert!(!ProcessLimit::ALL.into_iter().any(above));
            let is_wrong = |limit: ProcessLimit| asked.get(limit).is_some_and(|value| {
                value == 0 || max.get(limit).is_some_and(|max| value > max) || !HELD_ANYWHERE.contains(&limit)
            });
            match policy.resolve(Some(&asked)) {
                Err(StartError::InvalidParams(message)) => {
                    let named = ProcessLimit::ALL.into_iter().find(|limit| is_wrong(*limit)).unwrap();
                    prop_assert!(message.starts_with(&format!("`limits.{named}`")), "{message}");
                }
                Err(other) => prop_assert!(false, "{other}"),
                Ok(limits) => for limit in ProcessLimit::ALL {
                    prop_assert!(!is_wrong(limit));
                    let expected = asked.get(limit).or(default.get(limit)).or(max.get(limit));
                    prop_assert_eq!(limits.get(limit), expected);
                },
            }
        }
    }

    #[test]
    fn a_setting_that_cannot_be_enforced_is_refused_by_its_key() {
        let memory = ProcessLimits { memory_bytes: Some(1 << 30), ..ProcessLimits::default() };
        let none = ProcessLimits::default();
        let host = || LimitHost::without_cgroups("no cgroup v2");
        let error = LimitPolicy::new(memory, none, host()).unwrap_err();
        assert_eq!(error, "limits.default.memory_bytes cannot be enforced: no cgroup v2");
        let error = LimitPolicy::new(none, memory, host()).unwrap_err();
        assert_eq!(error, "limits.max.memory_bytes cannot be enforced: no cgroup v2");
    }
}
