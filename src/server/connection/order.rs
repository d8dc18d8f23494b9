//! Which requests of a connection wait for which: calls on the same path or file handle take effect in the order
//! sent, and a start waits for the file changes before it.

use std::collections::HashMap;

use tokio_util::sync::CancellationToken;

/// What a call names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// A path, as its URI.
    Path(String),
    /// An open file.
    Handle(String),
}

/// The lanes of one connection, by what is named.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// The last call of each lane.
    tails: HashMap<Key, (u64, CancellationToken)>,
    /// File changes that are not done.
    changes: HashMap<u64, CancellationToken>,
    next: u64,
}

/// A call's place; give it back to [`Lanes::leave`] when the call is done.
#[derive(Debug)]
pub(super) struct Place {
    number: u64,
    keys: Vec<Key>,
    done: CancellationToken,
}

/// The calls that must be done first.
#[derive(Debug, Default)]
pub(super) struct Before(Vec<CancellationToken>);

impl Before {
    /// Waits until they are done. Cancel-safe.
    pub(super) async fn done(&self) {
        for call in &self.0 {
            call.cancelled().await;
        }
    }
}

impl Lanes {
    /// Takes the next place in the lanes of all keys.
    pub(super) fn enter(&mut self, keys: Vec<Key>, changes_files: bool) -> (Place, Before) {
        self.next += 1;
        let (number, done) = (self.next, CancellationToken::new());
        let mut before = Vec::new();
        for key in &keys {
            if let Some((_, last)) = self.tails.insert(key.clone(), (number, done.clone())) {
                before.push(last);
            }
        }
        if changes_files {
            self.changes.insert(number, done.clone());
        }
        // A call that names the same path twice follows itself nowhere.
        before.retain(|call| *call != done);
        (Place { number, keys, done }, Before(before))
    }

    /// Whether nothing is in the lanes of these keys.
    pub(super) fn are_free(&self, keys: &[Key]) -> bool {
        keys.iter().all(|key| !self.tails.contains_key(key))
    }

    /// Gives a place back.
    pub(super) fn leave(&mut self, place: Place) {
        place.done.cancel();
        self.changes.remove(&place.number);
        for key in place.keys {
            if self.tails.get(&key).is_some_and(|(last, _)| *last == place.number) {
                self.tails.remove(&key);
            }
        }
    }

    /// All file changes that are not done.
    pub(super) fn changes(&self) -> Before {
        Before(self.changes.values().cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn path(name: &str) -> Vec<Key> {
        vec![Key::Path(name.to_owned())]
    }

    #[test]
    fn a_lane_keeps_its_order_and_lanes_do_not_touch() {
        let mut lanes = Lanes::default();
        let (first, before_first) = lanes.enter(path("a"), true);
        let (second, before_second) = lanes.enter(path("a"), false);
        let (other, before_other) = lanes.enter(path("b"), false);
        assert!(before_first.done().now_or_never().is_some());
        assert!(before_other.done().now_or_never().is_some());
        assert!(before_second.done().now_or_never().is_none());
        assert!(lanes.changes().done().now_or_never().is_none());
        assert!(!lanes.are_free(&path("a")) && lanes.are_free(&path("c")));
        lanes.leave(first);
        assert!(before_second.done().now_or_never().is_some());
        assert!(lanes.changes().done().now_or_never().is_some());
        lanes.leave(other);
        lanes.leave(second);
        assert!(lanes.tails.is_empty() && lanes.changes.is_empty());
    }

    #[test]
    fn a_call_with_one_path_twice_does_not_wait_for_itself() {
        let mut lanes = Lanes::default();
        let (_place, before) = lanes.enter([path("a"), path("a")].concat(), true);
        assert!(before.done().now_or_never().is_some());
    }
}
