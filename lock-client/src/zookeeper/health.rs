//! What the members of ZooKeeper report about themselves, for a check of the ensemble.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::{
    client::ZooKeeper,
    connection::{Connection, Keeping},
    failure::Failure,
    messages::{Node, Request, Watch},
    session::Session,
    stream,
};
use crate::backend::BackendError;

/// The node that lists the members, since ZooKeeper 3.5.
const CONFIG: &str = "/zookeeper/config";
/// The time-out of the session that goes from member to member.
const SHARED_TIMEOUT_MS: i32 = 10_000;
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
    /// The shortest ttl that it grants.
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
        if let Some(connection) = shared {
            // If this fails, the session expires soon.
            let _ = connection.close_session().await;
        }
        all
    }

    /// Returns the number of all members, whether the URL names them or not.
    ///
    /// # Errors
    /// [`BackendError`] if no member answers, or the user may not read it.
    pub async fn ensemble_size(&self) -> Result<usize, BackendError> {
        let connection = self.ensemble.reading().await?;
        let node = Node::parse(&connection.send(Request::get_data(CONFIG, Watch::No)).await?)?;
        // A member that is alone lists nothing.
        Ok(node.data.lines().filter(|line| line.starts_with("server.")).count().max(1))
    }

    async fn member(
        &self,
        number: usize,
        shared: &mut Option<Connection>,
    ) -> Result<MemberReport, Failure> {
        let shares_sessions = self.shares_sessions(number, shared).await?;
        let shortest_ttl = self.granted(number, 1).await?;
        let longest_ttl = self.granted(number, i32::MAX).await?;
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
        let Some(before) = shared else {
            *shared = Some(self.open_at(number, None, SHARED_TIMEOUT_MS).await?);
            return Ok(true);
        };
        match self.open_at(number, Some(&before.session), SHARED_TIMEOUT_MS).await {
            Ok(connection) => {
                *shared = Some(connection);
                Ok(true)
            }
            Err(Failure::Expired) => {
                // Only a session that lives elsewhere proves that this is another ensemble.
                let session = Some(&before.session);
                *shared = Some(self.open_at(before.member, session, SHARED_TIMEOUT_MS).await?);
                Ok(false)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Returns the time-out of the session that a member grants instead of this one.
    async fn granted(&self, number: usize, timeout_ms: i32) -> Result<Duration, Failure> {
        let connection = self.open_at(number, None, timeout_ms).await?;
        connection.close_session().await?;
        Ok(Duration::from_millis(connection.session.timeout_ms))
    }

    async fn open_at(
        &self,
        number: usize,
        session: Option<&Session>,
        timeout_ms: i32,
    ) -> Result<Connection, Failure> {
        let (server, limit) = (self.ensemble.server(), self.ensemble.answer_timeout);
        let keeping = Keeping::ByConnecting;
        let opening = Connection::open(server, number, session, timeout_ms, keeping, limit);
        self.answer_of(number, opening).await
    }

    /// Asks a member for the report `srvr`. It is a question without a session.
    async fn report(&self, number: usize) -> Result<String, Failure> {
        let server = self.ensemble.server();
        let member = &server.members[number];
        let asking = async {
            let (reader, mut writer) = stream::open(server, member).await?;
            let mut report = String::new();
            let answer = async {
                writer.write_all(b"srvr").await?;
                writer.flush().await?;
                reader.take(LONGEST_REPORT).read_to_string(&mut report).await
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
