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
    exchange::{Term, reissue_to_regain},
    lease::Lease,
    machines::{
        regain::{Command, Regain},
        votes::OwnerReply,
    },
    node_error::NodeError,
    nodes::{Answers, Nodes},
    reply::JoinReply,
    request::Request,
    script,
};
use crate::redis::{keys::Keys, unix_millis};

/// One attempt of a lease to regain nodes.
pub(super) struct Regaining {
    nodes: Arc<Nodes>,
    keys: Arc<Keys>,
    lease: Arc<Lease>,
    /// The ttl and the deadline of the renewal.
    term: Term,
}

impl Regaining {
    pub(super) fn new(
        nodes: &Arc<Nodes>,
        keys: &Arc<Keys>,
        lease: &Arc<Lease>,
        term: Term,
    ) -> Self {
        let (nodes, keys, lease) = (nodes.clone(), keys.clone(), lease.clone());
        Self { nodes, keys, lease, term }
    }

    /// Joins the nodes that a renewal has found free, and makes them count.
    pub(super) async fn run(self, mut regain: Regain, mut answers: Answers<OwnerReply>) {
        // 1. Join each node as soon as it says that it does not belong to the lease.
        let mut joining: FuturesUnordered<BoxFuture<'_, _>> = FuturesUnordered::new();
        joining.extend(regain.free.iter().map(|node| self.request_join(*node)));
        let mut timeout =
            pin!(sleep(self.nodes.timeout(Request::Vote).min(self.term.valid_until.remaining())));
        let mut all_answered = false;
        while !(all_answered && joining.is_empty()) {
            tokio::select! {
                answer = answers.recv(), if !all_answered => match answer {
                    Some((node, Ok(reply))) => match regain.on(node, reply) {
                        Some(Command::Join { node }) => joining.push(self.request_join(node)),
                        // The next renewal uses it.
                        Some(Command::Learn { node, grant }) => {
                            self.lease.set_grant(self.nodes.address(node), grant);
                        }
                        None => {}
                    },
                    Some((_, Err(_))) => {}
                    None => all_answered = true,
                },
                Some(floor) = joining.next() => regain.hold(floor),
                () = &mut timeout => break,
            }
        }
        // 2. Make the nodes count that are held with a floor as high as the token.
        if let Some(floor) = regain.reissue_above(&self.lease.tokens())
            && !self.lease.has_ended()
        {
            // The next renewal tries again.
            let _ = reissue_to_regain(&self.nodes, &self.keys, &self.lease, floor).await;
        }
    }

    /// Joins a node. Returns its floor if the lease has it.
    fn request_join(&self, node: usize) -> BoxFuture<'_, Option<Token>> {
        Box::pin(async move { self.join(node).await.unwrap_or_default() })
    }

    async fn join(&self, node: usize) -> Result<Option<Token>, NodeError> {
        let voter = self.nodes.voter(node, Request::Vote).await?;
        // After the deadline or the release, the node would keep the lock for nobody.
        if self.lease.has_ended() || self.term.valid_until.has_passed() {
            return Ok(None);
        }
        let Self { keys, lease, term, .. } = self;
        let call = |member: &_| {
            script::join(keys, member, &lease.ownership, lease.height(), term.ttl, unix_millis())
        };
        let JoinReply::Joined { grant, floor } = self.nodes.run(node, voter, call).await? else {
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
        Ok(floor)
    }
}
