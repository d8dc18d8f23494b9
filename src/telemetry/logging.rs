//! Log events on stderr; stdout belongs to the URLs of the listeners.

use std::fmt;
use std::io::{IsTerminal, stderr};
use std::os::unix::fs::MetadataExt;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, reload};

/// A second set-up in one process.
#[derive(Debug, thiserror::Error)]
#[error("logging is already set up")]
pub struct TelemetryError(#[source] Box<dyn std::error::Error + Send + Sync>);

/// Changes what is logged.
pub struct LogControl(Box<dyn Fn(EnvFilter) -> Result<(), reload::Error> + Send + Sync>);

impl LogControl {
    /// From now on this filter counts.
    pub fn set_filter(&self, filter: EnvFilter) {
        if let Err(error) = (self.0)(filter) {
            tracing::error!(%error, "the log filter cannot be changed");
        }
    }
}

impl fmt::Debug for LogControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogControl").finish_non_exhaustive()
    }
}

/// Sets logging up for the whole process: lines for people, or one JSON object a line. Where stderr is the journal of
/// systemd, lines carry their level in its form and no time, since it has its own.
pub fn init(filter: EnvFilter, as_json: bool) -> Result<LogControl, TelemetryError> {
    let (filter, handle) = reload::Layer::new(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(stderr);
    let format = Format::default();
    let lines = match (is_journal(), as_json) {
        (false, false) => lines.with_ansi(wants_color()).boxed(),
        (false, true) => lines.json().boxed(),
        (true, false) => {
            lines.with_ansi(false).event_format(Leveled(format.without_time().with_level(false))).boxed()
        }
        (true, true) => {
            lines.fmt_fields(JsonFields::new()).event_format(Leveled(format.json().without_time())).boxed()
        }
    };
    let outcome = tracing_subscriber::registry().with(filter).with(lines).try_init();
    outcome.map_err(|error| TelemetryError(Box::new(error)))?;
    Ok(LogControl(Box::new(move |filter| handle.reload(filter))))
}

fn wants_color() -> bool {
    stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Whether stderr is the stream that `JOURNAL_STREAM` names by device and inode: a child may have another one.
fn is_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM").ok();
    let stream = std::fs::metadata("/proc/self/fd/2").ok();
    named.zip(stream).is_some_and(|(named, stream)| named == format!("{}:{}", stream.dev(), stream.ino()))
}

/// Puts the level in front of a line as syslog numbers it.
struct Leveled<F>(F);

impl<S, N, F> FormatEvent<S, N> for Leveled<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        write!(writer, "<{level}>")?;
        self.0.format_event(context, writer, event)
    }
}
