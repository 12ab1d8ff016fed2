//! The start of a cluster.
//!
//! In two phases, so that one that was interrupted can be run again. First each node is prepared: it
//! notes the cluster, and the process that it is. Only when all have, each is admitted, if it is still
//! that process, and prepared for that cluster. A node that is prepared has never voted, and has issued
//! no token that it could have lost.
//!
//! Several may do that at once. All take the nodes in one order, a node is prepared only if it is as it
//! was seen before the first was, and one that was admitted isn't prepared any more. So whoever admits
//! the first node has prepared all, and nobody can have prepared a later one for another cluster since
//! without having taken the first before.

use fence::Holder;

use super::{
    Cluster, Operator,
    peer::{Peer, Trouble, distinct},
};
use crate::Ttl;
use crate::redis::script::Script;
use crate::redis::script::script;
use crate::redlock::membership::MEMBERSHIP_KEY;
use crate::redlock::membership::Standing;

static PREPARE: Script = script!("../process.lua", "prepare.lua");
static FOUND: Script = script!("../process.lua", "found.lua");

impl Operator {
    /// Starts a cluster of all nodes, or starts it to the end.
    pub async fn start_cluster(&self, max_ttl: Ttl) -> Result<Cluster, Trouble> {
        let connected = self.connect().await;
        let away: Vec<_> =
            connected.iter().filter_map(|peer| Some(peer.as_ref().err()?.to_string())).collect();
        if !away.is_empty() {
            return Err(Trouble::Unavailable(format!(
                "all nodes have to be there, and nothing was changed: {}",
                away.join("; ")
            )));
        }
        let mut peers: Vec<_> = connected.into_iter().flatten().collect();
        distinct(&peers)?;
        // Whoever starts a cluster on them takes them in this order.
        peers.sort_unstable_by(|one, other| one.run_id.cmp(&other.run_id));
        for peer in &mut peers {
            if !peer.durability().await?.is_by_itself() {
                return Err(Trouble::Wrong(format!(
                    "{} is a replica, or belongs to a Redis Cluster: each node is one Redis by itself",
                    peer.address
                )));
            }
        }
        let cluster = match begun(&peers, max_ttl)? {
            Some(cluster) => cluster,
            None => {
                let cluster = Holder::random().as_str().to_owned();
                let nodes = peers.len();
                for peer in &mut peers {
                    prepare(peer, &cluster, nodes, max_ttl).await?;
                }
                cluster
            }
        };
        let mut voting = 0;
        for peer in &mut peers {
            voting += usize::from(found(peer, &cluster).await?);
        }
        Ok(Cluster {
            cluster: Some(cluster),
            nodes: peers.len(),
            majority: self.majority(),
            voting,
            max_ttl_ms: Some(max_ttl.as_millis()),
        })
    }
}

/// The cluster that was begun on these nodes, and can be started to the end.
fn begun(peers: &[Peer], max_ttl: Ttl) -> Result<Option<String>, Trouble> {
    let admitted = |peer: &Peer| {
        let record = peer.record.as_ref()?;
        record.admitted.is_some().then(|| (record.cluster.clone(), record.max_ttl_ms))
    };
    let prepared = |peer: &Peer| {
        let prepared = peer.record.as_ref().and_then(|record| record.prepared.as_ref());
        prepared == Some(&peer.run_id)
    };
    let Some((cluster, max_ttl_ms)) = peers.iter().find_map(admitted) else {
        // One that was prepared as another process may have been admitted since then, and have come up
        // with a snapshot of the time between.
        return match peers.iter().all(|peer| peer.record.is_none() || prepared(peer)) {
            true => Ok(None),
            false => Err(other_clusters(peers)),
        };
    };
    let belongs = |peer: &Peer| {
        let of_it = peer.cluster() == Some(&cluster) && peer.standing != Standing::OtherCluster;
        of_it && (admitted(peer).is_some() || prepared(peer))
    };
    if !peers.iter().all(belongs) {
        return Err(other_clusters(peers));
    }
    if max_ttl_ms != max_ttl.as_millis() {
        return Err(Trouble::Wrong(format!(
            "this cluster was started with --max-ttl {max_ttl_ms}ms, which can't be changed"
        )));
    }
    Ok(Some(cluster))
}

fn other_clusters(peers: &[Peer]) -> Trouble {
    let told = peers.iter().map(|peer| {
        let Peer { address, standing, .. } = peer;
        match peer.cluster() {
            None => format!("{address} belongs to no cluster"),
            Some(cluster) => {
                let admitted = peer.record.as_ref().is_some_and(|record| record.admitted.is_some());
                let how = match standing {
                    Standing::Voting => "and may vote",
                    _ if admitted => "and was admitted",
                    _ => "and was prepared",
                };
                format!("{address} belongs to cluster {cluster}, {how}")
            }
        }
    });
    Trouble::Unavailable(format!(
        "a cluster can only be started on nodes that belong to none: {}. A node that has lost its \
         state is let in by `lock-client node admit`. To start anew: {}",
        told.collect::<Vec<_>>().join("; "),
        super::admission::START_ANEW
    ))
}

async fn prepare(
    peer: &mut Peer,
    cluster: &str,
    nodes: usize,
    max_ttl: Ttl,
) -> Result<(), Trouble> {
    let call = PREPARE.with([MEMBERSHIP_KEY.to_owned()]).arg(&peer.run_id).arg(cluster);
    let call = call.arg(nodes).arg(max_ttl.as_millis()).arg(peer.cluster().unwrap_or_default());
    let command = call.in_full();
    match command.query_async(&mut peer.connection).await.map_err(|error| peer.trouble(error))? {
        1 => Ok(()),
        _ => Err(overtaken(peer)),
    }
}

/// Answers whether the node may vote now: one that was admitted before it was started anew may not.
async fn found(peer: &mut Peer, cluster: &str) -> Result<bool, Trouble> {
    if peer.record.as_ref().is_some_and(|record| record.admitted.is_some()) {
        return Ok(peer.standing == Standing::Voting);
    }
    let durable = peer.durability().await?.keeps_all();
    let call = FOUND.with([MEMBERSHIP_KEY.to_owned()]).arg(&peer.run_id).arg(cluster);
    let command = call.arg(u8::from(durable)).in_full();
    match command.query_async(&mut peer.connection).await.map_err(|error| peer.trouble(error))? {
        1 => Ok(true),
        _ => Err(overtaken(peer)),
    }
}

fn overtaken(peer: &Peer) -> Trouble {
    Trouble::Unavailable(format!(
        "{}: somebody else starts a cluster on it at the same time: when they have ended, run this again",
        peer.address
    ))
}
