//! What the server tells its operator: log events, counts, and an account of who did what.
//!
//! Counting and accounting never wait and never fail the work that they are about.

mod audit;
mod count;
mod logging;
mod metrics;

use crate::config::AuditTarget;
pub use audit::{AuditError, AuditLog, Entry};
pub use count::{Counter, Counters, Histogram, Label, Outcomes};
pub(crate) use count::{label, labels};
pub use logging::{LogControl, TelemetryError, init};
pub use metrics::{Limit, ProxyDecision, RunMetrics};

/// Where everything that an executor does is counted and accounted for.
#[derive(Debug, Default)]
pub struct Telemetry {
    /// Counts of runs.
    pub runs: RunMetrics,
    /// Who did what.
    pub audit: AuditLog,
}

impl Telemetry {
    /// With an audit log, if there is to be one.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn new(audit: Option<&AuditTarget>) -> Result<Self, AuditError> {
        let audit = audit.map(AuditLog::open).transpose()?.unwrap_or_default();
        Ok(Self { audit, ..Self::default() })
    }
}
