//! What a node is a member of, and whether it may vote.
//!
//! A node that has lost what it counted must not vote. So each node keeps what it was admitted to, and
//! as which process (the `run_id`, which Redis makes anew with each start): a process that isn't the
//! one that was admitted has no vote. It may have come up with nothing, or with an old snapshot, which
//! brings the record back together with old counters.
//!
//! Only where every write was on disk before it was answered, a restart loses nothing, and the
//! process that comes up takes the vote over by whoever connects to it first. An old append-only file
//! that somebody has put in its place looks the same: whoever restores a backup deletes `fenced:node`
//! there, and admits the node.

use std::collections::HashMap;

use redis::{ErrorKind, RedisError, RedisResult, aio::ConnectionLike};

use super::{durability::Durability, node::Absence};
use crate::redis::script::{Script, script};

/// Where a node keeps what it is a member of.
pub(crate) const MEMBERSHIP_KEY: &str = "fenced:node";

static SUCCEED: Script = script!("process.lua", "succeed.lua");

/// A node's right to vote, as it was when it was connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Membership {
    /// The cluster's id.
    pub(super) cluster: String,
    /// The process that was admitted, and that is connected to.
    pub(super) run_id: String,
}

/// What a node keeps of its membership.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// The cluster's id.
    pub(super) cluster: String,
    /// How many nodes the cluster has.
    pub(super) nodes: usize,
    /// The longest ttl that is granted.
    pub(super) max_ttl_ms: u64,
    /// The process that was admitted; `None` before any was.
    pub(super) admitted: Option<String>,
    /// The process that was to be admitted, when the cluster was being started.
    pub(super) prepared: Option<String>,
    /// Whether the process that was admitted had every write on disk before it was answered.
    pub(super) durable: bool,
}

/// How a process stands to a cluster of so many nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It may vote.
    Voting,
    /// Another process was admitted before it: it was started anew, and may have lost what it counted.
    Restarted,
    /// The cluster was not started to its end. It has never voted.
    Prepared,
    /// It belongs to another cluster.
    OtherCluster,
    /// It belongs to none.
    NoCluster,
}

impl Membership {
    /// Learns whether a node may vote that belongs to a cluster of so many nodes.
    pub(super) async fn learn(
        connection: &mut impl ConnectionLike,
        nodes: usize,
    ) -> Result<Self, Absence> {
        let run_id = run_id(connection).await?;
        let record = Record::read(connection).await?;
        match (Standing::of(connection, &run_id, record.as_ref(), nodes).await?, record) {
            (Standing::Voting, Some(Record { cluster, .. })) => Ok(Self { cluster, run_id }),
            (standing, _) => Err(Absence::NoVote(standing.reason().to_owned())),
        }
    }
}

impl Standing {
    /// Compares a process with the record that its node has. One that has lost nothing takes over from
    /// the one that was admitted.
    pub(super) async fn of(
        connection: &mut impl ConnectionLike,
        run_id: &str,
        record: Option<&Record>,
        nodes: usize,
    ) -> RedisResult<Self> {
        let Some(record) = record else { return Ok(Self::NoCluster) };
        if record.nodes != nodes {
            return Ok(Self::OtherCluster);
        }
        Ok(match &record.admitted {
            Some(admitted) if admitted == run_id => {
                if record.durable && Durability::of(connection).await?.may_lose() {
                    lose_durability(connection, record, admitted).await?;
                }
                Self::Voting
            }
            Some(admitted) if record.durable && succeed(connection, record, admitted).await? => {
                Self::Voting
            }
            None if record.prepared.as_deref() == Some(run_id) => Self::Prepared,
            _ => Self::Restarted,
        })
    }

    /// Why it has no vote, and what gives it one.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Voting => "it may vote",
            Self::Restarted => {
                "it was started anew since it was admitted, and may have lost what it counted: \
                 `lock-client node admit` lets it in"
            }
            Self::Prepared => {
                "its cluster was not started to the end: run `lock-client node init` again"
            }
            Self::OtherCluster => {
                "it belongs to another cluster, or to one of another number of nodes: name all of its \
                 nodes, and no others"
            }
            Self::NoCluster => {
                "it belongs to no cluster: `lock-client node init` starts one; `node admit` lets a node in \
                 that has lost everything. If all have, stop all clients, and wait for the longest ttl \
                 before `node init`"
            }
        }
    }
}

impl Record {
    /// Reads a node's record; `None` if it has none that is whole.
    pub(super) async fn read(connection: &mut impl ConnectionLike) -> RedisResult<Option<Self>> {
        let mut fields: HashMap<String, String> =
            redis::cmd("HGETALL").arg(MEMBERSHIP_KEY).query_async(connection).await?;
        Ok(Self::of(&mut fields))
    }

    fn of(fields: &mut HashMap<String, String>) -> Option<Self> {
        Some(Self {
            cluster: fields.remove("cluster")?,
            nodes: fields.get("nodes")?.parse().ok()?,

            max_ttl_ms: fields.get("max_ttl_ms")?.parse().ok()?,
            admitted: fields.remove("run_id"),
            prepared: fields.remove("prepared"),
            durable: fields.get("durable").is_some_and(|durable| durable == "1"),
        })
    }
}

/// The process that a connection leads to.
///
/// # Errors
/// If it doesn't tell: then nobody would see that it was started anew.
pub(super) async fn run_id(connection: &mut impl ConnectionLike) -> RedisResult<String> {
    let info: String = redis::cmd("INFO").arg("server").query_async(connection).await?;
    let mut fields = info.lines().filter_map(|line| line.split_once(':'));
    let run_id = fields.find(|(name, id)| *name == "run_id" && !id.is_empty());
    let untold = || RedisError::from((ErrorKind::Client, "it doesn't tell its run_id"));
    run_id.map(|(_, run_id)| run_id.to_owned()).ok_or_else(untold)
}

/// Notes that the process that was admitted doesn't keep everything any more: then none takes its vote
/// over.
async fn lose_durability(
    connection: &mut impl ConnectionLike,
    record: &Record,
    admitted: &str,
) -> RedisResult<()> {
    let call = SUCCEED.with([MEMBERSHIP_KEY.to_owned()]).arg(&record.cluster).arg(admitted);
    call.arg(0).in_full().query_async(connection).await
}

/// Has the present process take over from the one that was admitted as durable, if nothing was lost
/// between them. Answers whether it has.
async fn succeed(
    connection: &mut impl ConnectionLike,
    record: &Record,
    admitted: &str,
) -> RedisResult<bool> {
    let Some(kept) = Durability::of(connection).await?.has_kept_all() else { return Ok(false) };
    let call = SUCCEED.with([MEMBERSHIP_KEY.to_owned()]).arg(&record.cluster).arg(admitted);
    call.arg(u8::from(kept)).in_full().query_async(connection).await
}
