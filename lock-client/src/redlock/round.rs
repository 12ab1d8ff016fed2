//! One round: all nodes are asked to grant the lock, and a majority of them seals one token.
//!
//! A round continues in the background after its outcome is known. It may outlive the call that
//! started it. It releases a lock that nobody accepts.

use std::{
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use fence::{Holder, Token};
use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    sync::oneshot,
    time::{Sleep, sleep},
};

use super::{
    machines::{
        acquire::{self, Command, Seal},
        votes::OwnerReply,
    },
    node_error::NodeError,
    nodes::Nodes,
    patience::Request,
    reply::GrantReply,
    script,
    tally::{Against, Answer, Outcome, Tally},
};
use crate::{
    Ttl,
    backend::Ownership,
    clock::Moment,
    redis::{keys::Keys, unix_millis},
};

/// One round.
pub(super) struct Round {
    nodes: Arc<Nodes>,
    keys: Keys,
    /// New for every round: a late answer to an earlier round never counts in this one.
    holder: Holder,
    ttl: Ttl,
    /// The start of missing counters, the same on all nodes.
    start: u64,
    /// Whether the outcome is known. Then nodes that have not been asked yet are not asked any
    /// more.
    decided: AtomicBool,
}

/// The requests that nodes have not answered yet.
type Pending<'a> = FuturesUnordered<BoxFuture<'a, (usize, Answer)>>;

impl Round {
    pub(super) fn new(nodes: Arc<Nodes>, keys: Keys, holder: Holder, ttl: Ttl) -> Self {
        Self { nodes, keys, holder, ttl, start: unix_millis(), decided: AtomicBool::new(false) }
    }

    /// Runs the round, and reports its outcome. There is no report if the token was sealed too
    /// late.
    pub(super) async fn run(self, report: oneshot::Sender<Outcome>) {
        // 1. Fix the deadline before anything is sent. Each node counts the ttl from its grant,
        //    which is later. With a deadline counted from an answer, the lease could outlive the
        //    lock.
        let valid_until = Moment::now() + self.ttl.reliable();
        // One timer for the whole round: a timer for each request costs more than the request.
        let timeout = valid_until.remaining().min(self.nodes.timeout(Request::Vote));
        let mut timeout = pin!(sleep(timeout));

        // 2. Give nodes without a connection a moment, so that a new client asks all of them.
        self.nodes.connect().await;

        // 3. Ask all nodes for a grant, all at once. If they were asked one after the other, rivals
        //    would split the nodes between them more often, and one slow node would use up the ttl.
        let mut tally = Tally::new(self.nodes.len());
        let mut pending: Pending<'_> =
            (0..self.nodes.len()).map(|node| self.request_grant(node)).collect();

        // 4. Count the votes until they decide. The highest grant of the first majority is the
        //    token. Nodes that granted less are asked to seal it, at once. Without the seal, the
        //    next round could find a majority of counters below the token, and issue that token or
        //    a lower one.
        let mut sealed = None;
        while sealed.is_none() && !tally.has_failed() {
            tokio::select! {
                biased;
                answer = pending.next() => {
                    let (node, answer) = answer.expect("an open round has pending requests");
                    sealed = self.count(node, answer, &mut tally, &mut pending);
                }
                () = &mut timeout => {
                    tally.give_up();
                    break;
                }
            }
        }

        // 5. From here on, send no request for a grant that still waits for its connection. The
        //    node would take the lock for a round that is over.
        self.decided.store(true, Ordering::Relaxed);

        // 6. Without a majority in time, release everywhere: other clients would otherwise wait for
        //    the ttl. A token that was sealed after the deadline is no use: the lock may have
        //    expired. Its caller gets no report, and learns that from the closed channel.
        let highest = tally.highest();
        let Some(token) = sealed else {
            let _ = report.send(tally.without_majority());
            return self.undo(pending, highest).await;
        };
        if valid_until.has_passed() {
            return self.undo(pending, highest).await;
        }
        assert_eq!(highest, Some(token), "every grant was compared with the token");

        // 7. Report the token. This fails if the caller has gone, and then step 9 releases the
        //    lock.
        let (accept, accepted) = oneshot::channel();
        let _ = report.send(Outcome::Sealed { token, accepted: accept });

        // 8. Seal on the remaining nodes, too, and wait until the caller accepts the token. The
        //    more nodes have sealed, the more of them may fail during the lease.
        let is_accepted = self.seal_the_rest(&mut tally, &mut pending, accepted, timeout).await;

        // 9. If nobody accepted the token, release everywhere. Otherwise a lock without a holder
        //    would stay until its ttl is over.
        if !is_accepted {
            self.undo(pending, highest).await;
        }
    }

    /// Seals on the nodes that have not decided the round. Returns whether the token was accepted.
    async fn seal_the_rest<'a>(
        &'a self,
        tally: &mut Tally,
        pending: &mut Pending<'a>,
        mut accepted: oneshot::Receiver<()>,
        mut timeout: Pin<&mut Sleep>,
    ) -> bool {
        let mut is_accepted = false;
        while !(is_accepted && pending.is_empty()) {
            tokio::select! {
                answer = &mut accepted, if !is_accepted => match answer {
                    Ok(()) => is_accepted = true,
                    Err(_) => return false,
                },
                Some((node, answer)) = pending.next() => {
                    self.count(node, answer, tally, pending);
                }
                () = &mut timeout => {
                    // Close first: afterwards it is certain whether the token was accepted.
                    accepted.close();
                    return is_accepted || accepted.try_recv().is_ok();
                }
            }
        }
        true
    }

    /// Counts an answer, and sends the seals that are needed now. Returns the token if a majority has
    /// just sealed it.
    fn count<'a>(
        &'a self,
        node: usize,
        answer: Answer,
        tally: &mut Tally,
        pending: &mut Pending<'a>,
    ) -> Option<Token> {
        let mut sealed = None;
        for command in tally.count(node, answer) {
            match command {
                Command::Seal(seal) => pending.push(self.request_seal(seal)),
                Command::Report(token) => sealed = Some(token),
                // The round ends once the tally also knows why.
                Command::Fail => {}
            }
        }
        sealed
    }

    fn request_grant(&self, node: usize) -> BoxFuture<'_, (usize, Answer)> {
        Box::pin(async move { (node, self.grant(node).await) })
    }

    fn request_seal(&self, seal: Seal) -> BoxFuture<'_, (usize, Answer)> {
        assert!(
            seal.grant < seal.token,
            "a node that has reached the token needs no seal: {seal:?}"
        );
        Box::pin(async move { (seal.node, self.seal(&seal).await) })
    }

    async fn grant(&self, node: usize) -> Answer {
        let voter = self.nodes.voter(node, Request::Vote).await?;
        if self.decided.load(Ordering::Relaxed) {
            let over = "the round ended before it was asked".to_owned();
            return Err(NodeError::NoAnswer(over).into());
        }
        let call = |vote: &_| script::grant(&self.keys, vote, &self.holder, self.ttl, self.start);
        match self.nodes.run(node, &voter, call).await? {
            GrantReply::Granted(grant) => Ok(acquire::Answer::Granted(grant)),
            GrantReply::Rejected { remaining, holder } => {
                if self.is_of_same_acquire(&holder) {
                    let earlier = "it has not yet released the lock of an earlier attempt";
                    return Err(NodeError::NoAnswer(earlier.to_owned()).into());
                }
                Err(Against::Rejected { holder, remaining })
            }
        }
    }

    async fn seal(&self, seal: &Seal) -> Answer {
        let here = Ownership { holder: self.holder.clone(), grant: seal.grant };
        let call = |vote: &_| script::seal(&self.keys, vote, &here, seal.token, seal.token);
        let answer = self.nodes.ask(seal.node, Request::Vote, call).await?;
        Ok(match answer {
            OwnerReply::Owned(_) => acquire::Answer::Sealed,
            // The lock was not ours any more.
            _ => acquire::Answer::Rejected,
        })
    }

    /// Whether an earlier round of the same acquire has taken the lock. That round releases it in
    /// the background, and no other client holds it.
    fn is_of_same_acquire(&self, holder: &str) -> bool {
        let (acquire, _) =
            self.holder.as_str().rsplit_once('-').expect("a round's holder ends in its number");
        holder.rsplit_once('-').is_some_and(|(other, _)| other == acquire)
    }

    /// Releases everywhere, also on nodes that have not answered: they may have granted, or may
    /// still.
    async fn undo(&self, mut pending: Pending<'_>, raise_to: Option<Token>) {
        let release = |node| async move {
            let call = |vote: &_| script::release(&self.keys, vote, &self.holder, raise_to);
            self.nodes.ask::<bool>(node, Request::Release, call).await
        };
        let mut releasing: FuturesUnordered<_> = (0..self.nodes.len()).map(release).collect();
        let mut timeout = pin!(sleep(self.nodes.timeout(Request::Release)));
        while !(pending.is_empty() && releasing.is_empty()) {
            tokio::select! {
                Some((node, answer)) = pending.next() => {
                    // A late grant may have come after the release, and needs another.
                    if let Ok(acquire::Answer::Granted(_)) = answer {
                        releasing.push(release(node));
                    }
                }
                // A node that does not answer frees the lock when its ttl is over.
                Some(_) = releasing.next() => {}
                () = &mut timeout => return,
            }
        }
    }
}
