//! The record that each node keeps: the roster of its cluster, and the vote of its process.
//!
//! A node that has lost counters must not vote. So the roster names the process that may vote for each
//! member, by its `run_id`, which Redis creates anew at each start. Another process has no vote: it may
//! have come up with nothing, or with an old file, which restores the record together with old
//! counters. Settings prove nothing here: a file that was switched off meanwhile also brings both back.

use redis::{ErrorKind, RedisError, RedisResult, aio::ConnectionLike};

use super::roster::Roster;
use crate::redis::keys::Keys;

/// The record that a node keeps.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) roster: Roster,
    /// Set once a process was admitted. The voting scripts compare it with what a client names.
    pub(super) vote: Option<String>,
    /// A process that has given up its vote, and the roster that it voted for. [`NOBODY`] and the
    /// roster before, if a node was prepared that had no vote.
    pub(super) retired: Option<(String, Roster)>,
}

/// No process has this `run_id`.
const NOBODY: &str = "-";

/// The fields of a record: the roster, the vote, and what is retired.
pub(super) type Fields = (Option<String>, Option<String>, Option<String>);

impl Record {
    /// Reads a node's record; `None` if there is none.
    ///
    /// # Errors
    /// Also if there is a roster that this version can't read. The scripts compare whole texts, so none
    /// would ever match.
    pub(super) async fn read(connection: &mut impl ConnectionLike) -> RedisResult<Option<Self>> {
        let mut fields = redis::cmd("HMGET");
        fields.arg(Keys::NODE).arg("roster").arg("vote").arg("retired");
        Self::parse(fields.query_async(connection).await?)
    }

    pub(super) fn parse((roster, vote, retired): Fields) -> RedisResult<Option<Self>> {
        let Some(roster) = roster else { return Ok(None) };
        let parse = |roster: &str| {
            Roster::parse(roster).ok_or_else(|| {
                let unreadable = "its key fenced:node has a roster that this version can't read";
                RedisError::from((ErrorKind::Client, unreadable))
            })
        };
        let retired = retired.as_deref().and_then(|retired| retired.split_once(' '));
        let retired =
            retired.map(|(process, roster)| RedisResult::Ok((process.to_owned(), parse(roster)?)));
        Ok(Some(Self { roster: parse(&roster)?, vote, retired: retired.transpose()? }))
    }

    /// The fields on the node; empty if there is none.
    pub(super) fn fields(&self) -> [String; 3] {
        let retired = self.retired.as_ref().map(|(process, roster)| format!("{process} {roster}"));
        let vote = self.vote.clone().unwrap_or_default();
        [self.roster.to_string(), vote, retired.unwrap_or_default()]
    }

    /// The record of a process that holds a roster, and votes for it or not.
    pub(super) fn new(roster: Roster, process: &str, is_admitted: bool) -> Self {
        let vote = is_admitted.then(|| vote(&roster, process));
        Self { roster, vote, retired: None }
    }

    /// The record of a process that is prepared for a roster. The last roster of another cluster stays
    /// beside it, whether somebody has voted for it here or not: it leads to the voters of that cluster.
    pub(super) fn prepared(roster: Roster, before: Option<&Self>) -> Self {
        let retired = before.and_then(|before| {
            let last = before.last_roster()?;
            let is_kept = before.retired.iter().any(|(_, own)| own.cluster == last.cluster);
            match is_kept || last.cluster == roster.cluster {
                true => before.retired.clone(),
                false => Some((NOBODY.to_owned(), last.clone())),
            }
        });
        Self { roster, vote: None, retired }
    }

    /// Whether a process may vote for the roster in the record.
    pub(super) fn admits(&self, process: &str) -> bool {
        self.vote.as_ref().is_some_and(|own| *own == vote(&self.roster, process))
    }

    /// The rosters in the record.
    pub(super) fn rosters(&self) -> impl Iterator<Item = &Roster> {
        std::iter::once(&self.roster).chain(self.retired.as_ref().map(|(_, roster)| roster))
    }

    /// The last roster of a cluster to which the data belong, whichever process has written them. Not one
    /// for which a start has prepared them, and was interrupted.
    pub(super) fn last_roster(&self) -> Option<&Roster> {
        match self.is_prepared_only() {
            true => self.retired.as_ref().map(|(_, roster)| roster),
            false => Some(&self.roster),
        }
    }

    /// Whether a start has prepared this node, and admitted nobody here.
    pub(super) fn is_prepared_only(&self) -> bool {
        let gave_up = self.retired.as_ref().is_some_and(|(_, own)| *own == self.roster);
        self.roster.is_first() && self.vote.is_none() && !gave_up
    }

    /// The roster that a process has voted for until it gave up its vote.
    pub(super) fn retired_from(&self, process: &str) -> Option<&Roster> {
        let retired = self.retired.as_ref().filter(|(own, _)| own == process);
        retired.map(|(_, roster)| roster)
    }
}

/// What a client names in each request for a vote: the longest ttl, the process that it is connected
/// to, and the whole roster, by its hash. The node has the same in its record, unless its roster or its
/// process is another.
pub(super) fn vote(roster: &Roster, process: &str) -> String {
    let hash = redis::Script::new(&roster.to_string()).get_hash().to_owned();
    format!("{} {process} {hash}", roster.max_ttl_ms)
}

/// Reads the id of the process at the other end of a connection.
///
/// # Errors
/// Also if the process does not report its id: then a restart would go unnoticed.
pub(super) async fn read_process(connection: &mut impl ConnectionLike) -> RedisResult<String> {
    let info: String = redis::cmd("INFO").arg("server").query_async(connection).await?;
    let mut fields = info.lines().filter_map(|line| line.split_once(':'));
    let run_id = fields.find(|(name, id)| *name == "run_id" && !id.is_empty());
    let missing = || RedisError::from((ErrorKind::Client, "INFO does not contain its run_id"));
    run_id.map(|(_, run_id)| run_id.to_owned()).ok_or_else(missing)
}
