//! What a node is a member of, and whether it may vote.
//!
//! A node that has lost what it counted must not vote. So each node keeps what it was admitted to, and
//! as which process (the `run_id`, which Redis makes anew with each start): a process that isn't the
//! one that was admitted has no vote. It may have come up with nothing, or with an old snapshot, which
//! brings the record back together with old counters.
//!
//! Only where every write was on disk before it was answered, a restart loses nothing, and the
//! process that comes up is admitted by whoever connects to it first.

use std::collections::HashMap;

use redis::{RedisResult, aio::ConnectionLike};

use super::node::Absence;
use crate::backend::redis::script::{Script, script};

/// Where a node keeps what it is a member of.
pub(super) const MEMBERSHIP_KEY: &str = "fenced:node";

static SUCCEED: Script = script!("succeed.lua");

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
pub(crate) struct Record {
    /// The cluster's id.
    pub(crate) cluster: String,
    /// How many nodes the cluster has.
    pub(crate) nodes: usize,
    /// The longest ttl that is granted.
    pub(crate) max_ttl_ms: u64,
    /// The process that was admitted; `None` before any was.
    pub(crate) admitted: Option<String>,
    /// Whether the process that was admitted had every write on disk before it was answered.
    pub(crate) durable: bool,
}

impl Membership {
    /// Learns whether a node may vote that belongs to a cluster of so many nodes.
    pub(super) async fn learn(
        connection: &mut impl ConnectionLike,
        nodes: usize,
    ) -> Result<Self, Absence> {
        let run_id = run_id(connection).await?;
        let Some(record) = Record::read(connection).await? else {
            return Err(Absence::NoVote(
                "it belongs to no cluster: see `lock-client node init` and `node admit`".into(),
            ));
        };
        if record.nodes != nodes {
            return Err(Absence::NoVote(format!(
                "its cluster has {} nodes, and {nodes} were named: name them all",
                record.nodes
            )));
        }
        let cluster = record.cluster.clone();
        if record.admitted.as_ref() == Some(&run_id) || succeed(connection, &record).await? {
            return Ok(Self { cluster, run_id });
        }
        Err(Absence::NoVote(
            "it was started anew since it was admitted, and may have lost what it counted: see \
             `lock-client node admit`"
                .into(),
        ))
    }
}

impl Record {
    /// Reads a node's record; `None` if it has none that is whole.
    pub(crate) async fn read(connection: &mut impl ConnectionLike) -> RedisResult<Option<Self>> {
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
            durable: fields.get("durable").is_some_and(|durable| durable == "1"),
        })
    }
}

/// The process that a connection leads to.
pub(crate) async fn run_id(connection: &mut impl ConnectionLike) -> RedisResult<String> {
    let info: String = redis::cmd("INFO").arg("server").query_async(connection).await?;
    let fields = info.lines().filter_map(|line| line.split_once(':'));
    let run_id = fields.into_iter().find(|(name, _)| *name == "run_id");
    Ok(run_id.map_or_else(String::new, |(_, run_id)| run_id.trim().to_owned()))
}

/// Whether every write is on disk before it is answered. A server that doesn't tell is taken to have
/// it otherwise.
pub(crate) async fn is_durable(connection: &mut impl ConnectionLike) -> RedisResult<bool> {
    for (setting, durable) in
        [("appendonly", "yes"), ("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no")]
    {
        let mut command = redis::cmd("CONFIG");
        command.arg("GET").arg(setting);
        match command.query_async::<HashMap<String, String>>(connection).await {
            Ok(told) if told.get(setting).is_some_and(|told| told == durable) => {}
            Err(error) if error.is_io_error() => return Err(error),
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Has the present process take over from the one that was admitted, if nothing was lost between them.
/// Answers whether it has.
async fn succeed(connection: &mut impl ConnectionLike, record: &Record) -> RedisResult<bool> {
    let Some(admitted) = record.admitted.as_ref().filter(|_| record.durable) else {
        return Ok(false);
    };
    if !is_durable(connection).await? {
        return Ok(false);
    }
    let call = SUCCEED.with([MEMBERSHIP_KEY.to_owned()]).arg(&record.cluster).arg(admitted);
    call.in_full().query_async(connection).await
}
