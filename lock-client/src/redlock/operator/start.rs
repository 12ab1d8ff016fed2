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

use std::time::Duration;

use fence::Holder;

use super::{
    counters::{self, CopiedCounters},
    error::OperatorError,
    servers::{Servers, Sight},
    view::Cluster,
};
use crate::{
    Moment, Ttl,
    redis::unix_millis,
    redlock::{peer::Peer, roster::Roster},
};

/// Where the counters of a new cluster come from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Counters<'a> {
    /// The nodes are new.
    None,
    /// A majority of the voters of another cluster, which this one replaces.
    From(&'a Servers),
    /// All nodes. Too few of them are left that know all issued tokens. So each counter is raised to
    /// the clock, too.
    All,
}

/// Starts a cluster of all nodes, or completes a start that was interrupted.
pub(super) async fn start_cluster(
    servers: &Servers,
    max_ttl: Ttl,
    from: Counters<'_>,
    report: impl FnOnce(Duration),
) -> Result<Cluster, OperatorError> {
    // 1. Look at all nodes. Nothing is changed unless all of them answer and are fit.
    let sight = connect(servers).await?;
    if let Some(roster) = interrupted_start(&sight, max_ttl)? {
        return admit(&sight, &roster).await;
    }

    // 2. Take the votes of the old cluster, and wait until all its locks have expired.
    let old = match from {
        Counters::None => None,
        Counters::From(old) => Some(old),
        Counters::All => Some(servers),
    };
    let retired = match old {
        Some(old) => Some(retire(old, from, &sight).await?),
        None => None,
    };
    check_strangers(&sight, from, retired.as_ref())?;
    if old.is_some() {
        let longest = retired.iter().flatten().map(|roster| roster.max_ttl_ms).max();
        let longest = longest.unwrap_or_default().max(max_ttl.as_millis());
        let longest = Duration::from_millis(longest);
        let ready_at = Moment::now() + longest + longest / 100 + Duration::from_millis(2);
        report(ready_at.remaining());
        ready_at.passed().await;
    }

    // 3. Connect again: a server may have closed an idle connection. Copy the counters to all nodes.
    let sight = if old.is_some() { connect(servers).await? } else { sight };
    if let Some(old) = old {
        copy(old, &sight, from, retired.flatten().as_ref()).await?;
    }

    // 4. Prepare all nodes, in one order, and admit them.
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
    // Without the first, another operator may have prepared others meanwhile.
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
            "all nodes must answer, and nothing was changed: {}",
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

/// Returns the first roster of a cluster whose start was interrupted after a node was admitted. `None`
/// if no node votes in one.
fn interrupted_start(sight: &Sight, max_ttl: Ttl) -> Result<Option<Roster>, OperatorError> {
    let is_of_these = |roster: &Roster| {
        let is_here = |process: &str| sight.with(process).is_some();
        // Otherwise another process has taken a seat since.
        let is_last = |own: &Roster| own == roster || own.cluster != roster.cluster;
        roster.is_first()
            && sight.peers.iter().filter_map(Peer::roster).all(is_last)
            && roster.seats.len() == sight.peers.len()
            && roster.seats.iter().all(|seat| is_here(&seat.process))
    };
    let mut voted = sight.peers.iter().filter(|peer| peer.votes()).filter_map(Peer::roster);
    let Some(roster) = voted.find(|roster| is_of_these(roster)) else { return Ok(None) };
    if roster.max_ttl_ms != max_ttl.as_millis() {
        let longest = Ttl::new(Duration::from_millis(roster.max_ttl_ms));
        let longest = longest.map_or_else(|error| error.to_string(), |ttl| ttl.to_string());
        return Err(OperatorError::Invalid(format!(
            "this cluster was started with --max-ttl {longest}, which can't be changed"
        )));
    }
    Ok(Some(roster.clone()))
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

/// Whether no node belongs to a cluster that this start does not replace.
fn check_strangers(
    sight: &Sight,
    from: Counters<'_>,
    retired: Option<&Option<Roster>>,
) -> Result<(), OperatorError> {
    let replaced = retired.and_then(Option::as_ref).map(|roster| &roster.cluster);
    let is_free = |peer: &Peer| match (peer.roster(), from) {
        (None, _) | (Some(_), Counters::All) => true,
        // A start that was interrupted has prepared it. It never voted.
        (Some(roster), _) if roster.is_first() && is_prepared_for(peer, roster) => true,
        (Some(roster), _) => Some(&roster.cluster) == replaced,
    };
    if sight.peers.iter().all(is_free) {
        return Ok(());
    }
    let memberships = sight.peers.iter().map(|peer| match peer.cluster() {
        None => format!("{} belongs to no cluster", peer.address),
        Some(cluster) => {
            let state = if peer.votes() { "may vote" } else { "has no vote" };
            format!("{} belongs to cluster {cluster}, and {state}", peer.address)
        }
    });
    Err(OperatorError::Unavailable(format!(
        "a cluster can only be started on nodes that belong to no cluster: {}. To admit a node that \
         restarted, run `lock-client node admit`; to start anew, `lock-client node init --again`, or \
         `--from` for another number of nodes",
        memberships.collect::<Vec<_>>().join("; "),
    )))
}

/// Whether a process holds a roster that names it, and has no vote.
fn is_prepared_for(peer: &Peer, roster: &Roster) -> bool {
    peer.roster() == Some(roster) && roster.seat_of(&peer.process).is_some() && !peer.votes()
}

/// Takes the votes of an old cluster. Returns its last roster.
///
/// # Errors
/// If too few of its voters answer to know all counters. When all nodes are started again instead, if a
/// majority votes: then nothing is lost.
async fn retire(
    old: &Servers,
    from: Counters<'_>,
    sight: &Sight,
) -> Result<Option<Roster>, OperatorError> {
    let all;
    let voters = match from {
        Counters::All => sight,
        _ => {
            all = old.look(&[]).await;
            &all
        }
    };
    let rosters = voters.peers.iter().filter_map(Peer::voted_for);
    let count = |roster: &Roster| voted(voters, roster).count();
    let Some(roster) = rosters.max_by_key(|roster| (count(roster), roster.term)) else {
        return match from {
            Counters::All => Ok(voters.newest().map(|(roster, _)| roster.clone())),
            _ => Err(too_few_sources(0, None, voters)),
        };
    };
    match from {
        Counters::All if voters.voters(roster) >= roster.majority() => {
            return Err(OperatorError::Invalid(
                "a majority of the nodes may vote, and knows all issued tokens: run `lock-client node \
                 admit` for the others"
                    .to_owned(),
            ));
        }
        Counters::All => {}
        _ if count(roster) < roster.majority() => {
            return Err(too_few_sources(count(roster), Some(roster), voters));
        }
        _ => {}
    }
    for peer in &voters.peers {
        if let Some(own) = peer.roster().filter(|_| peer.votes()) {
            peer.retire(own).await?;
        }
    }
    Ok(Some(roster.clone()))
}

/// The processes that vote, or have voted, for a roster.
fn voted<'a>(sight: &'a Sight, roster: &'a Roster) -> impl Iterator<Item = &'a Peer> {
    let peers = roster.seats.iter().filter_map(|seat| sight.with(&seat.process));
    peers.filter(move |peer| peer.voted_for() == Some(roster))
}

/// Copies the counters of the old cluster to all nodes of the new one.
async fn copy(
    old: &Servers,
    new: &Sight,
    from: Counters<'_>,
    roster: Option<&Roster>,
) -> Result<(), OperatorError> {
    let before = old.look(&[]).await;
    let (sources, at_least): (Vec<_>, _) = match (from, roster) {
        (Counters::From(_), Some(roster)) => (voted(&before, roster).collect(), 0),
        _ => (new.peers.iter().collect(), unix_millis()),
    };
    let mut copied = CopiedCounters::default();
    for to in &new.peers {
        for source in &sources {
            counters::copy(source, to, at_least, &mut copied).await?;
        }
    }
    // Another process may have answered meanwhile, or one may have lost its data.
    let after = old.look(&[]).await;
    if let (Counters::From(_), Some(roster)) = (from, roster) {
        let still = |peer: &&&Peer| voted(&after, roster).any(|own| own.process == peer.process);
        let number = sources.iter().filter(still).count();
        if number < roster.majority() {
            return Err(too_few_sources(number, Some(roster), &after));
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
         `lock-client node init` again",
        peer.address
    ))
}
