//! Locks on a majority of independent Redis nodes: Redlock, with a fencing token.
//!
//! **Where the token comes from.** Each node keeps the lock and a counter of its own. A round asks
//! all nodes at once. A node whose lock is free takes it and increments its counter; the new count
//! is its *grant*. The highest grant of a majority is the token. A node whose grant equals the
//! token has *sealed* it. The other nodes seal it by raising their counter to it, if the lock there
//! still belongs to this round. The lock is acquired once a majority has sealed the token. Usually
//! this takes one round trip: each release raises all counters to the token, so that the grants are
//! equal.
//!
//! **Why it grows.** Any two majorities share a node. On that node, the earlier ownership ended
//! before the later one began, and left the counter at its token or above. So the later grant there
//! is higher, and so is the later token. This holds whatever the clocks do.
//!
//! **What breaks that.** A node that loses its counters and still votes. So a node that restarted
//! has no vote, whatever its settings, until it is admitted again (`lock-client node admit`). A clock
//! that jumps breaks only the exclusion: two clients may hold the lock at once, and the storage
//! rejects the older token.
//!
//! The algorithm is
//! [Redlock](https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/), which
//! issues no token; grants, seals and admission are our additions. A model of them is checked in
//! `lock-client/redlock-model`.
//!
//! # Keys
//! Each node has the keys of [a single Redis](super::redis), and `fenced:node`, the record of its
//! membership. When a node seals a token, the token replaces the grant in the lock's value. So all
//! sealed nodes know the ownership by the same grant.
//!
//! # Waiting
//! Waiters are notified when the lock was freed on a majority of the nodes. There is no
//! fair order: the nodes would have to agree on one. If several clients try at once, each may get
//! some of the nodes and none a majority. Then all of them release what they got, and retry after a
//! random time.
//!
//! # Failed nodes
//! A request returns when a majority has answered. It does not wait for the slowest
//! node, or for a node that is down. A node that hangs is asked for its vote at most ten times a
//! second. After five seconds without an answer, there is a new connection.
//!
//! # The code
//! [`Redlock`] asks for rounds, renewals and releases. A round is in `round.rs`, its
//! votes are counted in `tally.rs`. The scripts that run on the nodes are the `.lua` files:
//! `grant.lua` grants the lock, `seal.lua` seals a token. `membership.rs` decides whether a node
//! may vote.

mod majority;
mod membership;
mod node;
mod node_error;
mod node_urls;
mod nodes;
pub mod operator;
mod outcome;
mod patience;
mod persistence;
mod request;
mod round;
mod script;
mod status;
mod tally;
mod votes;
mod wakeups;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fence::{Holder, ResourceName, Token};
use tokio::{sync::oneshot, time::sleep};

use self::{
    node::Node,
    node_urls::NodeUrl,
    nodes::Nodes,
    outcome::Outcome,
    patience::Patience,
    request::Request,
    round::Round,
    votes::{Votes, ask_majority},
};
use crate::{
    Locks, Moment, Order, Ttl,
    backend::{Attempt, Backend, BackendError, BackendFuture, Ownership, Status, Wakeups},
    redis::{
        self, TimeLimits, keys::Keys, script::STATUS, unix_millis, valid_token,
        wakeups::Subscriptions,
    },
};

pub use self::{majority::majority, node_urls::InvalidNodes};

/// How often in a row a round may be split between rivals before the lock counts as contended.
const MOST_SPLITS: u32 = 8;
/// How long split rounds are retried.
const SPLIT_PATIENCE: Duration = Duration::from_millis(300);
const LONGEST_SPLIT_PAUSE: Duration = Duration::from_millis(100);

/// Locks on a majority of independent Redis nodes.
#[derive(Clone)]
pub struct Redlock {
    nodes: Arc<Nodes>,
    subscriptions: Vec<Subscriptions>,
    rounds: Arc<AtomicU64>,
}

impl std::fmt::Debug for Redlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redlock").field("nodes", &self.nodes.len()).finish_non_exhaustive()
    }
}

impl Redlock {
    /// Creates a client of a cluster of 3, 5 or another odd number of nodes, each of them a single
    /// Redis. It connects to a node when it first uses it. All clients must name the same nodes.
    ///
    /// The URLs are those of [`Redis::open`](redis::Redis::open), without Sentinels and Clusters.
    ///
    /// # Errors
    /// [`InvalidNodes`] if the URLs do not name such nodes.
    pub fn open<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Self, InvalidNodes> {
        let nodes: Vec<_> = NodeUrl::parse_all(urls)?.into_iter().map(Node::new).collect();
        Ok(Self::with_nodes(Nodes::new(nodes)))
    }

    fn with_nodes(nodes: Nodes) -> Self {
        let limits = nodes.patience().0;
        let subscriptions =
            nodes.servers().map(|server| Subscriptions::new(server, limits)).collect();
        Self { nodes: Arc::new(nodes), subscriptions, rounds: Arc::default() }
    }

    /// Waits this long for the votes of the nodes, instead of half a second. It suits nodes that are
    /// far away: take twice the time of a round trip to a majority, or more, because a token may
    /// have to be sealed. The limits for connecting, subscribing and repeating grow with it. So does
    /// the time for which a node that hangs delays a client that has just started.
    ///
    /// It is 1 millisecond at least, and 1 hour at most.
    #[must_use]
    pub fn answer_within(self, timeout: Duration) -> Self {
        Self::with_nodes(self.nodes.with_patience(Patience(TimeLimits::new(timeout))))
    }

    /// Returns the holder of a new round of an acquire.
    fn new_holder(&self, acquire: &Holder) -> Holder {
        let round = self.rounds.fetch_add(1, Ordering::Relaxed);
        let holder = format!("{}-{round}", acquire.as_str());
        holder.parse().expect("a random holder and a number are visible ASCII, and short")
    }

    /// Runs one round in the background, and returns its outcome.
    async fn run_round(
        &self,
        name: &ResourceName,
        holder: Holder,
        ttl: Ttl,
    ) -> Result<Outcome, BackendError> {
        let (report, outcome) = oneshot::channel();
        let round = Round::new(self.nodes.clone(), name, holder, ttl);
        self.nodes.background().spawn(round.run(report));
        outcome.await.map_err(|_| unavailable("no majority has sealed a token in time"))
    }
}

/// Locks whose [`Locks::wait_for_background`] also waits for the releases that Redlock runs in the
/// background.
impl From<Redlock> for Locks {
    fn from(redlock: Redlock) -> Self {
        let background = redlock.nodes.background().clone();
        Self::with_background(redlock, background)
    }
}

impl Backend for Redlock {
    fn try_acquire<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        ttl: Ttl,
        order: Order,
    ) -> BackendFuture<'a, Attempt> {
        Box::pin(async move {
            if order == Order::Fair {
                return Err(BackendError::Rejected(
                    "Redlock has no fair order, because its nodes keep no common queue".into(),
                ));
            }
            // Counted from the first answers: before them, the nodes may have to be connected.
            let mut first_split = None;
            let mut splits = 0;
            loop {
                let asked = Moment::now();
                let holder = self.new_holder(holder);
                let contention = match self.run_round(name, holder.clone(), ttl).await? {
                    Outcome::Sealed(sealed) => {
                        let token = sealed.accept();
                        let token =
                            token.ok_or_else(|| unavailable("the lock was accepted too late"))?;
                        let ownership = Ownership { holder, grant: token };
                        return Ok(Attempt::Granted { token, ownership, asked });
                    }
                    Outcome::Held(contention) => return Ok(Attempt::Busy(contention)),
                    Outcome::Split(contention) => contention,
                    Outcome::TooFewAnswers(errors) => {
                        return Err(self.nodes.not_acquired(ttl, &errors));
                    }
                };
                let first_split = *first_split.get_or_insert_with(Moment::now);
                if splits == MOST_SPLITS || first_split.elapsed() > SPLIT_PATIENCE {
                    return Ok(Attempt::Busy(contention));
                }
                // Rivals that meet again wait for random, growing times, until one of them is alone.
                splits += 1;
                let longest = (asked.elapsed() * 2_u32.pow(splits)).min(LONGEST_SPLIT_PAUSE);
                sleep(longest.mul_f64(fastrand::f64())).await;
            }
        })
    }

    fn renew<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        ttl: Ttl,
    ) -> BackendFuture<'a, Option<Token>> {
        Box::pin(async move {
            let (keys, owner) = (Arc::new(Keys::new(name)), ownership.clone());
            let renew = {
                let (keys, owner) = (keys.clone(), owner.clone());
                move |member: &_| script::renew(&keys, member, &owner, ttl)
            };
            let Some(mut tokens) = ask_majority(&self.nodes, renew).await? else { return Ok(None) };
            tokens.sort_unstable();
            let (lowest, highest) =
                (valid_token(tokens[0])?, valid_token(tokens[tokens.len() - 1])?);
            debug_assert!(lowest >= ownership.grant, "a seal only raises the token: {tokens:?}");
            if lowest == highest {
                return Ok(Some(lowest));
            }
            // A reissue has sealed its token on some nodes only. Complete it before that token is
            // returned: until then, a majority has sealed only the lowest.
            let seal = move |member: &_| script::seal(&keys, member, &owner, owner.grant, highest);
            Ok(Some(match ask_majority(&self.nodes, seal).await {
                Ok(Some(_)) => highest,
                Ok(None) | Err(_) => lowest,
            }))
        })
    }

    fn reissue<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        above: Token,
    ) -> BackendFuture<'a, Option<Token>> {
        Box::pin(async move {
            let (keys, owner, start) =
                (Arc::new(Keys::new(name)), ownership.clone(), unix_millis());
            // 1. Raise the counters of a majority above the token. The highest of them is the new
            //    token: it is above every token that any majority has issued.
            let raise = {
                let (keys, owner) = (keys.clone(), owner.clone());
                move |member: &_| script::raise(&keys, member, &owner, above, start)
            };
            let Some(raised) = ask_majority(&self.nodes, raise).await? else { return Ok(None) };
            let highest = raised.into_iter().max().expect("a majority is at least one node");
            let token = valid_token(highest)?;
            debug_assert!(token > above, "the counters were raised above {above}, not to {token}");
            // 2. Seal it. Without the seal, the next round could find lower counters, and issue it
            //    again.
            let seal = move |member: &_| script::seal(&keys, member, &owner, owner.grant, token);
            Ok(ask_majority(&self.nodes, seal).await?.map(|_| token))
        })
    }

    fn release<'a>(
        &'a self,
        name: &'a ResourceName,
        holder: &'a Holder,
        token: Option<Token>,
    ) -> BackendFuture<'a, bool> {
        Box::pin(async move {
            if token.is_none() {
                // Each round itself releases what it did not report as granted.
                return Ok(false);
            }
            let (keys, holder) = (Keys::new(name), holder.clone());
            let release = move |_: &_| script::release(&keys, &holder, token);
            let answers = self.nodes.ask_all(Request::Release, release);
            let votes = Votes::collect(&self.nodes, answers).await;
            if votes.ours.len() + votes.not_ours < self.nodes.majority() {
                return Err(self.nodes.no_majority(&votes.errors));
            }
            // The lock may have been ours on the nodes that did not answer.
            Ok(!votes.is_lost(&self.nodes))
        })
    }

    fn subscribe<'a>(
        &'a self,
        name: &'a ResourceName,
        _: &'a Holder,
        _: Order,
    ) -> BackendFuture<'a, Wakeups> {
        Box::pin(async move {
            let subscribed = wakeups::subscribe(&self.subscriptions, Keys::new(name).freed()).await;
            subscribed.map_err(|errors| self.nodes.no_majority(&errors))
        })
    }

    fn status<'a>(&'a self, name: &'a ResourceName) -> BackendFuture<'a, Status> {
        Box::pin(async move {
            let keys = Keys::new(name);
            let call = move |_: &_| STATUS.with([keys.lock(), keys.counter(), keys.queue()]);
            let mut answers = self.nodes.ask_all(Request::Vote, call);
            let (mut states, mut errors) = (Vec::new(), Vec::new());
            while let Some((node, answer)) = answers.recv().await {
                match answer {
                    Ok(answer) => states.push(redis::status(name, answer)?),
                    Err(error) => errors.push((node, error)),
                }
                let outstanding = self.nodes.len() - states.len() - errors.len();
                if let Some(status) = status::combine(&states, outstanding, self.nodes.majority()) {
                    return Ok(status);
                }
            }
            Err(self.nodes.no_majority(&errors))
        })
    }

    fn answer_timeout(&self) -> Duration {
        self.nodes.timeout(Request::Vote)
    }

    fn address(&self) -> String {
        self.nodes.addresses()
    }
}

fn unavailable(reason: &'static str) -> BackendError {
    BackendError::Unavailable(reason.into())
}
