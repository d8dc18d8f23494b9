//! What the server tells its operator: log events, counts, and an account of who did what.
//!
//! Counting and accounting never wait and never fail the work that they are about.

mod count;
mod logging;
mod metrics;

pub(crate) use count::labels;
pub use count::{Counter, Counters, DURATION_BOUNDS, Histogram, Label, Outcomes};
pub use logging::{LogControl, TelemetryError, init};
pub use metrics::{Limit, ProxyDecision, RunMetrics};

/// Where everything that an executor runs is counted.
#[derive(Debug, Default)]
pub struct Telemetry {
    /// Counts of runs.
    pub runs: RunMetrics,
}
