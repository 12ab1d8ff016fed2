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

use std::time::Duration;

use fence::Holder;

use super::{
    Operator,
    counters::{self, CopiedCounters},
    error::OperatorError,
    peer::Peer,
    survey::{Replaced, Survey, id_prefix},
    view::Cluster,
};
use crate::{Moment, Ttl, redis::unix_millis, redlock::roster::Roster};

/// Starts a cluster of all nodes, or completes a start that was interrupted.
pub(super) async fn start_cluster(
    operator: &Operator,
    max_ttl: Ttl,
    replaced: Replaced<'_>,
    report: impl FnOnce(Duration),
) -> Result<(Cluster, CopiedCounters), OperatorError> {
    // 1. Look at all nodes, and at the cluster that is replaced. Nothing is changed unless all nodes
    //    answer and are fit, and none belongs to another cluster.
    let mut survey = Survey::take(operator, replaced).await?;
    let mut copied = CopiedCounters::default();
    if let Some(roster) = survey.begun_start() {
        check_ttl(roster, max_ttl)?;
        return Ok((survey.admit(roster).await?, copied));
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
        let sources = survey.nodes_and_members().map(|peer| peer.address.clone());
        let sources: Vec<_> = sources.collect();
        let waited_for = survey.old.map(|old| old.cluster);
        survey = Survey::take(operator, replaced).await?;
        survey.check()?;
        // Nobody has waited for the locks of another cluster.
        if waited_for.as_ref() != survey.old.as_ref().map(|old| &old.cluster) {
            return Err(changed_meanwhile(&operator.named[0].address));
        }
        // Without a majority, nobody else may know its counters.
        let mut silent = survey.sight.silent.iter().filter(|it| sources.contains(&it.address));
        if let (Replaced::LostMajority(_), Some(silent)) = (replaced, silent.next()) {
            return Err(OperatorError::Unavailable(format!(
                "{silent}: it answered before the wait, and may have the highest counters. Run `lock-client \
                 node init` again with the same options when it answers, or when it is gone for good"
            )));
        }
        copied = survey.copy().await?;
    }

    // 3. Prepare all nodes, in one order. Look at all again, and admit them.
    let id = Holder::random().as_str().to_owned();
    let id = survey.replaced_id().map_or(id.clone(), |old| format!("{id}.{}", id_prefix(old)));
    let members = survey.nodes().map(|peer| (peer.address.clone(), peer.process.clone()));
    let roster = Roster::first(id, max_ttl.as_millis(), members);
    for peer in survey.in_order() {
        if peer.prepare(&roster).await?.roster.as_ref() != Some(&roster) {
            return Err(changed_meanwhile(&peer.address));
        }
    }
    // The id is new. So only this operator has prepared a node that holds the roster now, and a later
    // preparation fails its admission, which compares the record.
    survey = Survey::take(operator, replaced).await?;
    survey.check()?;
    Ok((survey.admit(&roster).await?, copied))
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

impl Survey<'_> {
    /// Takes the votes of the old cluster.
    async fn retire(&self) -> Result<(), OperatorError> {
        for peer in self.old.iter().flat_map(|old| self.voters_of(old)) {
            if peer.retire().await?.is_admitted {
                return Err(changed_meanwhile(&peer.address));
            }
        }
        Ok(())
    }

    /// Copies the counters of the old cluster to all nodes of the new one. Without a majority, any member may
    /// have the highest one, also if it was not named and has no vote.
    async fn copy(&self) -> Result<CopiedCounters, OperatorError> {
        let (sources, at_least): (Vec<_>, _) = match (self.replaced, &self.old) {
            (Replaced::Cluster(_), Some(old)) => (self.voted(old).collect(), 0),
            _ => (self.nodes_and_members().collect(), unix_millis()),
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
        Ok(copied)
    }

    /// Admits all nodes that hold the first roster of a cluster. The script passes over a node that has
    /// lost it, and may have voted: the watcher admits that one.
    async fn admit(&self, roster: &Roster) -> Result<Cluster, OperatorError> {
        assert!(roster.is_first(), "others wait before they are admitted");
        let holds = |own: Option<&Roster>| own == Some(roster);
        let mut has_begun = self.nodes().any(|peer| peer.votes() && holds(peer.roster()));
        let (mut voting, mut failed) = (0, Ok(()));
        for peer in self.in_order() {
            let admitted = peer.admit(roster).await;
            let votes = admitted.map(|state| state.is_admitted && holds(state.roster.as_ref()));
            // Until the first node is admitted, another operator may prepare the later ones.
            if !has_begun && !votes.clone()? {
                return Err(changed_meanwhile(&peer.address));
            }
            has_begun = true;
            match votes {
                Ok(votes) => voting += usize::from(votes),
                Err(error) => failed = Err(error),
            }
        }
        failed?;
        if voting == 0 {
            return Err(changed_meanwhile(&self.operator.named[0].address));
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
}

fn changed_meanwhile(address: &str) -> OperatorError {
    OperatorError::Unavailable(format!(
        "{address}: another operator is starting a cluster on it: wait until that has ended, and run \
         `lock-client node init` again with the same options"
    ))
}
