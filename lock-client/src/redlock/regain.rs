//! Joins: a lease takes the nodes again that it has lost, or never had.
//!
//! They follow a renewal, in the background. A joined node counts at once if its counter was not
//! above the lease's token. Otherwise it counts after a reissue, which does not change the token
//! that the lease has handed out.

use std::pin::pin;

use fence::Token;
use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::time::{sleep, timeout};

use super::{
    machines::{
        regain::{Command, Regain},
        votes::{Owned, OwnerReply},
    },
    node_error::NodeError,
    nodes::Answers,
    patience::Request,
    script,
    update::{OnNodes, Term},
};
use crate::redis::unix_millis;

/// One attempt of a lease to regain nodes.
pub(super) struct Regaining {
    pub(super) on: OnNodes,
    /// The ttl and the deadline of the renewal.
    pub(super) term: Term,
}

impl Regaining {
    /// Joins the nodes that a renewal has found free, and makes them count.
    pub(super) async fn run(self, mut regain: Regain, mut answers: Answers<OwnerReply>) {
        // 1. Join each node as soon as the node answers that it does not have the lock.
        let mut joining: FuturesUnordered<BoxFuture<'_, _>> = FuturesUnordered::new();
        joining.extend(regain.free.iter().map(|node| self.request_join(*node)));
        let patience = self.on.nodes.timeout(Request::Vote).min(self.term.valid_until.remaining());
        let mut late = pin!(sleep(patience));
        let mut all_answered = false;
        while !(all_answered && joining.is_empty()) {
            tokio::select! {
                answer = answers.recv(), if !all_answered => match answer {
                    Some((node, Ok(reply))) => match regain.on(node, reply) {
                        Some(Command::Join { node }) => joining.push(self.request_join(node)),
                        // The next renewal uses it.
                        Some(Command::Learn { node, grant }) => {
                            self.on.lease.set_grant(self.on.nodes.address(node), grant);
                        }
                        None => {}
                    },
                    Some((_, Err(_))) => {}
                    None => all_answered = true,
                },
                Some(floor) = joining.next() => regain.hold(floor),
                () = &mut late => break,
            }
        }
        // 2. Make the nodes count that are held with a floor above the token.
        if let Some(floor) = regain.reissue_above(&self.on.lease.tokens())
            && !self.on.lease.has_ended()
        {
            // The next renewal tries again.
            let _ = self.on.reissue_to_regain(floor).await;
        }
        // 3. Wait for the nodes that are late. A release may have overtaken a join there.
        while joining.next().await.is_some() {}
    }

    /// Joins a node. Returns its floor if the lease has it.
    fn request_join(&self, node: usize) -> BoxFuture<'_, Option<Token>> {
        Box::pin(async move {
            let joined = self.join(node).await;
            // The release may have overtaken the join, also one without a reply. Then the node would
            // keep the lock until its ttl is over.
            if joined.is_some() && self.on.lease.is_without_holder() {
                // A node that fails frees the lock when its ttl is over.
                let _ = self.release(node).await;
                return None;
            }
            match joined {
                Some(Ok(OwnerReply::Owned(Owned { number: grant, floor }))) => {
                    self.on.lease.set_grant(self.on.nodes.address(node), grant);
                    floor
                }
                _ => None,
            }
        })
    }

    /// Asks a node to grant the lock to the lease. Returns `None` if it was not asked.
    async fn join(&self, node: usize) -> Option<Result<OwnerReply, NodeError>> {
        let voter = self.on.nodes.voter(node, Request::Vote).await.ok()?;
        // After the deadline or the release, the node would keep the lock for nobody.
        if self.on.lease.has_ended() || self.term.valid_until.has_passed() {
            return None;
        }
        let Self { on: OnNodes { keys, lease, .. }, term } = self;
        let call = |vote: &_| {
            script::join(keys, vote, &lease.ownership, lease.height(), term.ttl, unix_millis())
        };
        let joining = self.on.nodes.run(node, &voter, call);
        let joined = timeout(self.on.nodes.timeout(Request::Vote), joining).await;
        Some(joined.unwrap_or_else(|_| Err(NodeError::timed_out())))
    }

    async fn release(&self, node: usize) -> Result<(), NodeError> {
        let (holder, height) = (&self.on.lease.ownership.holder, self.on.lease.height());
        let call = |vote: &_| script::release(&self.on.keys, vote, holder, Some(height));
        let releasing = self.on.nodes.ask::<bool>(node, Request::Release, call);
        let released = timeout(self.on.nodes.timeout(Request::Release), releasing).await;
        released.unwrap_or_else(|_| Err(NodeError::timed_out())).map(drop)
    }
}
