//! Counters and histograms: relaxed atomics, no locks, no allocation after they are made.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn increment(&self) {
        self.add(1);
    }

    /// So many more.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// How many there were until now.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A closed set of values that a label can have, so that nobody can make the number of series grow.
pub trait Label: Copy + 'static {
    /// All of them, each at its index.
    const ALL: &'static [Self];

    /// Its place in [`Self::ALL`].
    fn index(self) -> usize;

    /// How it is written.
    fn text(self) -> &'static str;
}

/// A counter for each value of a label.
#[derive(Debug)]
pub struct Counters<L> {
    counters: Box<[Counter]>,
    label: PhantomData<fn(L)>,
}

impl<L: Label> Default for Counters<L> {
    fn default() -> Self {
        Self { counters: L::ALL.iter().map(|_| Counter::default()).collect(), label: PhantomData }
    }
}

impl<L: Label> Counters<L> {
    /// The counter of a value.
    #[must_use]
    pub fn of(&self, label: L) -> &Counter {
        &self.counters[label.index()]
    }

    /// Every value with its count.
    pub fn values(&self) -> impl Iterator<Item = (&'static str, u64)> {
        L::ALL.iter().map(|label| (label.text(), self.of(*label).value()))
    }
}

/// Upper bounds of the buckets of every [`Histogram`], in nanoseconds, ascending.
const BOUNDS: [u64; 15] = [
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    10_000_000_000,
];

const BUCKETS: usize = BOUNDS.len() + 1;

/// How long things took. The sum and the first buckets share a cache line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Histogram {
    nanoseconds: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Histogram {
    /// Upper bounds of the buckets but for the last, in seconds, ascending.
    pub fn bounds() -> impl Iterator<Item = f64> {
        BOUNDS.into_iter().map(|bound| Duration::from_nanos(bound).as_secs_f64())
    }

    /// One more took so long.
    pub fn observe(&self, duration: Duration) {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|bound| *bound < nanoseconds);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// How many of each bucket, without those of the buckets below; the last one has no bound.
    #[must_use]
    pub fn buckets(&self) -> [u64; BUCKETS] {
        std::array::from_fn(|index| self.buckets[index].load(Ordering::Relaxed))
    }

    /// How long all took together, in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)).as_secs_f64()
    }
}

/// A histogram of what succeeded and one of what failed, for each value of a label.
#[derive(Debug)]
pub struct Outcomes<L> {
    histograms: Box<[[Histogram; 2]]>,
    label: PhantomData<fn(L)>,
}

impl<L: Label> Default for Outcomes<L> {
    fn default() -> Self {
        Self { histograms: L::ALL.iter().map(|_| Default::default()).collect(), label: PhantomData }
    }
}

impl<L: Label> Outcomes<L> {
    /// The histogram of a value and an outcome.
    #[must_use]
    pub fn of(&self, label: L, succeeded: bool) -> &Histogram {
        &self.histograms[label.index()][usize::from(!succeeded)]
    }
}

/// Makes an enumeration a label: every value with its text.
macro_rules! label {
    ($name:ident { $($value:ident = $text:expr),+ $(,)? }) => {
        impl $crate::telemetry::Label for $name {
            const ALL: &'static [Self] = &[$(Self::$value),+];

            fn index(self) -> usize {
                self as usize
            }

            fn text(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)+
                }
            }
        }
    };
}

/// Declares a closed set of label values.
macro_rules! labels {
    ($($(#[$doc:meta])* $vis:vis enum $name:ident { $($(#[$value_doc:meta])* $value:ident = $text:literal),+ $(,)? })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        $vis enum $name {
            $($(#[$value_doc])* $value,)+
        }

        $crate::telemetry::label!($name { $($value = $text),+ });
    )+};
}

pub(crate) use {label, labels};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let histogram = Histogram::default();
        for micros in [0, 100, 101, 1_000_000, 10_000_000, 10_000_001] {
            histogram.observe(Duration::from_micros(micros));
        }
        let buckets = histogram.buckets();
        assert_eq!((buckets[0], buckets[1], buckets[12], buckets[14], buckets[15]), (2, 1, 1, 1, 1));
        assert_eq!(buckets.iter().sum::<u64>(), 6);
        assert!((histogram.seconds() - 21.000_202).abs() < 1e-9);
    }

    #[test]
    fn bounds_are_told_in_seconds() {
        let told = [
            0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
        ];
        assert!(Histogram::bounds().eq(told));
    }
}
