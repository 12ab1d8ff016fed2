//! The audit log: a line for each rejection and for each action of an operator.

pub(crate) mod file;

use std::{
    collections::HashMap,
    convert::Infallible,
    mem::{Discriminant, discriminant, take},
    net::IpAddr,
    num::NonZeroU32,
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

use serde::Serialize;
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use self::file::AuditLog;
use crate::{
    access::Access,
    rate_limit::{Client, RateLimit},
};

/// How many lines a second there are of one problem of one client, on average, and how many at once. A
/// client that repeats a rejected request for ever must not push out the lines of its other problems.
const LINES_OF_PROBLEM: NonZeroU32 = NonZeroU32::new(10).expect("it is not 0");
/// How many there are of one client. It must not push out the lines of others.
const LINES_OF_CLIENT: NonZeroU32 = NonZeroU32::new(30).expect("it is not 0");
/// How many there are of all clients with an identity, and of all others. They must not fill the disk, and
/// a client can change its address.
const LINES_IN_TOTAL: NonZeroU32 = NonZeroU32::new(100).expect("it is not 0");
/// How often to write how many lines were left out.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// How many sources are counted one by one until then. The lines of further ones are counted together.
const MAX_COUNTED: usize = 256;
/// At the end, how long requests that were cut off may take to be recorded.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Records rejections and the actions of operators.
#[derive(Debug)]
pub(crate) struct Audit {
    recorder: Arc<Recorder>,
    _task: AbortOnDropHandle<()>,
    _records: mpsc::Sender<Infallible>,
}

/// What is left to do once nothing is recorded any more.
#[derive(Debug)]
pub(crate) struct AuditEnd {
    recorder: Arc<Recorder>,
    /// Closed once the [`Audit`] was dropped.
    records: mpsc::Receiver<Infallible>,
}

#[derive(Debug)]
struct Recorder {
    /// `None` if the lines go to the server's own log.
    log: Option<AuditLog>,
    of_problem: RateLimit<Source>,
    of_client: RateLimit<Client>,
    in_total: RateLimit<Discriminant<Client>>,
    /// How many lines were left out since the last report. `None` is of sources beyond the limit.
    left_out: Mutex<HashMap<Option<Source>, u64>>,
}

/// Whose lines are limited together: those of one problem of one client.
type Source = (Client, Option<&'static str>);

/// Why a request is in the audit log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Event {
    /// It was rejected.
    #[default]
    Rejection,
    /// Its client left before the server knew whether to reject it.
    Abandoned,
    /// Only operators may do this.
    Operation,
    /// The server has taken over an auth file that was changed.
    AuthFile,
    /// Lines that were left out.
    LeftOut,
}

/// A request as the audit log has it. Its value, its holder and its bearer token are not there.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Line<'a> {
    /// It is set when the line is written.
    pub(crate) time: String,
    pub(crate) event: Event,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) identity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) route: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resource: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request_id: Option<&'a str>,
    /// How many lines were left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) count: Option<u64>,
    /// How many identities the auth file has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) identities: Option<usize>,
}

impl Audit {
    /// Records in this file, or else in the server's own log. It also records changes of who may do what.
    pub(crate) fn start(log: Option<AuditLog>, access: &Access) -> (Self, AuditEnd) {
        let recorder = Arc::new(Recorder::new(log));
        let task = tokio::spawn({
            let recorder = recorder.clone();
            let mut changes = access.changes();
            async move {
                loop {
                    tokio::select! {
                        () = sleep(REPORT_INTERVAL) => recorder.report(),
                        identities = changes.next() => recorder.record_auth_file(identities),
                    }
                }
            }
        });
        let (sender, records) = mpsc::channel(1);
        let end = AuditEnd { recorder: recorder.clone(), records };
        (Self { recorder, _task: AbortOnDropHandle::new(task), _records: sender }, end)
    }

    /// Records a request of this client. It never waits, and never fails the request.
    pub(crate) fn record(&self, client: IpAddr, line: Line<'_>) {
        self.recorder.record(client, line, Instant::now());
    }
}

impl AuditEnd {
    /// Waits until the last request is recorded, and until its line is written.
    pub(crate) async fn wait(mut self) {
        // Nothing is ever sent.
        let _ = timeout(END_TIMEOUT, self.records.recv()).await;
        self.recorder.report();
        if let Some(log) = &self.recorder.log {
            log.flush().await;
        }
    }
}

impl Recorder {
    fn new(log: Option<AuditLog>) -> Self {
        Self {
            log,
            of_problem: RateLimit::new(LINES_OF_PROBLEM),
            of_client: RateLimit::new(LINES_OF_CLIENT),
            in_total: RateLimit::new(LINES_IN_TOTAL),
            left_out: Mutex::default(),
        }
    }

    fn record(&self, client: IpAddr, line: Line<'_>, now: Instant) {
        let source = match &line.identity {
            Some(name) => Client::Identity(name.clone()),
            None => Client::from_address(client),
        };
        let source = (source, line.problem);
        if self.admits(&source, now) {
            self.write(&Line { client: Some(client), time: time_now(), ..line });
            return;
        }
        let mut left_out = self.left_out.lock().expect("no panic while it is held");
        let has_place =
            left_out.len() < MAX_COUNTED || left_out.contains_key(&Some(source.clone()));
        *left_out.entry(has_place.then_some(source)).or_default() += 1;
    }

    /// Records that an auth file with so many identities was taken over.
    fn record_auth_file(&self, identities: usize) {
        let (time, event, identities) = (time_now(), Event::AuthFile, Some(identities));
        self.write(&Line { time, event, identities, ..Line::default() });
    }

    fn admits(&self, source: &Source, now: Instant) -> bool {
        let (client, _) = source;
        self.of_problem.admit(source.clone(), now)
            && self.of_client.admit(client.clone(), now)
            && self.in_total.admit(discriminant(client), now)
    }

    /// Reports which lines were left out, and how many were lost.
    fn report(&self) {
        let left_out = take(&mut *self.left_out.lock().expect("no panic while it is held"));
        for (source, count) in left_out {
            let (client, problem) = source.unzip();
            let (identity, client) = match client {
                Some(Client::Identity(name)) => (Some(name), None),
                Some(Client::Address(address)) => (None, Some(address)),
                None => (None, None),
            };
            let (problem, count) = (problem.flatten(), Some(count));
            let (time, event) = (time_now(), Event::LeftOut);
            self.write(&Line { time, event, identity, client, problem, count, ..Line::default() });
        }
        if let Some(log) = &self.log {
            log.report_overflow();
        }
    }

    fn write(&self, line: &Line<'_>) {
        if let Some(log) = &self.log {
            log.write(serde_json::to_string(line).expect("it is JSON"));
            return;
        }
        tracing::info!(
            target: "audit",
            event = line.event.name(),
            identity = line.identity,
            client = line.client.map(tracing::field::display),
            method = line.method,
            route = line.route,
            resource = line.resource,
            status = line.status,
            problem = line.problem,
            request_id = line.request_id,
            count = line.count,
            identities = line.identities,
        );
    }
}

impl Event {
    fn name(self) -> &'static str {
        match self {
            Self::Rejection => "rejection",
            Self::Abandoned => "abandoned",
            Self::Operation => "operation",
            Self::AuthFile => "auth-file",
            Self::LeftOut => "left-out",
        }
    }
}

/// The time as RFC 3339.
pub(crate) fn time_now() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines that a recorder has written to a file.
    async fn recorded(record: impl FnOnce(&Recorder)) -> Vec<serde_json::Value> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let log = AuditLog::open(&path).unwrap();
        record(&Recorder::new(Some(log.clone())));
        log.flush().await;
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn rejection(identity: Option<&str>, problem: &'static str) -> Line<'static> {
        let identity = identity.map(str::to_owned);
        Line { identity, problem: Some(problem), ..Line::default() }
    }

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    fn count(lines: &[serde_json::Value], event: &str, member: &str, value: &str) -> usize {
        lines.iter().filter(|it| it["event"] == event && it[member] == value).count()
    }

    #[tokio::test]
    async fn each_client_has_its_own_lines_and_the_others_are_counted() {
        let now = Instant::now();
        let lines = recorded(|recorder| {
            for _ in 0..25 {
                recorder.record(HERE, rejection(Some("busy"), "stale-token"), now);
                recorder.record(HERE, rejection(None, "stale-token"), now);
            }
            recorder.record(HERE, rejection(Some("calm"), "stale-token"), now);
            recorder.report();
            // Later, the disk has space again, and nothing to report.
            recorder.record(HERE, rejection(Some("busy"), "stale-token"), now + REPORT_INTERVAL);
            recorder.report();
        })
        .await;
        assert_eq!(count(&lines, "rejection", "identity", "busy"), 11);
        assert_eq!(count(&lines, "rejection", "identity", "calm"), 1);
        assert_eq!(count(&lines, "rejection", "client", "127.0.0.1"), 22, "each has the address");
        let left_out: Vec<_> = lines.iter().filter(|it| it["event"] == "left-out").collect();
        assert_eq!(left_out.len(), 2);
        assert!(left_out.iter().all(|it| it["count"] == 15), "{left_out:?}");
        assert!(left_out.iter().all(|it| it["problem"] == "stale-token"), "{left_out:?}");
        assert_eq!(count(&lines, "left-out", "identity", "busy"), 1);
        assert_eq!(count(&lines, "left-out", "client", "127.0.0.1"), 1);
    }

    #[tokio::test]
    async fn each_problem_of_a_client_has_its_own_lines_up_to_a_limit() {
        let now = Instant::now();
        let lines = recorded(|recorder| {
            for problem in ["one", "two", "three", "four"] {
                for _ in 0..25 {
                    recorder.record(HERE, rejection(Some("busy"), problem), now);
                }
            }
            recorder.record(HERE, rejection(Some("calm"), "four"), now);
        })
        .await;
        for (problem, expected) in [("one", 10), ("two", 10), ("three", 10), ("four", 1)] {
            assert_eq!(count(&lines, "rejection", "problem", problem), expected, "{problem}");
        }
    }

    #[tokio::test]
    async fn all_lines_are_limited_and_strangers_push_out_none_of_identities() {
        let now = Instant::now();
        let lines = recorded(|recorder| {
            for number in 0..1_000 {
                recorder.record(address(number), rejection(None, "unauthenticated"), now);
            }
            recorder.record(HERE, rejection(Some("known"), "stale-token"), now);
            recorder.report();
        })
        .await;
        assert_eq!(count(&lines, "rejection", "problem", "unauthenticated"), 100);
        assert_eq!(count(&lines, "rejection", "identity", "known"), 1);
        let left_out: Vec<_> = lines.iter().filter(|it| it["event"] == "left-out").collect();
        // Those beyond the limit have one line together.
        assert_eq!(left_out.len(), MAX_COUNTED + 1);
        assert_eq!(left_out.iter().filter(|it| it["client"].is_null()).count(), 1);
        assert_eq!(left_out.iter().map(|it| it["count"].as_u64().unwrap()).sum::<u64>(), 900);
    }
}
