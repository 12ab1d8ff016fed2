//! One round: all nodes are asked for the lock at once, under a holder of its own.

use std::{
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use fence::{Holder, Token};
use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::{RedisError, Value, from_redis_value};
use tokio::{sync::oneshot, time::sleep};

use super::{
    node::{Absence, Asking},
    nodes::Nodes,
    script,
    tally::{Heard, Missed, Sealing, Tally, Verdict},
};
use crate::{
    Ttl,
    backend::Ownership,
    clock::Moment,
    redis::{keys::Keys, remaining_time, valid_token},
};

/// One round. It is played in the background: whoever asked for it may go away, and the nodes that
/// answer late are heard to their end.
pub(super) struct Round {
    pub(super) nodes: Arc<Nodes>,
    pub(super) keys: Keys,
    /// Of this round alone: an answer to an earlier round is none to this one.
    pub(super) holder: Holder,
    pub(super) ttl: Ttl,
    /// What missing counters start at, on all nodes alike.
    pub(super) start: u64,
    /// Whether what comes of it is known: nobody who has not been asked yet is asked then.
    pub(super) decided: AtomicBool,
    /// The cluster of the first that is asked: those of another don't count besides.
    pub(super) cluster: OnceLock<String>,
}

/// A round that was won.
#[derive(Debug)]
pub(super) struct Won {
    /// What a majority has sealed.
    pub(super) token: Token,
    /// Whoever takes the lock says so; else it is released, and this says so.
    pub(super) take: oneshot::Sender<()>,
}

/// What a node is asked for.
enum Step {
    Grant(usize),
    Seal(Sealing),
}

impl Step {
    fn node(&self) -> usize {
        match self {
            Self::Grant(node) | Self::Seal(Sealing { node, .. }) => *node,
        }
    }
}

impl Round {
    /// Plays it, and tells what came of it. If nobody takes the lock any more, or it took longer than
    /// the lock may be relied on, everything is released again.
    pub(super) async fn play(self, tell: oneshot::Sender<Result<Won, Missed>>) {
        let valid_until = Moment::now() + self.ttl.reliable();
        // One for everything: a timer for each request costs more than the request.
        let mut in_time = pin!(sleep(valid_until.remaining().min(Asking::Vote.patience())));
        self.nodes.connect().await;
        let mut tally = Tally::of(self.nodes.len());
        let mut asked: FuturesUnordered<_> =
            (0..self.nodes.len()).map(|node| self.ask(Step::Grant(node))).collect();
        while tally.verdict() == Verdict::Open {
            let (node, heard) = tokio::select! {
                biased;
                heard = asked.next() => heard.expect("a verdict is open only while nodes are asked"),
                () = &mut in_time => {
                    tally.give_up();
                    break;
                }
            };
            let seals = tally.count(node, heard).into_iter().map(Step::Seal);
            asked.extend(seals.map(|seal| self.ask(seal)));
        }
        self.decided.store(true, Ordering::Relaxed);
        let highest = tally.highest();
        let (take, mut taken) = oneshot::channel();
        // Nobody may listen any more.
        let _ = match tally.verdict() {
            Verdict::Won(_) if valid_until.has_passed() => return self.undo(asked, highest).await,
            Verdict::Won(token) => tell.send(Ok(Won { token, take })),
            Verdict::Missed | Verdict::Open => {
                let _ = tell.send(Err(tally.missed()));
                return self.undo(asked, highest).await;
            }
        };
        // The more nodes are sealed, the more of them the lease can lose.
        let mut is_taken = false;
        while !(is_taken && asked.is_empty()) {
            tokio::select! {
                answer = &mut taken, if !is_taken => match answer {
                    Ok(()) => is_taken = true,
                    Err(_) => return self.undo(asked, highest).await,
                },
                Some((node, heard)) = asked.next() => {
                    let seals = tally.count(node, heard).into_iter().map(Step::Seal);
                    asked.extend(seals.map(|seal| self.ask(seal)));
                }
                () = &mut in_time => {
                    // From here on, it can't be taken any more.
                    taken.close();
                    if !is_taken && taken.try_recv().is_err() {
                        self.undo(asked, highest).await;
                    }
                    return;
                }
            }
        }
    }

    async fn ask(&self, step: Step) -> (usize, Heard) {
        let node = step.node();
        (node, self.answer(node, step).await.unwrap_or_else(Heard::Absent))
    }

    async fn answer(&self, node: usize, step: Step) -> Result<Heard, Absence> {
        let voter = self.nodes.voter(node, Asking::Vote).await?;
        if self.cluster.get_or_init(|| voter.cluster().to_owned()) != voter.cluster() {
            return Err(Absence::NoVote("it belongs to another cluster than others".to_owned()));
        }
        match step {
            Step::Grant(_) if self.decided.load(Ordering::Relaxed) => {
                Err(Absence::NoAnswer("it was not asked in time".to_owned()))
            }
            Step::Grant(_) => {
                let call = |voter: &_| {
                    script::grant(&self.keys, voter, &self.holder, self.ttl, self.start)
                };
                match self.nodes.run(node, voter, call).await? {
                    Value::Int(grant) => Ok(Heard::Granted(valid_token(grant)?)),
                    refusal => {
                        let (remaining, holder): (_, String) =
                            from_redis_value(refusal).map_err(RedisError::from)?;
                        if self.is_of_this_acquire(&holder) {
                            return Err(Absence::NoAnswer(
                                "it is yet to release what an earlier try took".to_owned(),
                            ));
                        }
                        Ok(Heard::Refused { holder, remaining: remaining_time(remaining) })
                    }
                }
            }
            Step::Seal(Sealing { grant, token, .. }) => {
                let here = Ownership { holder: self.holder.clone(), grant };
                let call = |voter: &_| script::seal(&self.keys, voter, &here, token, token);
                Ok(Heard::Sealed(self.nodes.run(node, voter, call).await?))
            }
        }
    }

    /// Tells whether a lock was taken by an earlier round of the same acquire: that is released in the
    /// background, and nobody else has it.
    fn is_of_this_acquire(&self, holder: &str) -> bool {
        let (acquire, _) =
            self.holder.as_str().rsplit_once('-').expect("a round has a number at its end");
        holder.rsplit_once('-').is_some_and(|(other, _)| other == acquire)
    }

    /// Releases everywhere: on a node that hasn't answered, too. One that answers late that it gave the
    /// lock may have given it after that, and is told again.
    async fn undo(
        &self,
        mut asked: FuturesUnordered<impl Future<Output = (usize, Heard)>>,
        lift_to: Option<Token>,
    ) {
        let release = |node| async move {
            let voter = self.nodes.voter(node, Asking::Release).await?;
            let call = |_: &_| script::release(&self.keys, &self.holder, lift_to);
            self.nodes.run::<bool>(node, voter, call).await
        };
        let mut releasing: FuturesUnordered<_> = (0..self.nodes.len()).map(release).collect();
        let mut in_time = pin!(sleep(Asking::Release.patience()));
        while !(asked.is_empty() && releasing.is_empty()) {
            tokio::select! {
                Some((node, heard)) = asked.next() => {
                    if let Heard::Granted(_) = heard {
                        releasing.push(release(node));
                    }
                }
                // If there is no answer, the ttl frees the lock.
                Some(_) = releasing.next() => {}
                () = &mut in_time => return,
            }
        }
    }
}
