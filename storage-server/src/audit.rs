//! The audit log: a line for each refusal and for each action of an operator.

pub(crate) mod file;

use std::{
    collections::HashMap,
    net::IpAddr,
    num::NonZeroU32,
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

use serde::Serialize;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use self::file::AuditLog;
use crate::rate_limit::{Client, RateLimit};

/// How many lines each client gets in a second. A client that repeats a rejected request for ever
/// must neither fill the disk nor push out the lines of others.
const LINES_PER_SECOND: NonZeroU32 = NonZeroU32::new(10).expect("it is not 0");
/// How often to write how many lines were left out.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// How many clients are counted until then. With more, it is written at once.
const MAX_COUNTED: usize = 4096;

/// Records refusals and the actions of operators.
#[derive(Debug)]
pub(crate) struct Audit {
    recorder: Arc<Recorder>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Recorder {
    /// `None` if the lines go to the server's own log.
    log: Option<AuditLog>,
    limit: RateLimit,
    /// How many lines of each client were left out since the last report.
    left_out: Mutex<HashMap<Client, u64>>,
}

/// Why a request is in the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Event {
    /// It was refused.
    Refusal,
    /// Only operators may do this.
    Operation,
    /// Lines of one client that were left out.
    LeftOut,
}

/// A request as the audit log has it. Its value, its holder and its bearer token are not there.
#[derive(Debug)]
pub(crate) struct Audited<'a> {
    pub(crate) event: Event,
    pub(crate) identity: Option<String>,
    pub(crate) client: IpAddr,
    pub(crate) method: &'a str,
    pub(crate) route: &'a str,
    pub(crate) resource: Option<&'a str>,
    pub(crate) status: u16,
    pub(crate) problem: Option<&'static str>,
    pub(crate) request_id: &'a str,
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    event: Event,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
}

impl Line<'_> {
    fn new(event: Event) -> Self {
        Self {
            time: time_now(),
            event,
            identity: None,
            client: None,
            method: None,
            route: None,
            resource: None,
            status: None,
            problem: None,
            request_id: None,
            count: None,
        }
    }
}

impl Audit {
    /// Records in this file, or else in the server's own log.
    pub(crate) fn start(log: Option<AuditLog>) -> Self {
        let recorder = Arc::new(Recorder {
            log,
            limit: RateLimit::new(LINES_PER_SECOND),
            left_out: Mutex::default(),
        });
        let task = tokio::spawn({
            let recorder = recorder.clone();
            async move {
                loop {
                    sleep(REPORT_INTERVAL).await;
                    recorder.report_left_out();
                }
            }
        });
        Self { recorder, _task: AbortOnDropHandle::new(task) }
    }

    /// Records a request. It never waits, and never fails the request.
    pub(crate) fn record(&self, audited: &Audited<'_>) {
        self.recorder.record(audited, Instant::now());
    }
}

/// The last lines that were left out are reported, too.
impl Drop for Audit {
    fn drop(&mut self) {
        self.recorder.report_left_out();
    }
}

impl Recorder {
    fn record(&self, audited: &Audited<'_>, now: Instant) {
        let client = match &audited.identity {
            Some(name) => Client::Identity(name.clone()),
            None => Client::from_address(audited.client),
        };
        if !self.limit.admit(client.clone(), now) {
            let mut left_out = self.left_out.lock().expect("no panic while it is held");
            *left_out.entry(client).or_default() += 1;
            let is_full = left_out.len() >= MAX_COUNTED;
            drop(left_out);
            if is_full {
                self.report_left_out();
            }
            return;
        }
        self.write(&Line {
            identity: audited.identity.as_deref(),
            client: Some(audited.client),
            method: Some(audited.method),
            route: Some(audited.route),
            resource: audited.resource,
            status: Some(audited.status),
            problem: audited.problem,
            request_id: Some(audited.request_id),
            ..Line::new(audited.event)
        });
    }

    fn report_left_out(&self) {
        let left_out =
            std::mem::take(&mut *self.left_out.lock().expect("no panic while it is held"));
        for (client, count) in left_out {
            let (identity, address) = match &client {
                Client::Identity(name) => (Some(name.as_str()), None),
                Client::Address(address) => (None, Some(*address)),
            };
            let line = Line::new(Event::LeftOut);
            self.write(&Line { identity, client: address, count: Some(count), ..line });
        }
    }

    fn write(&self, line: &Line<'_>) {
        if let Some(log) = &self.log {
            log.write(serde_json::to_string(line).expect("it is JSON"));
            return;
        }
        let Line { event, identity, client, method, route, .. } = line;
        let Line { resource, status, problem, request_id, count, .. } = line;
        let client = client.map(tracing::field::display);
        tracing::info!(
            target: "audit",
            event = event.name(),
            identity,
            client,
            method,
            route,
            resource,
            status,
            problem,
            request_id,
            count,
        );
    }
}

impl Event {
    fn name(self) -> &'static str {
        match self {
            Self::Refusal => "refusal",
            Self::Operation => "operation",
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

    /// A recorder of a file, and what it has written.
    fn recorded(record: impl FnOnce(&Recorder)) -> Vec<serde_json::Value> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let recorder = Recorder {
            log: Some(AuditLog::open(&path).unwrap()),
            limit: RateLimit::new(LINES_PER_SECOND),
            left_out: Mutex::default(),
        };
        record(&recorder);
        drop(recorder);
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn refusal(identity: Option<&str>, client: [u8; 4]) -> Audited<'static> {
        Audited {
            event: Event::Refusal,
            identity: identity.map(str::to_owned),
            client: client.into(),
            method: "PUT",
            route: "/v1/fences/{name}",
            resource: Some("r"),
            status: 412,
            problem: Some("stale-token"),
            request_id: "a",
        }
    }

    #[test]
    fn each_client_has_its_own_lines_and_the_others_are_counted() {
        let now = Instant::now();
        let lines = recorded(|recorder| {
            for _ in 0..25 {
                recorder.record(&refusal(Some("busy"), [127, 0, 0, 1]), now);
                recorder.record(&refusal(None, [127, 0, 0, 1]), now);
            }
            recorder.record(&refusal(Some("calm"), [127, 0, 0, 1]), now);
            recorder.report_left_out();
            // Later, there is room again, and nothing to report.
            recorder.record(&refusal(Some("busy"), [127, 0, 0, 1]), now + REPORT_INTERVAL);
            recorder.report_left_out();
        });
        let count = |event: &str, member: &str, value: &str| {
            lines.iter().filter(|it| it["event"] == event && it[member] == value).count()
        };
        assert_eq!(count("refusal", "identity", "busy"), 11);
        assert_eq!(count("refusal", "identity", "calm"), 1);
        assert_eq!(count("refusal", "client", "127.0.0.1"), 22, "each line has the address");
        let left_out: Vec<_> = lines.iter().filter(|it| it["event"] == "left-out").collect();
        assert_eq!(left_out.len(), 2);
        assert!(left_out.iter().all(|it| it["count"] == 15), "{left_out:?}");
        assert_eq!(count("left-out", "identity", "busy"), 1);
        assert_eq!(count("left-out", "client", "127.0.0.1"), 1);
    }

    #[test]
    fn clients_that_are_counted_are_bounded() {
        let now = Instant::now();
        let limit = RateLimit::new(LINES_PER_SECOND);
        let recorder = Recorder { log: None, limit, left_out: Mutex::default() };
        let clients = u32::try_from(MAX_COUNTED).unwrap();
        for number in 0..clients {
            assert_eq!(recorder.left_out.lock().unwrap().len(), number as usize);
            for _ in 0..=LINES_PER_SECOND.get() {
                recorder.record(&refusal(None, number.to_be_bytes()), now);
            }
        }
        assert!(recorder.left_out.lock().unwrap().is_empty());
    }
}
