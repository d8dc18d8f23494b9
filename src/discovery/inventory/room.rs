use std::fmt;

use serde::Serialize;

/// Plugins and skills that an inventory has at most.
const MAX_CAPABILITIES: usize = 2_048;
/// Bytes of JSON that an inventory has at most.
const MAX_BYTES: usize = 4_194_304;
/// Warnings that an inventory has at most.
const MAX_WARNINGS: usize = 64;
/// What of the bytes is kept for warnings and frames.
const RESERVED: usize = 8 << 10;

/// What kind of thing is missing. Clients show these sentences; they say nothing of paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    Locations,
    Metadata,
}

const SIZE: &str = "capability discovery size limit reached";

impl Loss {
    fn sentence(self) -> &'static str {
        match self {
            Self::Locations => "some capability locations could not be resolved; discovery may be incomplete",
            Self::Metadata => "some capability metadata could not be loaded; discovery may be incomplete",
        }
    }
}

/// The room that an inventory has left, and what was lost meanwhile.
#[derive(Debug)]
pub(super) struct Room {
    capabilities: usize,
    bytes: usize,
    is_over: bool,
    losses: Vec<Loss>,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            capabilities: MAX_CAPABILITIES,
            bytes: MAX_BYTES - RESERVED,
            is_over: false,
            losses: Vec::new(),
        }
    }
}

impl Room {
    /// Takes room for a capability, if there is any. One that does not fit does not keep smaller ones out.
    pub(super) fn admit(&mut self, capability: &impl Serialize) -> bool {
        let left = serde_json::to_vec(capability)
            .ok()
            .and_then(|json| self.bytes.checked_sub(json.len() + 1))
            .filter(|_| self.capabilities > 0);
        match left {
            Some(left) => {
                (self.bytes, self.capabilities) = (left, self.capabilities - 1);
                true
            }
            None => {
                self.is_over = true;
                false
            }
        }
    }

    /// Whether nothing fits any more and that is known: looking further is of no use.
    pub(super) fn is_exhausted(&self) -> bool {
        self.capabilities == 0 && self.is_over
    }

    /// Notes that something is missing; the reason is told here, not to the client.
    pub(super) fn lose(&mut self, loss: Loss, reason: fmt::Arguments<'_>) {
        if self.losses.len() < MAX_WARNINGS {
            tracing::warn!(%reason, "{}", loss.sentence());
            self.losses.push(loss);
        }
    }

    /// The most important first.
    pub(super) fn into_warnings(self) -> Vec<String> {
        let size = self.is_over.then_some(SIZE);
        let losses = self.losses.into_iter().map(Loss::sentence);
        size.into_iter().chain(losses).take(MAX_WARNINGS).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_one_does_not_keep_small_ones_out() {
        let mut room = Room::default();
        assert!(room.admit(&"x".repeat(MAX_BYTES / 2)));
        assert!(!room.admit(&"x".repeat(MAX_BYTES / 2)));
        assert!(room.admit(&"small"));
        assert!(!room.is_exhausted());
        assert_eq!(room.into_warnings(), [SIZE]);
    }

    #[test]
    fn as_many_as_may_be() {
        let mut room = Room::default();
        assert!((0..MAX_CAPABILITIES).all(|_| room.admit(&1)));
        assert!(!room.is_exhausted());
        assert!(!room.admit(&1));
        assert!(room.is_exhausted());
    }

    #[test]
    fn warnings_have_a_limit_and_the_size_comes_first() {
        let mut room = Room::default();
        for _ in 0..100 {
            room.lose(Loss::Locations, format_args!("x"));
        }
        room.admit(&"x".repeat(MAX_BYTES));
        let warnings = room.into_warnings();
        assert_eq!((warnings.len(), warnings[0].as_str()), (MAX_WARNINGS, SIZE));
        let bytes = serde_json::to_vec(&warnings).unwrap().len();
        assert!(bytes + 100 < RESERVED, "{bytes}");
    }
}
