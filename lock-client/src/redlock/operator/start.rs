//! The start of a cluster: on new servers, in place of an old cluster, or after the loss of a majority.
//!
//! It has two phases, so that an interrupted start can be repeated. First each node is prepared: it
//! holds the first roster, which names all processes. When all hold it, each is admitted. A prepared
//! process has never voted, so it has issued no token that it could have lost. That is true of the first
//! roster alone: a process that takes a seat later waits, and is given the counters.
//!
//! Several operators may do this at once. All of them take the nodes in the same order. A node is
//! prepared only if its roster has not changed since the operator read it, before the first preparation,
//! and an admitted node is not prepared again. So an operator that admits the first node has prepared all
//! of them. Nobody else can have prepared a later node since, because they would have taken the first
//! node before.
//!
//! Counters come from an old cluster, if there is one. Its voters give up their votes first. Then the
//! start waits for the longest ttl, copies their counters to all nodes, and looks at the voters again.
//!
//! A cluster that has lost its majority may have voters left. They are no reason to reject its new start:
//! their counters are the best that are left, and a restart might lose them. They give up their votes, too.
//! A voter that was not named can't be asked to, so the start rejects. It also rejects if a majority votes,
//! because then a takeover loses nothing.
//!
//! So a start looks at all servers that any data name. What an earlier start has prepared must not hide
//! the voters of the old cluster.

use std::{collections::BTreeMap, time::Duration};

use fence::Holder;

use super::{
    counters::{self, CopiedCounters},
    error::OperatorError,
    peer::Peer,
    servers::{Servers, Sight, several_clusters},
    view::Cluster,
};
use crate::{
    Moment, Ttl,
    redis::unix_millis,
    redlock::{majority::majority, roster::Roster},
};

/// What a new cluster replaces.
#[derive(Clone, Copy, Debug)]
pub(super) enum Replaced<'a> {
    /// Nothing: the nodes are new.
    Nothing,
    /// Another cluster. A majority of its voters give their counters.
    Cluster(&'a Servers),
    /// The cluster of the same nodes, which has lost its majority. Too few of them are left that know all
    /// issued tokens. So each counter is raised to the clock, too.
    LostMajority,
}

/// Starts a cluster of all nodes, or completes a start that was interrupted.
pub(super) async fn start_cluster(
    servers: &Servers,
    max_ttl: Ttl,
    replaced: Replaced<'_>,
    report: impl FnOnce(Duration),
) -> Result<Cluster, OperatorError> {
    // 1. Look at all nodes, and at the cluster that is replaced. Nothing is changed unless all nodes
    //    answer and are fit, and none belongs to another cluster.
    let mut sight = connect(servers).await?;
    let old_servers = match replaced {
        Replaced::Nothing => None,
        Replaced::Cluster(old) => Some(old),
        Replaced::LostMajority => Some(servers),
    };
    let old_sight = match old_servers {
        Some(old) => old.look_everywhere().await,
        None => Sight::default(),
    };
    let old = old_servers.map_or(Ok(None), |servers| last_roster(servers, &old_sight));
    if let Some(roster) = interrupted_start(&sight, &old) {
        check_ttl(&roster, max_ttl)?;
        return admit(&sight, &roster).await;
    }
    let old = old?;
    check_replaced(&old_sight, &sight, old.as_ref(), replaced)?;
    check_strangers(&sight, old.as_ref(), replaced)?;

    // 2. Take the votes of the old cluster, wait until all its locks have expired, and copy its counters
    //    to all nodes. They are connected to again: a server may have closed an idle connection.
    if let Some(old_servers) = old_servers {
        retire(&old_sight, old.as_ref()).await?;
        // Data may be left of a cluster that is not known to be the old one.
        let in_data = old_sight.peers.iter().chain(&sight.peers).map(Peer::longest_ttl_ms).max();
        let longest = Duration::from_millis(max_ttl.as_millis().max(in_data.unwrap_or(0)));
        let ready_at = Moment::now() + longest + longest / 100 + Duration::from_millis(2);
        report(ready_at.remaining());
        ready_at.passed().await;
        sight = connect(servers).await?;
        copy(old_servers, &sight, old.as_ref(), replaced).await?;
    }

    // 3. Prepare all nodes, in one order, and admit them.
    let members = servers.named.iter().filter_map(|url| {
        let peer = sight.at(&url.address)?;
        Some((peer.address.clone(), peer.process.clone()))
    });
    let cluster = Holder::random().as_str().to_owned();
    let roster = Roster::first(cluster, max_ttl.as_millis(), members);
    let peers = in_order(&sight);
    for &peer in &peers {
        let state = peer.prepare(&roster).await?;
        if state.roster.as_ref() != Some(&roster) {
            return Err(changed_meanwhile(peer));
        }
    }
    // If the first node is not admitted, another operator may have prepared the later ones since.
    if !peers[0].admit(&roster).await?.is_admitted {
        return Err(changed_meanwhile(peers[0]));
    }
    admit(&sight, &roster).await
}

/// Connects to all nodes, and checks that each can be one.
async fn connect(servers: &Servers) -> Result<Sight, OperatorError> {
    let sight = servers.look_at_named().await;
    if !sight.silent.is_empty() {
        let errors: Vec<_> = sight.silent.iter().map(ToString::to_string).collect();
        return Err(OperatorError::Unavailable(format!(
            "all nodes must answer: {}",
            errors.join("; ")
        )));
    }
    sight.check_distinct()?;
    sight.peers.iter().try_for_each(OperatorError::if_unfit)?;
    Ok(sight)
}

/// The nodes in the order in which every operator takes them.
fn in_order(sight: &Sight) -> Vec<&Peer> {
    let mut peers: Vec<_> = sight.peers.iter().collect();
    peers.sort_unstable_by(|one, other| one.process.cmp(&other.process));
    peers
}

/// The roster of the old cluster for which most processes vote, or have voted until they gave up their
/// votes; without any, the newest one. `None` if these servers belong to no cluster.
///
/// # Errors
/// The servers belong to several clusters, and none of them has a majority of them.
fn last_roster(servers: &Servers, sight: &Sight) -> Result<Option<Roster>, OperatorError> {
    // A start that was interrupted may have prepared servers for a new cluster. They belong to the old
    // one, if they have voted in it.
    let last = |peer: &Peer| {
        let in_data = || peer.record.as_ref()?.last_roster();
        peer.voted_for().or_else(in_data).cloned()
    };
    let own = servers.named.iter().filter_map(|url| last(sight.at(&url.address)?));
    let mut clusters: BTreeMap<String, usize> = BTreeMap::new();
    own.for_each(|roster| *clusters.entry(roster.cluster).or_default() += 1);
    let majority = majority(servers.named.len());
    let cluster = match clusters.len() {
        0 => return Ok(None),
        1 => clusters.keys().next(),
        _ => clusters.iter().find(|(_, number)| **number >= majority).map(|(cluster, _)| cluster),
    };
    let Some(cluster) = cluster else {
        return Err(OperatorError::Invalid(several_clusters(clusters.len())));
    };
    let rosters = sight.peers.iter().filter_map(last).filter(|roster| roster.cluster == *cluster);
    Ok(rosters.max_by_key(|roster| (voted(sight, roster).count(), roster.term)))
}

/// Returns the first roster of a cluster whose start was interrupted after a node was admitted, or that
/// has ended. `None` if no node votes in one, or if that cluster is the one to be replaced.
fn interrupted_start(sight: &Sight, old: &Result<Option<Roster>, OperatorError>) -> Option<Roster> {
    let is_of_these = |roster: &&Roster| {
        let is_here = |process: &str| sight.with(process).is_some();
        // Otherwise another process has taken a seat since.
        let is_last = |own: &Roster| own == *roster || own.cluster != roster.cluster;
        roster.is_first()
            && sight.peers.iter().filter_map(Peer::roster).all(is_last)
            && roster.seats.len() == sight.peers.len()
            && roster.seats.iter().all(|seat| is_here(&seat.process))
            // Otherwise another operator is replacing it.
            && !sight.peers.iter().any(|peer| peer.retired_from() == Some(roster))
    };
    let mut voted = sight.peers.iter().filter(|peer| peer.votes()).filter_map(Peer::roster);
    let roster = voted.find(is_of_these)?;
    let is_held = sight.peers.iter().all(|peer| peer.roster() == Some(roster));
    let is_incomplete = is_held && !sight.peers.iter().all(Peer::votes);
    let is_another =
        old.as_ref().is_ok_and(|old| old.as_ref().is_none_or(|old| old.cluster != roster.cluster));
    (is_another || is_incomplete).then(|| roster.clone())
}

fn check_ttl(roster: &Roster, max_ttl: Ttl) -> Result<(), OperatorError> {
    if roster.max_ttl_ms == max_ttl.as_millis() {
        return Ok(());
    }
    let longest = Ttl::new(Duration::from_millis(roster.max_ttl_ms));
    let longest = longest.map_or_else(|error| error.to_string(), |ttl| ttl.to_string());
    Err(OperatorError::Invalid(format!(
        "this cluster was started with --max-ttl {longest}, which can't be changed"
    )))
}

/// Admits all nodes that hold the first roster of a cluster. The script passes over a node that has lost
/// it, and may have voted: the watcher admits that one.
async fn admit(sight: &Sight, roster: &Roster) -> Result<Cluster, OperatorError> {
    assert!(roster.is_first(), "others wait before they are admitted");
    let mut voting = 0;
    for peer in in_order(sight) {
        let state = peer.admit(roster).await?;
        voting += usize::from(state.is_admitted && state.roster.as_ref() == Some(roster));
    }
    if voting == 0 {
        return Err(changed_meanwhile(in_order(sight)[0]));
    }
    Ok(Cluster {
        cluster: Some(roster.cluster.clone()),
        term: Some(roster.term),
        nodes: roster.seats.len(),
        majority: roster.majority(),
        voting,
        max_ttl_ms: Some(roster.max_ttl_ms),
    })
}

/// Checks that the old cluster can be replaced: a majority of its voters have the counters; or, if it has
/// lost its majority, none of its voters is left out.
fn check_replaced(
    old_sight: &Sight,
    sight: &Sight,
    old: Option<&Roster>,
    replaced: Replaced<'_>,
) -> Result<(), OperatorError> {
    match (replaced, old) {
        (Replaced::Nothing, _) | (Replaced::LostMajority, None) => Ok(()),
        (Replaced::Cluster(_), None) => Err(too_few_sources(0, None, old_sight)),
        (Replaced::Cluster(_), Some(old)) => match voted(old_sight, old).count() {
            number if number < old.majority() => Err(too_few_sources(number, Some(old), old_sight)),
            _ => Ok(()),
        },
        (Replaced::LostMajority, Some(old)) if old_sight.voters(old) >= old.majority() => {
            Err(OperatorError::Invalid(
                "a majority of the nodes may vote, and knows all issued tokens: run `lock-client node \
                 admit` for the others"
                    .to_owned(),
            ))
        }
        (Replaced::LostMajority, Some(old)) => {
            let mut voters = voters_of(old_sight, old);
            match voters.find(|peer| sight.with(&peer.process).is_none()) {
                None => Ok(()),
                Some(peer) => Err(OperatorError::Invalid(format!(
                    "{} may vote in the cluster that is started again, and was not named: name it, or \
                     stop it for good",
                    peer.address
                ))),
            }
        }
    }
}

/// Checks that no node belongs to a cluster that this start does not replace.
fn check_strangers(
    sight: &Sight,
    old: Option<&Roster>,
    replaced: Replaced<'_>,
) -> Result<(), OperatorError> {
    let is_replaced = |roster: &Roster| old.is_some_and(|old| old.cluster == roster.cluster);
    let is_free = |peer: &Peer| {
        let Some(roster) = peer.roster() else { return true };
        match replaced {
            Replaced::LostMajority => !peer.votes() || is_replaced(roster),
            // A start that was interrupted has prepared it. It never voted in a cluster that goes on.
            _ => {
                is_replaced(roster)
                    || is_prepared_for(peer, roster) && peer.retired_from().is_none_or(is_replaced)
            }
        }
    };
    if sight.peers.iter().all(is_free) {
        return Ok(());
    }
    let memberships = sight.peers.iter().map(|peer| match peer.cluster() {
        None => format!("{} belongs to no cluster", peer.address),
        Some(cluster) => {
            let state = match peer.retired_from() {
                _ if peer.votes() => "may vote",
                Some(_) => "has given up its vote for another start, which was interrupted",
                None => "has no vote",
            };
            format!("{} belongs to cluster {cluster}, and {state}", peer.address)
        }
    });
    Err(OperatorError::Unavailable(format!(
        "a cluster can only be started on nodes that belong to no cluster: {}. To admit a node that \
         restarted, run `lock-client node admit`; to start anew, `lock-client node init --again`, or \
         `--from` for another number of nodes. Run a start that was interrupted with the same options",
        memberships.collect::<Vec<_>>().join("; "),
    )))
}

/// Whether a process holds a first roster that names it, and has no vote.
fn is_prepared_for(peer: &Peer, roster: &Roster) -> bool {
    roster.is_first() && roster.seat_of(&peer.process).is_some() && !peer.votes()
}

/// Takes the votes of the old cluster.
async fn retire(old_sight: &Sight, old: Option<&Roster>) -> Result<(), OperatorError> {
    for peer in old.into_iter().flat_map(|old| voters_of(old_sight, old)) {
        let roster = peer.roster().expect("it votes for one");
        if peer.retire(roster).await?.is_admitted {
            return Err(changed_meanwhile(peer));
        }
    }
    Ok(())
}

/// The processes that vote in the cluster of a roster.
fn voters_of<'a>(sight: &'a Sight, old: &'a Roster) -> impl Iterator<Item = &'a Peer> {
    let voters = sight.peers.iter().filter(|peer| peer.votes());
    voters.filter(|peer| peer.cluster() == Some(old.cluster.as_str()))
}

/// The processes that vote, or have voted, for a roster.
fn voted<'a>(sight: &'a Sight, roster: &'a Roster) -> impl Iterator<Item = &'a Peer> {
    let peers = roster.seats.iter().filter_map(|seat| sight.with(&seat.process));
    peers.filter(move |peer| peer.voted_for() == Some(roster))
}

/// Copies the counters of the old cluster to all nodes of the new one.
async fn copy(
    old_servers: &Servers,
    new: &Sight,
    old: Option<&Roster>,
    replaced: Replaced<'_>,
) -> Result<(), OperatorError> {
    let cluster = old.map(|old| old.cluster.as_str());
    let before = old_servers.look_everywhere().await;
    let (sources, at_least): (Vec<_>, _) = match (replaced, old) {
        (Replaced::Cluster(_), Some(old)) => (voted(&before, old).collect(), 0),
        _ => (new.peers.iter().collect(), unix_millis()),
    };
    let mut copied = CopiedCounters::default();
    for to in &new.peers {
        for source in &sources {
            counters::copy(source, to, at_least, &mut copied).await?;
        }
    }
    // A source may have restarted or lost its data meanwhile, or somebody may have admitted it again.
    let after = old_servers.look_everywhere().await;
    let mut voters = after.peers.iter().filter(|peer| peer.votes());
    if let Some(peer) = voters.find(|peer| cluster.is_none() || peer.cluster() == cluster) {
        return Err(OperatorError::Unavailable(format!(
            "{} votes in the cluster that is replaced: stop all else that admits nodes there, and run \
             `lock-client node init` again with the same options",
            peer.address
        )));
    }
    if let (Replaced::Cluster(_), Some(old)) = (replaced, old) {
        let still = |peer: &&&Peer| voted(&after, old).any(|own| own.process == peer.process);
        let number = sources.iter().filter(still).count();
        if number < old.majority() {
            return Err(too_few_sources(number, Some(old), &after));
        }
    }
    Ok(())
}

fn too_few_sources(number: usize, roster: Option<&Roster>, sight: &Sight) -> OperatorError {
    let needed = roster.map_or_else(
        || "no voter of a cluster answers".to_owned(),
        |roster| {
            let (majority, all) = (roster.majority(), roster.seats.len());
            format!("{majority} of the {all} voters must give their counters, and {number} can")
        },
    );
    OperatorError::Unavailable(format!(
        "the old cluster can't be replaced: {needed} ({})",
        sight.reasons(roster)
    ))
}

fn changed_meanwhile(peer: &Peer) -> OperatorError {
    OperatorError::Unavailable(format!(
        "{}: another operator is starting a cluster on it: wait until that has ended, and run \
         `lock-client node init` again with the same options",
        peer.address
    ))
}
