//! What the members of ZooKeeper report about themselves, for a check of the ensemble.

use std::{collections::HashMap, time::Duration};

use super::{
    client::ZooKeeper,
    ensemble::{SessionRequest, granted_ms},
    failure::Failure,
    report::report,
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
    /// Its connections. `None` if its setting `4lw.commands.whitelist` is without `conf` or `cons`.
    pub connections: Option<Connections>,
}

/// The connections of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    /// How many it allows to each address (`maxClientCnxns`); 0 without a limit.
    pub limit: u32,
    /// How many are open from the address that has the most.
    pub open: u32,
}

impl ZooKeeper {
    /// Asks each member that the URL names about itself.
    ///
    /// Sessions are opened for this, and closed. They have no nodes.
    pub async fn members(&self) -> Vec<MemberHealth> {
        let mut first = None;
        let mut all = Vec::new();
        for (number, member) in self.ensemble.server().members.iter().enumerate() {
            let report = self.member(number, &mut first).await.map_err(Into::into);
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
        first: &mut Option<usize>,
    ) -> Result<MemberReport, Failure> {
        let shares_sessions = match *first {
            None => true,
            Some(first) => self.share_sessions(first, number).await?,
        };
        let shortest_ttl = self.granted(number, SHORTEST_MS).await?;
        let longest_ttl = self.granted(number, LONGEST_MS).await?;
        // One that does not answer has no session to share.
        first.get_or_insert(number);
        let report = self.report(number, "srvr").await;
        let line = |name| report.lines().find_map(|line| line.strip_prefix(name));
        let version = line("Zookeeper version: ")
            .map(|version| version.split([',', '-']).next().unwrap_or_default().trim().to_owned());
        let mode = line("Mode: ").map(str::to_owned);
        let connections = self.connections(number).await;
        Ok(MemberReport { version, mode, shares_sessions, shortest_ttl, longest_ttl, connections })
    }

    /// Returns what a member reports of its connections; `None` if it hides them.
    async fn connections(&self, number: usize) -> Option<Connections> {
        let settings = self.report(number, "conf").await;
        let limit = settings.lines().find_map(|line| line.strip_prefix("maxClientCnxns="))?;
        // Each line has a client, such as `/127.0.0.1:40516[1](queued=0,recved=1,sent=0)`.
        let report = self.report(number, "cons").await;
        let clients = report.lines().filter_map(|line| Some(line.split_once('[')?.0));
        let mut open = HashMap::<_, u32>::new();
        for (address, _port) in clients.filter_map(|client| client.rsplit_once(':')) {
            *open.entry(address).or_default() += 1;
        }
        // The question itself is among them.
        Some(Connections { limit: limit.trim().parse().ok()?, open: open.into_values().max()? })
    }

    async fn report(&self, number: usize, name: &str) -> String {
        let (server, limit) = (self.ensemble.server(), self.ensemble.answer_timeout);
        report(server, &server.members[number], name, limit).await.unwrap_or_default()
    }

    /// Whether a session of the first member goes on at another one.
    async fn share_sessions(&self, first: usize, other: usize) -> Result<bool, Failure> {
        let connect = async |number, request| {
            self.ensemble.connect_to(number, request, SHARED_TIMEOUT_MS).await
        };
        // While its connection lives, it would take the session back.
        let session = connect(first, SessionRequest::Lasting).await?.client.session().clone();
        let existing = || SessionRequest::Existing(session.clone());
        match connect(other, existing()).await {
            Ok(_) => Ok(true),
            // Only a session that lives elsewhere proves that this is another ensemble.
            Err(Failure::Expired) => connect(first, existing()).await.map(|_| false),
            Err(failure) => Err(failure),
        }
    }

    async fn granted(&self, number: usize, timeout_ms: u64) -> Result<Duration, Failure> {
        let mut tries = 1;
        loop {
            let temporary = SessionRequest::Temporary;
            match self.ensemble.connect_to(number, temporary, timeout_ms).await {
                Ok(connection) => return Ok(Duration::from_millis(granted_ms(&connection))),
                Err(failure) if tries == GRANTED_TRIES => return Err(failure),
                Err(_) => tries += 1,
            }
        }
    }
}
