//! The start of a cluster.
//!
//! It has two phases, so that an interrupted start can be repeated. First each node is prepared: it
//! records the cluster, and its own process. When all nodes are prepared, each is admitted, if it
//! is still the same process and prepared for the same cluster. A prepared node has never voted, so
//! it has issued no token that it could have lost.
//!
//! Several operators may do this at once. All of them take the nodes in the same order. A node is
//! prepared only if its record has not changed since the operator read it, before the first
//! preparation. An admitted node is not prepared again. So an operator that admits the first node
//! has prepared all of them. Nobody else can have prepared a later node since, because they would
//! have taken the first node before.

use std::time::Duration;

use fence::Holder;

use super::{
    error::{OperatorError, how_to_start_anew},
    places::{Places, check_distinct},
    view::Cluster,
};
use crate::{
    Ttl,
    redis::{
        keys::Keys,
        script::{Script, script},
    },
    redlock::{epoch::Epoch, membership::Standing, peer::Peer},
};

static PREPARE: Script = script!("../run_id.lua", "prepare.lua");
static ADMIT_PREPARED: Script = script!("../run_id.lua", "admit_prepared.lua");

/// Starts a cluster of all nodes, or completes a start that was interrupted.
pub(super) async fn start_cluster(places: &Places, max_ttl: Ttl) -> Result<Cluster, OperatorError> {
    // 1. Connect to all nodes. Nothing is changed unless all of them answer.
    let connected = places.connect_named().await;
    let errors: Vec<_> =
        connected.iter().filter_map(|peer| Some(peer.as_ref().err()?.to_string())).collect();
    if !errors.is_empty() {
        return Err(OperatorError::Unavailable(format!(
            "all nodes must answer, and nothing was changed: {}",
            errors.join("; ")
        )));
    }
    let mut peers: Vec<_> = connected.into_iter().flatten().collect();
    check_distinct(&peers)?;

    let members: Vec<_> = peers.iter().map(|peer| peer.address.clone()).collect();

    // 2. Sort them, because every operator must take them in the same order.
    peers.sort_unstable_by(|one, other| one.run_id.cmp(&other.run_id));
    for peer in &mut peers {
        peer.check_fitness().await?;
    }

    // 3. Prepare all nodes, unless an interrupted start has prepared them and admitted the first.
    let epoch = match interrupted_start(&peers, max_ttl)? {
        Some(epoch) => epoch,
        None => {
            let cluster = Holder::random().as_str().to_owned();
            let epoch = Epoch::first(cluster, members, max_ttl.as_millis());
            for peer in &mut peers {
                prepare(peer, &epoch).await?;
            }
            epoch
        }
    };

    // 4. Admit all nodes.
    let mut voting = 0;
    for peer in &mut peers {
        voting += usize::from(admit_prepared(peer, &epoch).await?);
    }
    Ok(Cluster {
        nodes: peers.len(),
        majority: epoch.majority(),
        voting,
        max_ttl_ms: Some(epoch.max_ttl_ms),
        cluster: Some(epoch.cluster),
        epoch: Some(epoch.number),
    })
}

/// Returns the epoch of a cluster whose start was interrupted after a node was admitted. `None` if no
/// node was admitted, and all can be prepared.
fn interrupted_start(peers: &[Peer], max_ttl: Ttl) -> Result<Option<Epoch>, OperatorError> {
    let admitted = |peer: &Peer| {
        let record = peer.record.as_ref()?;
        record.admitted.is_some().then(|| record.epoch.clone())
    };
    let prepared = |peer: &Peer| {
        let prepared = peer.record.as_ref().and_then(|record| record.prepared.as_ref());
        prepared == Some(&peer.run_id)
    };
    // The members may have changed since, and a node may have missed that.
    let epochs = peers.iter().filter_map(admitted);
    let Some(epoch) = epochs.max_by_key(|epoch| epoch.number) else {
        // A node that was prepared as another process may have been admitted after that, and
        // restarted from a snapshot taken in between.
        if !peers.iter().all(|peer| peer.record.is_none() || prepared(peer)) {
            return Err(in_other_clusters(peers));
        }
        return Ok(None);
    };
    let belongs = |peer: &Peer| {
        let same_cluster = peer.cluster() == Some(&epoch.cluster);
        let is_member = epoch.members.len() == peers.len();
        same_cluster && is_member && (admitted(peer).is_some() || prepared(peer))
    };
    if !peers.iter().all(belongs) {
        return Err(in_other_clusters(peers));
    }
    let is_removed = |peer: &&Peer| peer.member().is_none_or(|member| !epoch.has_member(member));
    if let Some(removed) = peers.iter().find(is_removed) {
        return Err(OperatorError::Unavailable(format!(
            "{} belongs to cluster {}, and is no member any more; the members are {}",
            removed.address,
            epoch.cluster,
            epoch.members.join(", ")
        )));
    }
    if epoch.max_ttl_ms != max_ttl.as_millis() {
        let longest = Duration::from_millis(epoch.max_ttl_ms);
        let longest =
            Ttl::new(longest).map_or_else(|_| format!("{longest:?}"), |ttl| ttl.to_string());
        return Err(OperatorError::Invalid(format!(
            "this cluster was started with --max-ttl {longest}, which can't be changed"
        )));
    }
    Ok(Some(epoch))
}

fn in_other_clusters(peers: &[Peer]) -> OperatorError {
    let memberships = peers.iter().map(|peer| {
        let Peer { address, standing, .. } = peer;
        let Some(cluster) = peer.cluster() else {
            return format!("{address} belongs to no cluster");
        };
        let admitted = peer.record.as_ref().is_some_and(|record| record.admitted.is_some());
        let state = match standing {
            Standing::Voting => "may vote",
            _ if admitted => "was admitted",
            _ => "was prepared",
        };
        format!("{address} belongs to cluster {cluster}, and {state}")
    });
    OperatorError::Unavailable(format!(
        "a cluster can only be started on nodes that belong to no cluster: {}. To admit a node \
         that has lost its data, run `lock-client node admit`. To start anew: {}",
        memberships.collect::<Vec<_>>().join("; "),
        how_to_start_anew()
    ))
}

async fn prepare(peer: &mut Peer, epoch: &Epoch) -> Result<(), OperatorError> {
    let call = PREPARE.with([Keys::NODE.to_owned()]).arg(&peer.run_id).arg(&peer.address);
    let call = call.arg(&epoch.cluster).arg(epoch.number).arg(&epoch.change);
    let call = call.arg(epoch.joined_members()).arg(epoch.max_ttl_ms);
    let call = call.arg(peer.cluster().unwrap_or_default());
    let answer = call.in_full().query_async(&mut peer.connection).await;
    match answer.map_err(|error| peer.error(&error))? {
        1 => Ok(()),
        _ => Err(changed_meanwhile(peer)),
    }
}

/// Admits a prepared node. Returns whether the node may vote now. A node that was admitted before
/// and has restarted since may not.
async fn admit_prepared(peer: &mut Peer, epoch: &Epoch) -> Result<bool, OperatorError> {
    if peer.record.as_ref().is_some_and(|record| record.admitted.is_some()) {
        return Ok(peer.votes_in(epoch));
    }
    let call = ADMIT_PREPARED.with([Keys::NODE.to_owned()]).arg(&peer.run_id).arg(&epoch.cluster);
    let answer = call.in_full().query_async(&mut peer.connection).await;
    match answer.map_err(|error| peer.error(&error))? {
        1 => Ok(true),
        _ => Err(changed_meanwhile(peer)),
    }
}

fn changed_meanwhile(peer: &Peer) -> OperatorError {
    OperatorError::Unavailable(format!(
        "{}: another operator is starting a cluster on it: wait until that has ended, and run \
         `lock-client node init` again",
        peer.address
    ))
}
