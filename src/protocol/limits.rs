//! Limits of a process tree, by name.

use std::fmt;

use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Limits of a process tree; absent members do not limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProcessLimits {
    /// Memory of the tree, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Processes and threads of the tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Processor time of the tree, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// Time from the start, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_ms: Option<u64>,
    /// Bytes of output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
    /// Open files of each process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
}

/// One of the [`ProcessLimits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ProcessLimit {
    /// [`ProcessLimits::memory_bytes`].
    MemoryBytes,
    /// [`ProcessLimits::processes`].
    Processes,
    /// [`ProcessLimits::cpu_ms`].
    CpuMs,
    /// [`ProcessLimits::wall_ms`].
    WallMs,
    /// [`ProcessLimits::output_bytes`].
    OutputBytes,
    /// [`ProcessLimits::open_files`].
    OpenFiles,
}

impl ProcessLimit {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 6] =
        [Self::MemoryBytes, Self::Processes, Self::CpuMs, Self::WallMs, Self::OutputBytes, Self::OpenFiles];

    /// The name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MemoryBytes => "memoryBytes",
            Self::Processes => "processes",
            Self::CpuMs => "cpuMs",
            Self::WallMs => "wallMs",
            Self::OutputBytes => "outputBytes",
            Self::OpenFiles => "openFiles",
        }
    }

    /// The name in the configuration.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::MemoryBytes => "memory_bytes",
            Self::Processes => "processes",
            Self::CpuMs => "cpu_ms",
            Self::WallMs => "wall_ms",
            Self::OutputBytes => "output_bytes",
            Self::OpenFiles => "open_files",
        }
    }
}

impl fmt::Display for ProcessLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ProcessLimits {
    /// The value of a limit.
    #[must_use]
    pub const fn get(&self, limit: ProcessLimit) -> Option<u64> {
        match limit {
            ProcessLimit::MemoryBytes => self.memory_bytes,
            ProcessLimit::Processes => self.processes,
            ProcessLimit::CpuMs => self.cpu_ms,
            ProcessLimit::WallMs => self.wall_ms,
            ProcessLimit::OutputBytes => self.output_bytes,
            ProcessLimit::OpenFiles => self.open_files,
        }
    }

    /// Sets the value of a limit.
    pub const fn set(&mut self, limit: ProcessLimit, value: Option<u64>) {
        let place = match limit {
            ProcessLimit::MemoryBytes => &mut self.memory_bytes,
            ProcessLimit::Processes => &mut self.processes,
            ProcessLimit::CpuMs => &mut self.cpu_ms,
            ProcessLimit::WallMs => &mut self.wall_ms,
            ProcessLimit::OutputBytes => &mut self.output_bytes,
            ProcessLimit::OpenFiles => &mut self.open_files,
        };
        *place = value;
    }

    /// Whether none is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Unknown members are ignored. Every error names the member.
impl<'de> Deserialize<'de> for ProcessLimits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Value::Object(members) = Value::deserialize(deserializer)? else {
            return Err(D::Error::custom("`limits` must be an object"));
        };
        let mut limits = Self::default();
        for limit in ProcessLimit::ALL {
            let value = match members.get(limit.name()) {
                None | Some(Value::Null) => None,
                Some(value) => Some(value.as_u64().ok_or_else(|| {
                    D::Error::custom(format_args!("`limits.{limit}` must be a whole number, 1 or more"))
                })?),
            };
            limits.set(limit, value);
        }
        Ok(limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_limit_has_its_member_and_its_name() {
        for (number, limit) in (1_u64..).zip(ProcessLimit::ALL) {
            let mut limits = ProcessLimits::default();
            limits.set(limit, Some(number));
            assert_eq!(limits.get(limit), Some(number));
            assert_eq!(serde_json::to_value(limits).unwrap(), json!({limit.name(): number}));
            assert_eq!(serde_json::to_value(limit).unwrap(), Value::from(limit.name()));
            assert_eq!(
                serde_json::from_value::<ProcessLimits>(json!({limit.name(): number})).unwrap(),
                limits
            );
            let others = ProcessLimit::ALL.into_iter().filter(|other| *other != limit);
            assert!(others.into_iter().all(|other| limits.get(other).is_none()));
            assert!(!limits.is_empty());
        }
    }
}
