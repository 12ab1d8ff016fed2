//! What the members of ZooKeeper report about themselves, for a check of the ensemble.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::{
    client::ZooKeeper,
    connection::Connection,
    door,
    ensemble::{Of, granted_ms},
    failure::Failure,
};
use crate::backend::BackendError;

/// The time-out of the session that goes from member to member.
const SHARED_TIMEOUT_MS: u64 = 10_000;
/// The shortest and the longest session that a member is asked for. Its connection must be made within
/// two fifths of its time.
const SHORTEST_MS: u64 = 1_000;
const LONGEST_MS: u64 = i32::MAX as u64;
/// How often it is asked: a connection for a short session may be too slow on a busy machine.
const GRANTED_TRIES: usize = 4;
/// Reports of members are shorter.
const LONGEST_REPORT: u64 = 1 << 16;

/// A member that the URL names.
#[derive(Debug)]
pub struct MemberHealth {
    /// Its host and port.
    pub address: String,
    /// What it reports. A member without a quorum reports nothing.
    pub report: Result<MemberReport, BackendError>,
}

/// What a member reports about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberReport {
    /// Its version, such as `3.8.0`. `None` if its setting `4lw.commands.whitelist` is without `srvr`.
    pub version: Option<String>,
    /// Its mode, such as `leader`, `follower` or `standalone`. `None` as for the version.
    pub mode: Option<String>,
    /// Whether it knows a session of the first member that answers. Members of one ensemble do.
    pub shares_sessions: bool,
    /// The shortest ttl that it grants, of those of a second at least.
    pub shortest_ttl: Duration,
    /// The longest ttl that it grants.
    pub longest_ttl: Duration,
}

impl ZooKeeper {
    /// Asks each member that the URL names about itself.
    ///
    /// Sessions are opened for this, and closed. They have no nodes.
    pub async fn members(&self) -> Vec<MemberHealth> {
        let mut shared = None;
        let mut all = Vec::new();
        for (number, member) in self.ensemble.server().members.iter().enumerate() {
            let report = self.member(number, &mut shared).await.map_err(Into::into);
            all.push(MemberHealth { address: member.to_string(), report });
        }
        all
    }

    /// Returns the number of all members, whether the URL names them or not.
    ///
    /// # Errors
    /// [`BackendError`] if no member answers, or the user may not read it.
    pub async fn ensemble_size(&self) -> Result<usize, BackendError> {
        let connection = self.ensemble.reading().await?;
        let (config, _) = connection.answer(connection.client.get_config()).await?;
        let config = String::from_utf8_lossy(&config);
        // A member that is alone lists nothing.
        Ok(config.lines().filter(|line| line.starts_with("server.")).count().max(1))
    }

    async fn member(
        &self,
        number: usize,
        shared: &mut Option<Connection>,
    ) -> Result<MemberReport, Failure> {
        let shares_sessions = self.shares_sessions(number, shared).await?;
        let shortest_ttl = self.granted(number, SHORTEST_MS).await?;
        let longest_ttl = self.granted(number, LONGEST_MS).await?;
        // The report may be disabled.
        let report = self.report(number).await.unwrap_or_default();
        let line = |name| report.lines().find_map(|line| line.strip_prefix(name));
        let version = line("Zookeeper version: ")
            .map(|version| version.split([',', '-']).next().unwrap_or_default().trim().to_owned());
        let mode = line("Mode: ").map(str::to_owned);
        Ok(MemberReport { version, mode, shares_sessions, shortest_ttl, longest_ttl })
    }

    /// Whether a member goes on with the session of the members before it.
    async fn shares_sessions(
        &self,
        number: usize,
        shared: &mut Option<Connection>,
    ) -> Result<bool, Failure> {
        let Some(before) = shared.take() else {
            *shared = Some(self.ensemble.connect_to(number, Of::New, SHARED_TIMEOUT_MS).await?);
            return Ok(true);
        };
        let (session, first) = (before.client.session().clone(), before.member);
        // While it lives, it would take the session back.
        drop(before);
        let resume = async |number| {
            let of = Of::Session(session.clone());
            self.ensemble.connect_to(number, of, SHARED_TIMEOUT_MS).await
        };
        match resume(number).await {
            Ok(connection) => {
                *shared = Some(connection);
                Ok(true)
            }
            Err(Failure::Expired) => {
                // Only a session that lives elsewhere proves that this is another ensemble.
                *shared = Some(resume(first).await?);
                Ok(false)
            }
            Err(failure) => {
                *shared = resume(first).await.ok();
                Err(failure)
            }
        }
    }

    /// Returns the time-out of the session that a member grants instead of this one.
    async fn granted(&self, number: usize, timeout_ms: u64) -> Result<Duration, Failure> {
        let mut tries = 1;
        loop {
            match self.ensemble.connect_to(number, Of::Connection, timeout_ms).await {
                Ok(connection) => return Ok(Duration::from_millis(granted_ms(&connection))),
                Err(failure) if tries == GRANTED_TRIES => return Err(failure),
                Err(_) => tries += 1,
            }
        }
    }

    /// Asks a member for the report `srvr`. It is a question without a session.
    async fn report(&self, number: usize) -> Result<String, Failure> {
        let server = self.ensemble.server();
        let member = &server.members[number];
        let asking = async {
            let mut stream = door::open(server, member).await?;
            let mut report = String::new();
            let answer = async {
                stream.write_all(b"srvr").await?;
                stream.flush().await?;
                stream.take(LONGEST_REPORT).read_to_string(&mut report).await
            };
            match answer.await {
                Ok(_) => Ok(report),
                Err(error) => Err(Failure::unavailable(&member.to_string(), &error.to_string())),
            }
        };
        self.answer_of(number, asking).await
    }

    /// Limits the time of an answer of a member.
    async fn answer_of<T>(
        &self,
        number: usize,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let limit = self.ensemble.answer_timeout;
        timeout(limit, answer).await.unwrap_or_else(|_| {
            let member = self.ensemble.server().members[number].to_string();
            let reason = format!("no answer within {} ms", limit.as_millis());
            Err(Failure::unavailable(&member, &reason))
        })
    }
}
