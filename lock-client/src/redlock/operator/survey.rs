//! What an operator has seen before a step of a start, and whether anything speaks against it.

use std::collections::BTreeSet;

use super::{
    Operator,
    error::OperatorError,
    peer::Peer,
    servers::{Sight, several_clusters},
};
use crate::redlock::{
    record::Record,
    roster::{Roster, Seat},
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
pub(super) struct Survey<'a> {
    pub(super) operator: &'a Operator,
    pub(super) replaced: Replaced<'a>,
    pub(super) sight: Sight,
    /// The last roster of the cluster that is replaced; `None` if there is none, or no data of it.
    pub(super) old: Option<Roster>,
}

impl<'a> Survey<'a> {
    /// Looks at all servers. Checks that each node answers and can be one.
    pub(super) async fn take(
        operator: &'a Operator,
        replaced: Replaced<'a>,
    ) -> Result<Self, OperatorError> {
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
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Peer> {
        self.operator.named.iter().filter_map(|url| self.sight.at(&url.address))
    }

    /// The nodes, and the servers with data of the old cluster.
    pub(super) fn nodes_and_members(&self) -> impl Iterator<Item = &Peer> {
        let is_old = |own: &Roster| self.old.as_ref().is_some_and(|old| old.cluster == own.cluster);
        self.sight.peers.iter().filter(move |peer| {
            self.operator.has_named(&peer.address)
                || peer.record.iter().flat_map(Record::rosters).any(is_old)
        })
    }

    /// The nodes in the order in which every operator takes them.
    pub(super) fn in_order(&self) -> Vec<&Peer> {
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
                    None if clusters.len() > 1 && self.begun_start().is_none() => {
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
                let has_data =
                    |id: &str| clusters.iter().any(|own| id_prefix(own) == id_prefix(id));
                let is_known = match id {
                    NO_CLUSTER => clusters.is_empty() && prepared.iter().all(|old| *old == id),
                    // If there are data, the whole id leads to them.
                    _ => {
                        clusters.contains(id) || prepared.contains(&*id_prefix(id)) && !has_data(id)
                    }
                };
                if !is_known && self.begun_start().is_none() {
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
    pub(super) fn replaced_id(&self) -> Option<&str> {
        match self.replaced {
            Replaced::LostMajority(id) => Some(id),
            _ => self.old.as_ref().map(|old| old.cluster.as_str()),
        }
    }

    /// The first roster of a start with these options that has admitted a node, and was interrupted or has
    /// ended.
    pub(super) fn begun_start(&self) -> Option<&Roster> {
        let replaces = |roster: &Roster| {
            let replaced = roster.cluster.split_once('.').map(|(_, old)| old);
            match self.replaced {
                Replaced::Nothing => replaced.is_none(),
                Replaced::LostMajority(id) => replaced == Some(&*id_prefix(id)),
                // A node that was admitted has the new roster alone.
                Replaced::Cluster(old) => {
                    let named = old.named.iter().filter_map(|url| self.sight.at(&url.address));
                    let mut own = named.filter_map(last_roster).peekable();
                    let is_old = |own: &Roster| replaced == Some(&*id_prefix(&own.cluster));
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
    pub(super) fn voters_of(&self, old: &Roster) -> impl Iterator<Item = &Peer> {
        let voters = self.sight.peers.iter().filter(|peer| peer.votes());
        voters.filter(|peer| peer.cluster() == Some(old.cluster.as_str()))
    }

    /// The processes that vote, or have voted, for a roster.
    pub(super) fn voted(&self, roster: &Roster) -> impl Iterator<Item = &Peer> {
        let peers = roster.seats.iter().filter_map(|seat| self.sight.with(&seat.process));
        peers.filter(move |peer| peer.voted_for() == Some(roster))
    }

    /// Checks that nothing speaks against the start: neither the old cluster nor another one.
    pub(super) fn check(&self) -> Result<(), OperatorError> {
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
        if self.nodes().all(|peer| self.may_be_taken(peer)) {
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

    /// Whether a node belongs to no cluster, or to one that this start replaces.
    fn may_be_taken(&self, peer: &Peer) -> bool {
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

    pub(super) fn too_few_sources(&self, number: usize) -> OperatorError {
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
    peer.voted_for().or_else(|| peer.last_roster())
}

/// The beginning of a cluster's id. The id of the cluster that replaces it ends with that.
pub(super) fn id_prefix(id: &str) -> String {
    id.chars().take(8).collect()
}
