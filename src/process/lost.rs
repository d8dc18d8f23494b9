//! Exact accounts of output that is gone.

use crate::protocol::process::LostOutput;

/// Positions remembered; beyond that every second one is forgotten.
const POSITIONS: usize = 16 << 10;

/// Where lost chunks ended, so that a reader can be told how much it misses from wherever it stands.
///
/// Output is lost from its oldest end only, so everything up to the last position is gone. A reader that stands
/// between two remembered positions is told the amount from the earlier one: too much rather than too little. That
/// happens only to readers more than [`POSITIONS`] tiny chunks behind.
#[derive(Debug, Default)]
pub(super) struct LostLedger {
    /// (number, output bytes up to and with it), ascending.
    positions: Vec<(u64, u64)>,
}

impl LostLedger {
    /// Everything up to this number, where the output had this position, is lost. Returns how many bytes of it were
    /// not before.
    pub(super) fn through(&mut self, seq: u64, position: u64) -> u64 {
        let (last_seq, last_position) = self.positions.last().copied().unwrap_or_default();
        if seq <= last_seq {
            return 0;
        }
        if self.positions.len() >= POSITIONS {
            let mut odd = false;
            self.positions.retain(|_| {
                odd = !odd;
                odd
            });
        }
        self.positions.push((seq, position));
        position - last_position
    }

    /// The last lost number, 0 if nothing is lost.
    pub(super) fn last_seq(&self) -> u64 {
        self.positions.last().map_or(0, |(seq, _)| *seq)
    }

    /// Where the lost output ends.
    pub(super) fn position(&self) -> u64 {
        self.positions.last().map_or(0, |(_, position)| *position)
    }

    /// What a reader that has everything up to `after` will never get.
    pub(super) fn after(&self, after: u64) -> Option<LostOutput> {
        let &(last_seq, lost_to) = self.positions.last()?;
        if after >= last_seq {
            return None;
        }
        let known = self.positions.partition_point(|(seq, _)| *seq <= after);
        let had = known.checked_sub(1).map_or(0, |index| self.positions[index].1);
        Some(LostOutput { bytes: lost_to - had, first_seq: after + 1, last_seq })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_is_lost_at_first() {
        assert_eq!(LostLedger::default().after(0), None);
        assert_eq!(LostLedger::default().last_seq(), 0);
    }

    proptest! {
        #[test]
        fn amounts_are_exact_while_positions_are_remembered(
            sizes in proptest::collection::vec(1_u64..1000, 1..200),
            reader in 0_u64..250,
        ) {
            let mut ledger = LostLedger::default();
            let mut position = 0;
            for (index, size) in sizes.iter().enumerate() {
                position += size;
                ledger.through(index as u64 + 1, position);
            }
            let missed: u64 = sizes.iter().skip(usize::try_from(reader).unwrap()).sum();
            prop_assert_eq!(ledger.after(reader).map_or(0, |lost| lost.bytes), missed);
        }
    }

    #[test]
    fn memory_is_bounded_and_the_last_position_kept() {
        let mut ledger = LostLedger::default();
        for seq in 1..=100_000 {
            ledger.through(seq, seq * 10);
        }
        assert!(ledger.positions.len() <= POSITIONS);
        assert_eq!(
            ledger.after(99_999),
            Some(LostOutput { bytes: 10, first_seq: 100_000, last_seq: 100_000 })
        );
        assert_eq!(ledger.after(0).map(|lost| lost.bytes), Some(1_000_000));
    }
}
