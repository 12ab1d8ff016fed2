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
//! start waits for the longest ttl, copies their counters to all nodes, and looks at all again. The id of
//! the new cluster says which one it replaces. So a start that was interrupted is completed only for the
//! cluster whose counters it has copied.
//!
//! A cluster that has lost its majority may have voters left. They are no reason to reject its new start:
//! their counters are the best that are left, and a restart might lose them. They give up their votes, too.
//! A voter that was not named can't be asked to, so the start rejects. It also rejects if a majority votes,
//! because then a takeover loses nothing. The operator names the cluster that is lost: data alone don't
//! show which one that is, if most of them are lost.
//!
//! So a start looks at all servers that any data name. What an earlier start has prepared must not hide
//! the voters of the old cluster.

use std::{collections::BTreeSet, time::Duration};

use fence::Holder;

use super::{
    Operator,
    counters::{self, CopiedCounters},
    error::OperatorError,
    peer::Peer,
    servers::{Sight, several_clusters},
    view::Cluster,
};
use crate::{
    Moment, Ttl,
    redis::unix_millis,
    redlock::{
        record::Record,
        roster::{Roster, Seat},
    },
};

/// The id of a cluster of which no data are left.
const NO_CLUSTER: &str = "none";

/// What a new cluster replaces.
#[derive(Clone, Copy)]
pub(super) enum Replaced<'a> {
    /// Nothing: the nodes are new.
    Nothing,
    /// The cluster of these servers. A majority of its voters give their counters.
    Cluster(&'a Operator),
    /// The cluster with this id, which has lost its majority. Too few of its nodes are left that know all
    /// issued tokens. So each counter is raised to the clock, too.
    LostMajority(&'a str),
}

/// What an operator has seen before a step of a start.
struct Survey<'a> {
    operator: &'a Operator,
    replaced: Replaced<'a>,
    sight: Sight,
    /// The last roster of the cluster that is replaced; `None` if there is none, or no data of it.
    old: Option<Roster>,
}

/// Starts a cluster of all nodes, or completes a start that was interrupted.
pub(super) async fn start_cluster(
    operator: &Operator,
    max_ttl: Ttl,
    replaced: Replaced<'_>,
    report: impl FnOnce(Duration),
) -> Result<Cluster, OperatorError> {
    // 1. Look at all nodes, and at the cluster that is replaced. Nothing is changed unless all nodes
    //    answer and are fit, and none belongs to another cluster.
    let mut survey = Survey::take(operator, replaced).await?;
    if let Some(roster) = survey.begun() {
        check_ttl(roster, max_ttl)?;
        return survey.admit(roster).await;
    }
    survey.check()?;

    // 2. Take the votes of the old cluster, and wait until all its locks have expired. Then look at all
    //    again: the nodes may belong to another cluster now, and servers close idle connections.
    if !matches!(replaced, Replaced::Nothing) {
        survey.retire().await?;
        // Data may be left of a cluster that is not known to be the old one.
        let in_data = survey.sight.peers.iter().map(Peer::longest_ttl_ms).max();
        let longest = Duration::from_millis(max_ttl.as_millis().max(in_data.unwrap_or(0)));
        let ready_at = Moment::now() + longest + longest / 100 + Duration::from_millis(2);
        report(ready_at.remaining());
        ready_at.passed().await;
        let waited_for = survey.old.map(|old| old.cluster);
        survey = Survey::take(operator, replaced).await?;
        survey.check()?;
        // Nobody has waited for the locks of another cluster.
        if waited_for.as_ref() != survey.old.as_ref().map(|old| &old.cluster) {
            return Err(changed_meanwhile(&operator.named[0].address));
        }
        survey.copy().await?;
    }

    // 3. Prepare all nodes, in one order, and admit them.
    let id = Holder::random().as_str().to_owned();
    let id = survey.replaced_id().map_or(id.clone(), |old| format!("{id}.{}", short(old)));
    let members = survey.nodes().map(|peer| (peer.address.clone(), peer.process.clone()));
    let roster = Roster::first(id, max_ttl.as_millis(), members);
    for peer in survey.in_order() {
        let state = peer.prepare(&roster).await?;
        if state.roster.as_ref() != Some(&roster) {
            return Err(changed_meanwhile(&peer.address));
        }
    }
    let prepared = |peer: &&mut Peer| roster.seat_of(&peer.process).is_some();
    for peer in survey.sight.peers.iter_mut().filter(prepared) {
        peer.record = Some(Record::prepared(roster.clone(), peer.record.as_ref()));
    }
    // If the first node is not admitted, another operator may have prepared the later ones since.
    let first = survey.in_order()[0];
    if !first.admit(&roster).await?.is_admitted {
        return Err(changed_meanwhile(&first.address));
    }
    survey.admit(&roster).await
}

/// What the id of a cluster has of that of the cluster before.
fn short(id: &str) -> String {
    id.chars().take(8).collect()
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

impl<'a> Survey<'a> {
    /// Looks at all servers. Checks that each node answers and can be one.
    async fn take(operator: &'a Operator, replaced: Replaced<'a>) -> Result<Self, OperatorError> {
        let sight = match replaced {
            Replaced::Cluster(old) => old.look(&operator.named, None).await,
            _ => operator.look(&[], None).await,
        };
        let silent = sight.silent.iter().filter(|error| operator.has_named(&error.address));
        let silent: Vec<_> = silent.map(ToString::to_string).collect();
        if !silent.is_empty() {
            let silent = silent.join("; ");
            return Err(OperatorError::Unavailable(format!("all nodes must answer: {silent}")));
        }
        let mut survey = Self { operator, replaced, sight, old: None };
        survey.check_nodes()?;
        survey.old = survey.last_roster()?;
        Ok(survey)
    }

    /// The nodes of the new cluster.
    fn nodes(&self) -> impl Iterator<Item = &Peer> {
        self.operator.named.iter().filter_map(|url| self.sight.at(&url.address))
    }

    /// The nodes in the order in which every operator takes them.
    fn in_order(&self) -> Vec<&Peer> {
        let mut peers: Vec<_> = self.nodes().collect();
        peers.sort_unstable_by(|one, other| one.process.cmp(&other.process));
        peers
    }

    /// Checks that each node is a server of its own, and fit.
    fn check_nodes(&self) -> Result<(), OperatorError> {
        for peer in self.nodes() {
            let mut same = self.nodes().filter(|other| other.process == peer.process);
            if let Some(other) = same.find(|other| other.address != peer.address) {
                return Err(OperatorError::Invalid(format!(
                    "{} and {} are one server: each node must be a Redis of its own",
                    peer.address, other.address
                )));
            }
            OperatorError::if_unfit(peer)?;
        }
        Ok(())
    }

    /// The roster of the old cluster for which most processes vote, or have voted until they gave up
    /// their votes; without any, the newest one. `None` if these servers belong to no cluster.
    fn last_roster(&self) -> Result<Option<Roster>, OperatorError> {
        let rosters = self.sight.peers.iter().filter_map(last_roster);
        let invalid = |reason| Err(OperatorError::Invalid(reason));
        let cluster = match self.replaced {
            Replaced::Nothing => return Ok(None),
            Replaced::Cluster(old) => {
                let named = old.named.iter().filter_map(|url| self.sight.at(&url.address));
                let clusters: BTreeSet<_> =
                    named.filter_map(last_roster).map(|roster| &roster.cluster).collect();
                match old.cluster(&self.sight, None, last_roster) {
                    None if clusters.len() > 1 && self.begun().is_none() => {
                        return invalid(several_clusters(clusters.len()));
                    }
                    None => return Ok(None),
                    Some(cluster) => cluster,
                }
            }
            Replaced::LostMajority(id) => {
                let clusters: BTreeSet<&str> =
                    rosters.clone().map(|roster| roster.cluster.as_str()).collect();
                let prepared = self.prepared_in_place_of();
                let has_data = |id: &str| clusters.iter().any(|own| short(own) == short(id));
                let is_known = match id {
                    NO_CLUSTER => clusters.is_empty() && prepared.iter().all(|old| *old == id),
                    // If there are data, the whole id leads to them.
                    _ => clusters.contains(id) || prepared.contains(&*short(id)) && !has_data(id),
                };
                if !is_known && self.begun().is_none() {
                    let prepared =
                        prepared.iter().filter(|old| **old != NO_CLUSTER && !has_data(old));
                    let prepared = prepared.map(|old| format!("{old}…"));
                    let named = clusters.iter().map(ToString::to_string).chain(prepared);
                    return invalid(format!(
                        "no server has data of cluster {id}: name the one that has lost its majority, or \
                         `{NO_CLUSTER}` if the servers name no cluster; they name [{}]",
                        named.collect::<Vec<_>>().join(", ")
                    ));
                }
                id.to_owned()
            }
        };
        let rosters = rosters.filter(|roster| roster.cluster == cluster);
        Ok(rosters.max_by_key(|roster| (self.voted(roster).count(), roster.term)).cloned())
    }

    /// What the ids of new clusters have of those that they were to replace. A start has prepared servers
    /// for them, and was interrupted.
    fn prepared_in_place_of(&self) -> BTreeSet<&str> {
        let records = self.sight.peers.iter().filter_map(|peer| peer.record.as_ref());
        let prepared = records.filter(|record| record.is_prepared_only());
        prepared.filter_map(|record| Some(record.roster.cluster.split_once('.')?.1)).collect()
    }

    /// The id of the cluster that is replaced.
    fn replaced_id(&self) -> Option<&str> {
        match self.replaced {
            Replaced::LostMajority(id) => Some(id),
            _ => self.old.as_ref().map(|old| old.cluster.as_str()),
        }
    }

    /// The first roster of such a start that was interrupted after a node was admitted, or that has ended.
    fn begun(&self) -> Option<&Roster> {
        let replaces = |roster: &Roster| {
            let replaced = roster.cluster.split_once('.').map(|(_, old)| old);
            match self.replaced {
                Replaced::Nothing => replaced.is_none(),
                Replaced::LostMajority(id) => replaced == Some(&*short(id)),
                // A node that was admitted has the new roster alone.
                Replaced::Cluster(old) => {
                    let named = old.named.iter().filter_map(|url| self.sight.at(&url.address));
                    let mut own = named.filter_map(last_roster).peekable();
                    let is_old = |own: &Roster| replaced == Some(&*short(&own.cluster));
                    let is_begun = replaced.is_some() && own.peek().is_some();
                    is_begun && own.all(|own| own == roster || is_old(own))
                }
            }
        };
        let is_of_these = |roster: &&Roster| {
            let is_here = |process: &str| self.nodes().any(|peer| peer.process == process);
            // Otherwise another process has taken a seat since.
            let is_last = |own: &Roster| own == *roster || own.cluster != roster.cluster;
            roster.is_first()
                && replaces(roster)
                && self.nodes().filter_map(Peer::roster).all(is_last)
                && roster.seats.len() == self.operator.named.len()
                && roster.seats.iter().all(|seat| is_here(&seat.process))
                // Otherwise another operator is replacing it.
                && !self.nodes().any(|peer| peer.retired_from() == Some(roster))
        };
        self.nodes().filter(|peer| peer.votes()).filter_map(Peer::roster).find(is_of_these)
    }

    /// Whether a cluster has exactly the named nodes: a start that has ended is repeated.
    fn is_of_nodes(&self, roster: &Roster) -> bool {
        let is_named = |seat: &Seat| self.operator.has_named(&seat.address);
        roster.seats.len() == self.operator.named.len() && roster.seats.iter().all(is_named)
    }

    /// The processes that vote in the old cluster.
    fn voters_of(&self, old: &Roster) -> impl Iterator<Item = &Peer> {
        let voters = self.sight.peers.iter().filter(|peer| peer.votes());
        voters.filter(|peer| peer.cluster() == Some(old.cluster.as_str()))
    }

    /// The processes that vote, or have voted, for a roster.
    fn voted(&self, roster: &Roster) -> impl Iterator<Item = &Peer> {
        let peers = roster.seats.iter().filter_map(|seat| self.sight.with(&seat.process));
        peers.filter(move |peer| peer.voted_for() == Some(roster))
    }

    /// Checks that nothing speaks against the start: neither the old cluster nor another one.
    fn check(&self) -> Result<(), OperatorError> {
        match (self.replaced, &self.old) {
            (Replaced::Cluster(_), None) => return Err(self.too_few_sources(0)),
            (Replaced::Cluster(_), Some(old)) if self.is_of_nodes(old) => {
                return Err(OperatorError::Invalid(format!(
                    "these nodes are cluster {} already. Run `lock-client node admit` for one that has no \
                     vote, or `lock-client node init --again` if it has lost its majority",
                    old.cluster
                )));
            }
            (Replaced::Cluster(_), Some(old)) => {
                let number = self.voted(old).count();
                if number < old.majority() {
                    return Err(self.too_few_sources(number));
                }
            }
            (Replaced::LostMajority(_), Some(old)) => self.check_is_lost(old)?,
            _ => {}
        }
        if self.nodes().all(|peer| self.is_free(peer)) {
            return Ok(());
        }
        let memberships = self.nodes().map(|peer| match peer.cluster() {
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

    /// Checks that the old cluster has lost its majority, and that no voter is left out.
    fn check_is_lost(&self, old: &Roster) -> Result<(), OperatorError> {
        let invalid = |reason| Err(OperatorError::Invalid(reason));
        if self.sight.voters(old) >= old.majority() {
            return invalid(
                "a majority of the nodes may vote, and knows all issued tokens: run `lock-client node \
                 admit` for the others"
                    .to_owned(),
            );
        }
        let may_vote = "may vote in the cluster that is started again, and was not named: name it, or \
                        stop it for good";
        let is_node = |peer: &Peer| self.nodes().any(|node| node.process == peer.process);
        if let Some(peer) = self.voters_of(old).find(|peer| !is_node(peer)) {
            return invalid(format!("{} {may_vote}", peer.address));
        }
        // Only silence shows that a member is gone.
        let records = self.sight.peers.iter().filter_map(|peer| peer.record.as_ref());
        let rosters = records.flat_map(Record::rosters).filter(|own| own.cluster == old.cluster);
        let seats: Vec<_> = rosters.flat_map(|roster| &roster.seats).collect();
        let mut answering = self.sight.silent.iter().filter(|error| !error.is_gone);
        let member = answering.find(|error| seats.iter().any(|seat| seat.address == error.address));
        member.map_or(Ok(()), |error| invalid(format!("{error}: it {may_vote}")))
    }

    /// Whether a node belongs to no cluster that this start does not replace.
    fn is_free(&self, peer: &Peer) -> bool {
        let is_replaced =
            |roster: &Roster| self.old.as_ref().is_some_and(|old| old.cluster == roster.cluster);
        let Some(record) = &peer.record else { return true };
        let roster = &record.roster;
        if is_replaced(roster) {
            return true;
        }
        match self.replaced {
            Replaced::LostMajority(_) => !peer.votes(),
            // A start that was interrupted has prepared it. Its data are of no cluster that goes on.
            _ => {
                roster.is_first()
                    && roster.seat_of(&peer.process).is_some()
                    && !peer.votes()
                    && record.retired.iter().all(|(_, before)| is_replaced(before))
            }
        }
    }

    /// Takes the votes of the old cluster.
    async fn retire(&self) -> Result<(), OperatorError> {
        for peer in self.old.iter().flat_map(|old| self.voters_of(old)) {
            if peer.retire().await?.is_admitted {
                return Err(changed_meanwhile(&peer.address));
            }
        }
        Ok(())
    }

    /// Copies the counters of the old cluster to all nodes of the new one.
    async fn copy(&self) -> Result<(), OperatorError> {
        let (sources, at_least): (Vec<_>, _) = match (self.replaced, &self.old) {
            (Replaced::Cluster(_), Some(old)) => (self.voted(old).collect(), 0),
            _ => (self.nodes().collect(), unix_millis()),
        };
        let mut copied = CopiedCounters::default();
        for to in self.nodes() {
            for source in &sources {
                counters::copy(source, to, at_least, &mut copied).await?;
            }
        }
        // A source may have restarted or lost its data meanwhile, or somebody may have admitted it again.
        let after = Self::take(self.operator, self.replaced).await?;
        let cluster = self.old.as_ref().map(|old| old.cluster.as_str());
        let mut voters = after.sight.peers.iter().filter(|peer| peer.votes());
        if let Some(peer) = voters.find(|peer| cluster.is_none() || peer.cluster() == cluster) {
            return Err(OperatorError::Unavailable(format!(
                "{} votes in the cluster that is replaced: stop all else that admits nodes there, and run \
                 `lock-client node init` again with the same options",
                peer.address
            )));
        }
        if let (Replaced::Cluster(_), Some(old)) = (self.replaced, &self.old) {
            let still = |peer: &&&Peer| after.voted(old).any(|own| own.process == peer.process);
            let number = sources.iter().filter(still).count();
            if number < old.majority() {
                return Err(after.too_few_sources(number));
            }
        }
        Ok(())
    }

    /// Admits all nodes that hold the first roster of a cluster. The script passes over a node that has
    /// lost it, and may have voted: the watcher admits that one.
    async fn admit(&self, roster: &Roster) -> Result<Cluster, OperatorError> {
        assert!(roster.is_first(), "others wait before they are admitted");
        let (peers, mut voting) = (self.in_order(), 0);
        let mut failed = Ok(());
        for peer in &peers {
            match peer.admit(roster).await {
                Ok(state) => {
                    let votes = state.is_admitted && state.roster.as_ref() == Some(roster);
                    voting += usize::from(votes);
                }
                Err(error) => failed = Err(error),
            }
        }
        failed?;
        if voting == 0 {
            return Err(changed_meanwhile(&peers[0].address));
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

    fn too_few_sources(&self, number: usize) -> OperatorError {
        let needed = match &self.old {
            None => "no voter of a cluster answers".to_owned(),
            Some(old) => {
                let (majority, all) = (old.majority(), old.seats.len());
                format!("{majority} of the {all} voters must give their counters, and {number} can")
            }
        };
        OperatorError::Unavailable(format!(
            "the old cluster can't be replaced: {needed} ({})",
            self.sight.reasons(self.old.as_ref())
        ))
    }
}

/// The last roster of a cluster to which the data of a server belong. A start that was interrupted may have
/// prepared it for a new cluster. It belongs to the old one, if it has voted in it.
fn last_roster(peer: &Peer) -> Option<&Roster> {
    peer.voted_for().or_else(|| peer.record.as_ref()?.last_roster())
}

fn changed_meanwhile(address: &str) -> OperatorError {
    OperatorError::Unavailable(format!(
        "{address}: another operator is starting a cluster on it: wait until that has ended, and run \
         `lock-client node init` again with the same options"
    ))
}
