//! What the server says of itself, as metrics of Prometheus.
//!
//! No label has the name of a resource or an identity: there may be any number of them.

pub(crate) mod text_format;

use std::{sync::atomic::AtomicU64, time::Duration};

use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

use crate::{cut_offs::CutOffs, memory_budget::MemoryBudget, tls::Tls};

/// The upper bounds of durations, in seconds.
const SECONDS: [f64; 15] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0];
/// The upper bounds of sizes of batches.
const OPERATIONS: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// All metrics of one server.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    request_duration: Family<RouteLabels, Histogram, fn() -> Histogram>,
    rejections: Family<ReasonLabels, Counter>,
    cut_offs: Family<ReasonLabels, Counter>,
    pub(crate) commits: CommitMetrics,
    /// How many connections are open.
    pub(crate) connections: Gauge,
    /// How many there can be.
    pub(crate) max_connections: Gauge,
    sampled: SampledGauges,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: String,
    status: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    method: &'static str,
    route: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PartLabels {
    part: &'static str,
}

/// How batches are committed. Clones share the metrics.
#[derive(Clone, Debug)]
pub(crate) struct CommitMetrics {
    batch_operations: Histogram,
    duration: Histogram,
}

/// What is measured only when the metrics are requested.
#[derive(Debug, Default)]
struct SampledGauges {
    queued_operations: Gauge,
    oldest_operation: Gauge<f64, AtomicU64>,
    bytes_in_flight: Family<PartLabels, Gauge>,
    max_bytes_in_flight: Family<PartLabels, Gauge>,
    database_up: Gauge,
    auth_file_valid: Gauge,
    tls_files_valid: Gauge,
    tls_certificate_expiry: Gauge<f64, AtomicU64>,
}

/// The state of the server at the moment when the metrics are requested.
pub(crate) struct Sample<'a> {
    pub(crate) queued_operations: usize,
    pub(crate) oldest_operation: Duration,
    pub(crate) budget: &'a MemoryBudget,
    pub(crate) is_database_up: bool,
    pub(crate) is_auth_file_valid: bool,
    /// `None` without TLS.
    pub(crate) tls: Option<&'a Tls>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(Counter::default())
    }
}

impl Metrics {
    /// Makes all metrics. The lost lines of the audit log are counted elsewhere.
    pub(crate) fn new(audit_lines_lost: Counter) -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("storage_server"),
            requests: Family::default(),
            request_duration: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            rejections: Family::default(),
            cut_offs: Family::default(),
            commits: CommitMetrics {
                batch_operations: Histogram::new(OPERATIONS),
                duration: Histogram::new(SECONDS),
            },
            connections: Gauge::default(),
            max_connections: Gauge::default(),
            sampled: SampledGauges::default(),
        };
        metrics.register();
        metrics.registry.register(
            "audit_lines_lost",
            "Lines that the audit log does not have",
            audit_lines_lost,
        );
        metrics
    }

    fn register(&mut self) {
        let Self { registry, commits, sampled, .. } = self;
        let seconds = Unit::Seconds;
        registry.register("requests", "Requests by route and status", self.requests.clone());
        registry.register_with_unit(
            "request_duration",
            "From a request's head to its answer's",
            seconds.clone(),
            self.request_duration.clone(),
        );
        registry.register(
            "rejections",
            "Requests that were answered with a problem, by its slug",
            self.rejections.clone(),
        );
        registry.register(
            "cut_offs",
            "What slow, silent and too many clients were rejected",
            self.cut_offs.clone(),
        );
        registry.register(
            "batch_operations",
            "Operations in a batch",
            commits.batch_operations.clone(),
        );
        registry.register_with_unit(
            "commit_duration",
            "Transactions of the database",
            seconds.clone(),
            commits.duration.clone(),
        );
        registry.register("connections", "Open connections", self.connections.clone());
        registry.register(
            "max_connections",
            "The limit on open connections",
            self.max_connections.clone(),
        );
        registry.register(
            "queued_operations",
            "Operations without a decision",
            sampled.queued_operations.clone(),
        );
        registry.register_with_unit(
            "oldest_operation",
            "How long the oldest of them has waited",
            seconds,
            sampled.oldest_operation.clone(),
        );
        registry.register(
            "bytes_in_flight",
            "Bytes of values that are held for clients",
            sampled.bytes_in_flight.clone(),
        );
        registry.register(
            "max_bytes_in_flight",
            "The limit on these bytes",
            sampled.max_bytes_in_flight.clone(),
        );
        registry.register(
            "database_up",
            "1 if the database takes writes",
            sampled.database_up.clone(),
        );
        registry.register(
            "auth_file_valid",
            "0 if the auth file is broken",
            sampled.auth_file_valid.clone(),
        );
        registry.register(
            "tls_files_valid",
            "0 if the TLS files are broken",
            sampled.tls_files_valid.clone(),
        );
        registry.register_with_unit(
            "tls_certificate_expiry_timestamp",
            "When the certificate in force expires",
            Unit::Seconds,
            sampled.tls_certificate_expiry.clone(),
        );
    }

    /// Begins to count a problem. A counter that begins with 1 would look to Prometheus as if it had
    /// always been 1.
    pub(crate) fn begin_rejections(&self, slug: &'static str) {
        drop(self.rejections.get_or_create(&ReasonLabels { reason: slug }));
    }

    /// Counters of clients that were cut off, by reason.
    pub(crate) fn cut_offs(&self) -> CutOffs {
        CutOffs::new(|cut_off| {
            self.cut_offs.get_or_create_owned(&ReasonLabels { reason: cut_off.slug() })
        })
    }

    /// Notes a request, with its status or `abandoned`, and the slug of its problem.
    pub(crate) fn note_request(
        &self,
        method: &'static str,
        route: &str,
        status: &str,
        problem: Option<&'static str>,
        duration: Duration,
    ) {
        let (route, status) = (route.to_owned(), status.to_owned());
        let labels = RequestLabels { method, route: route.clone(), status };
        self.requests.get_or_create(&labels).inc();
        if let Some(reason) = problem {
            self.rejections.get_or_create(&ReasonLabels { reason }).inc();
        }
        self.request_duration
            .get_or_create(&RouteLabels { method, route })
            .observe(duration.as_secs_f64());
    }

    /// Writes all metrics as OpenMetrics.
    pub(crate) fn encode(&self, sample: &Sample<'_>) -> String {
        let Sample { queued_operations, oldest_operation, budget, tls, .. } = *sample;
        let gauges = &self.sampled;
        gauges.queued_operations.set(gauge_value(queued_operations));
        gauges.oldest_operation.set(oldest_operation.as_secs_f64());
        for (part, share) in budget.shares() {
            let labels = PartLabels { part };
            gauges.bytes_in_flight.get_or_create(&labels).set(gauge_value(share.taken()));
            gauges.max_bytes_in_flight.get_or_create(&labels).set(gauge_value(share.bytes()));
        }
        gauges.database_up.set(sample.is_database_up.into());
        gauges.auth_file_valid.set(sample.is_auth_file_valid.into());
        gauges.tls_files_valid.set(tls.and_then(Tls::fault).is_none().into());
        let expiry = tls.and_then(Tls::expiry).unwrap_or_default();
        gauges.tls_certificate_expiry.set(expiry.as_secs_f64());
        let mut text = String::new();
        text::encode(&mut text, &self.registry).expect("a string can be written to");
        text
    }
}

impl CommitMetrics {
    /// Notes a batch that is about to be decided.
    pub(crate) fn note_batch(&self, operations: usize) {
        if operations > 0 {
            self.batch_operations.observe(operations as f64);
        }
    }

    /// Notes a transaction of the database, whether it succeeded or not.
    pub(crate) fn note_commit(&self, duration: Duration) {
        self.duration.observe(duration.as_secs_f64());
    }
}

/// A number as the value of a gauge.
pub(crate) fn gauge_value(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
