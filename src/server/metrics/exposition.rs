//! Every count, in the text format of Prometheus.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

pub(in crate::server) use prometheus_client::encoding::prometheus_text::CONTENT_TYPE;

use super::Traffic;
use crate::server::connection::{MethodLabel, Shared};
use crate::session::SessionRegistry;
use crate::telemetry::{Counters, Histogram, Label, RunMetrics};

/// Looks everything up when it is asked; between two looks nothing is done.
#[derive(Debug)]
pub(in crate::server) struct Exposition {
    registry: Registry,
}

impl Exposition {
    /// What is told of this server.
    pub(in crate::server) fn new(shared: &Shared) -> Self {
        let mut registry = Registry::with_prefix("exec_server");
        registry.register_collector(Box::new(Source {
            traffic: Arc::clone(&shared.traffic),
            sessions: Arc::clone(&shared.registry),
            started: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
        }));
        Self { registry }
    }

    /// The text. It looks at every session and process.
    pub(in crate::server) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

#[derive(Debug)]
struct Source {
    traffic: Arc<Traffic>,
    sessions: Arc<SessionRegistry>,
    /// In seconds of the epoch.
    started: f64,
}

impl Collector for Source {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(encoder);
        page.build()?;
        page.gauge(
            "start_time_seconds",
            "When the server started, in seconds of the Unix epoch",
            self.started,
        )?;
        self.connections(&mut page)?;
        self.sessions(&mut page)?;
        self.output(&mut page)?;
        let telemetry = self.sessions.executor().telemetry();
        runs(&mut page, &telemetry.runs)?;
        page.counter("audit_lost", "Entries that the audit log lacks", telemetry.audit.lost())?;
        page.requests(&self.traffic)
    }
}

impl Source {
    fn connections(&self, page: &mut Page<'_>) -> fmt::Result {
        let traffic = &self.traffic;
        // In this order, so that one that ends in between does not make it negative.
        let closed = traffic.closed.value();
        let opened = traffic.opened.value();
        page.gauge("connections", "Connections that are open", whole(opened.saturating_sub(closed)))?;
        page.counter("connections_opened", "Connections that were upgraded", opened)?;
        page.counters(
            ("connections_refused", "Connections that were turned away"),
            "reason",
            traffic.refusals.values(),
        )?;
        page.counter("received_bytes", "Bytes of messages received", traffic.received_bytes.value())?;
        page.counter("sent_bytes", "Bytes of messages sent", traffic.sent_bytes.value())
    }

    fn sessions(&self, page: &mut Page<'_>) -> fmt::Result {
        let census = self.sessions.census();
        page.gauges(
            ("sessions", "Sessions that exist"),
            "state",
            [("attached", census.attached), ("detached", census.detached)],
        )?;
        let (name, help) =
            ("sessions_taken", "Sessions that a connection has made, resumed or begun to observe");
        page.counters((name, help), "how", self.traffic.sessions.values())?;
        page.gauges(
            ("processes", "Processes, and records of them"),
            "state",
            [("running", census.running), ("exited", census.exited), ("closed", census.closed)],
        )
    }

    fn output(&self, page: &mut Page<'_>) -> fmt::Result {
        let usage = self.sessions.executor().output_usage();
        page.counter("output_bytes", "Bytes that processes have written", usage.written)?;
        page.gauge("output_retained_bytes", "Bytes of output in memory", whole(usage.retained))?;
        page.gauge("output_spooled_bytes", "Bytes of output on disk", whole(usage.spooled))?;
        page.counter("output_lost_bytes", "Bytes of output that can no longer be read back", usage.lost)
    }
}

fn runs(page: &mut Page<'_>, runs: &RunMetrics) -> fmt::Result {
    page.histogram("process_start_seconds", "Time to the execution of a program", &runs.start_seconds)?;
    page.counter("process_starts_failed", "Starts that were refused or failed", runs.failed_starts.value())?;
    let (name, help) = ("processes_ended", "Processes that have ended and closed");
    page.counters((name, help), "reason", runs.ended.values())?;
    page.counter(
        "sandbox_denials",
        "Ends that a sandbox seems to have caused",
        runs.sandbox_denials.value(),
    )?;
    page.counter(
        "sandbox_refusals",
        "Starts whose sandbox policy cannot be enforced",
        runs.sandbox_refusals.value(),
    )?;
    page.of("shell_snapshots", "Starts that asked for the state of a shell", "state", &runs.snapshots)?;
    page.of("proxy_decisions", "Decisions of proxies", "decision", &runs.proxy_decisions)?;
    page.of("limit_hits", "Limits that were hit", "limit", &runs.limits)
}

/// Writes one metric after the other.
struct Page<'a>(DescriptorEncoder<'a>);

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn whole(number: u64) -> f64 {
    number as f64
}

impl Page<'_> {
    fn metric(
        &mut self,
        name: &'static str,
        help: &str,
        kind: MetricType,
    ) -> Result<MetricEncoder<'_>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, kind)
    }

    fn build(&mut self) -> fmt::Result {
        let labels = [("version", env!("CARGO_PKG_VERSION")), ("commit", env!("BUILD_COMMIT"))];
        let mut metric =
            self.metric("build_info", "The version of the server; always 1", MetricType::Gauge)?;
        metric.encode_family(&labels)?.encode_gauge(&1_i64)
    }

    fn gauge(&mut self, name: &'static str, help: &str, value: f64) -> fmt::Result {
        self.metric(name, help, MetricType::Gauge)?.encode_gauge(&value)
    }

    fn gauges<const N: usize>(
        &mut self,
        (name, help): (&'static str, &str),
        label: &'static str,
        values: [(&'static str, u64); N],
    ) -> fmt::Result {
        let mut metric = self.metric(name, help, MetricType::Gauge)?;
        for (text, value) in values {
            metric.encode_family(&[(label, text)])?.encode_gauge(&whole(value))?;
        }
        Ok(())
    }

    fn counter(&mut self, name: &'static str, help: &str, value: u64) -> fmt::Result {
        self.metric(name, help, MetricType::Counter)?.encode_counter::<NoLabelSet, _, f64>(&value, None)
    }

    fn counters(
        &mut self,
        (name, help): (&'static str, &str),
        label: &'static str,
        values: impl Iterator<Item = (&'static str, u64)>,
    ) -> fmt::Result {
        let mut metric = self.metric(name, help, MetricType::Counter)?;
        for (text, value) in values {
            let labels = [(label, text)];
            metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, f64>(&value, None)?;
        }
        Ok(())
    }

    fn of<L: Label>(
        &mut self,
        name: &'static str,
        help: &str,
        label: &'static str,
        counters: &Counters<L>,
    ) -> fmt::Result {
        self.counters((name, help), label, counters.values())
    }

    fn histogram(&mut self, name: &'static str, help: &str, histogram: &Histogram) -> fmt::Result {
        encode_histogram(self.metric(name, help, MetricType::Histogram)?, histogram)
    }

    /// Of each method that has been called.
    fn requests(&mut self, traffic: &Traffic) -> fmt::Result {
        let help = "Time from the arrival of a request to its answer";
        let mut metric = self.metric("request_seconds", help, MetricType::Histogram)?;
        for method in MethodLabel::ALL {
            for (succeeded, result) in [(true, "ok"), (false, "error")] {
                let histogram = traffic.requests.of(*method, succeeded);
                if histogram.buckets().iter().any(|count| *count > 0) {
                    let labels = [("method", method.text()), ("result", result)];
                    encode_histogram(metric.encode_family(&labels)?, histogram)?;
                }
            }
        }
        Ok(())
    }
}

fn encode_histogram(mut metric: MetricEncoder<'_>, histogram: &Histogram) -> fmt::Result {
    let counts = histogram.buckets();
    let bounds = Histogram::bounds().chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
    metric.encode_histogram::<NoLabelSet>(histogram.seconds(), counts.iter().sum(), &buckets, None)
}
