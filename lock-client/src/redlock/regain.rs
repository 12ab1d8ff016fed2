//! Joins: a lease takes the nodes again that it has lost, or never had.
//!
//! They follow a renewal, in the background. A joined node counts at once if its counter had not
//! reached the lease's token. Otherwise it counts after a reissue, which does not change the token
//! that the lease has handed out.

use std::{pin::pin, sync::Arc};

use fence::Token;
use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::time::sleep;

use super::{
    exchange::reissue_to_regain,
    lease::Lease,
    node_error::NodeError,
    nodes::{Answers, Nodes},
    reply::{GrantReply, Owned, OwnerReply},
    request::Request,
    script,
    votes::Votes,
};
use crate::{
    Ttl,
    clock::Moment,
    redis::{keys::Keys, unix_millis},
};

/// One attempt of a lease to regain nodes.
pub(super) struct Regain {
    nodes: Arc<Nodes>,
    keys: Arc<Keys>,
    lease: Arc<Lease>,
    ttl: Ttl,
    /// The deadline after the renewal.
    valid_until: Moment,
}

impl Regain {
    pub(super) fn new(
        nodes: Arc<Nodes>,
        keys: Arc<Keys>,
        lease: Arc<Lease>,
        ttl: Ttl,
        valid_until: Moment,
    ) -> Self {
        Self { nodes, keys, lease, ttl, valid_until }
    }

    /// Joins the nodes that a renewal has found free, and makes them count.
    pub(super) async fn run(self, votes: Votes, mut answers: Answers<OwnerReply>) {
        // 1. Join each node as soon as it says that it does not belong to the lease.
        let mut joining: FuturesUnordered<BoxFuture<'_, _>> = FuturesUnordered::new();
        joining.extend(votes.free.iter().map(|node| self.request_join(*node)));
        let mut highest_floor = votes.uncounted;
        let mut timeout =
            pin!(sleep(self.nodes.timeout(Request::Vote).min(self.valid_until.remaining())));
        let mut all_answered = false;
        while !(all_answered && joining.is_empty()) {
            let floor = tokio::select! {
                answer = answers.recv(), if !all_answered => match answer {
                    Some((_, Ok(OwnerReply::Owned(Owned { floor, .. })))) => Some(floor),
                    Some((node, Ok(OwnerReply::Other { grant }))) => {
                        // The next renewal uses it.
                        self.lease.set_grant(self.nodes.address(node), grant);
                        None
                    }
                    Some((node, Ok(OwnerReply::NotOurs))) => {
                        joining.push(self.request_join(node));
                        None
                    }
                    Some((_, Err(_))) => None,
                    None => {
                        all_answered = true;
                        None
                    }
                },
                Some(floor) = joining.next() => floor,
                () = &mut timeout => break,
            };
            highest_floor = highest_floor.max(floor);
        }
        // 2. Make the nodes count that are held with a floor as high as the token.
        let Some(floor) = highest_floor.and_then(|floor| Token::new(floor).ok()) else { return };
        if floor >= self.lease.height() && !self.lease.has_ended() {
            // The next renewal tries again.
            let _ = reissue_to_regain(&self.nodes, &self.keys, &self.lease, floor).await;
        }
    }

    /// Joins a node. Returns its floor if the lease has it.
    fn request_join(&self, node: usize) -> BoxFuture<'_, Option<u64>> {
        Box::pin(async move { self.join(node).await.unwrap_or_default() })
    }

    async fn join(&self, node: usize) -> Result<Option<u64>, NodeError> {
        let voter = self.nodes.voter(node, Request::Vote).await?;
        // After the deadline or the release, the node would keep the lock for nobody.
        if self.lease.has_ended() || self.valid_until.has_passed() {
            return Ok(None);
        }
        let Self { keys, lease, ttl, .. } = self;
        let call = |member: &_| {
            script::join(keys, member, &lease.ownership, lease.height(), *ttl, unix_millis())
        };
        let GrantReply::Granted { grant, floor } = self.nodes.run(node, voter, call).await? else {
            return Ok(None);
        };
        lease.set_grant(self.nodes.address(node), grant);
        if self.lease.has_ended() {
            // The release may have overtaken the join.
            let voter = self.nodes.voter(node, Request::Release).await?;
            let call = |_: &_| script::release(keys, &lease.ownership.holder, None);
            self.nodes.run::<bool>(node, voter, call).await?;
            return Ok(None);
        }
        Ok(Some(floor))
    }
}
