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
//! issues no token; grants, seals, joins and admission are our additions. A model of them is checked
//! in `lock-client/redlock-model`, and a test compares each script with it.
//!
//! # Keys
//! Each node has the keys of [a single Redis](super::redis), and `fenced:node`, the record of its
//! membership. When a node seals a token in a round, the token replaces the grant in the lock's
//! value. So all sealed nodes know the ownership by the same grant.
//!
//! # Joins
//! A lease loses a node that hangs for longer than the ttl, or that restarts. After each renewal, it
//! *joins* the nodes that are free. But another client may have had such a node in the meantime,
//! with a higher token. So the lock's value records its *floor*: the node's counter before this
//! ownership took it. A node counts for a lease, in a renewal and in a reissue, only if its floor is
//! below the token that the lease had when the step began. If a joined node has a higher floor, a
//! reissue seals a token above it on a majority that does count. From then on, the node counts.
//! Such a reissue does not change the token that the lease has handed out.
//!
//! A joined node has a grant of its own if its counter had reached the lease's token. Each request
//! names the grant on its node. A client that adopts a lease learns the grants from the answers.
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
//! [`Redlock`] asks for rounds, renewals and releases. `machines.rs` decides them, without I/O, and
//! the model explores the same code. The messages are carried by `round.rs` for a round, by
//! `exchange.rs` for a renewal or a reissue, and by `regain.rs` for joins. The scripts that run on
//! the nodes are the `.lua` files: `grant.lua` grants the lock, `seal.lua` seals a token, `join.lua`
//! takes a free node for a lease. `lease.rs` has what the client knows of each lease.
//! `membership.rs` decides whether a node may vote.

mod exchange;
mod lease;
mod machines;
mod majority;
mod membership;
mod node;
mod node_error;
mod node_urls;
mod nodes;
mod numbers;
pub mod operator;
mod outcome;
mod patience;
mod persistence;
mod regain;
mod reply;
mod request;
mod round;
mod script;
mod status;
mod tally;
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
    lease::{Lease, Leases},
    node::Node,
    node_urls::NodeUrl,
    nodes::Nodes,
    outcome::Outcome,
    patience::Patience,
    request::Request,
    round::Round,
};
use crate::{
    Locks, Moment, Order, Ttl,
    backend::{Attempt, Backend, BackendError, BackendFuture, Ownership, Status, Wakeups},
    redis::{TimeLimits, keys::Keys, wakeups::Subscriptions},
};

pub use self::{majority::majority, node_urls::InvalidNodes};

/// How often in a row a round may be split between rivals before the lock counts as contended.
const MOST_SPLITS: u32 = 8;
/// How long split rounds are retried.
const SPLIT_PATIENCE: Duration = Duration::from_millis(300);
const LONGEST_SPLIT_PAUSE: Duration = Duration::from_millis(100);
/// How long the token of an adopted lease is remembered without a renewal.
const ADOPTION_PATIENCE: Duration = Duration::from_secs(10);

/// Locks on a majority of independent Redis nodes.
#[derive(Clone)]
pub struct Redlock {
    nodes: Arc<Nodes>,
    subscriptions: Vec<Subscriptions>,
    rounds: Arc<AtomicU64>,
    leases: Arc<Leases>,
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
    /// The URLs are those of [`Redis::open`](crate::redis::Redis::open), without Sentinels and Clusters.
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
        Self {
            nodes: Arc::new(nodes),
            subscriptions,
            rounds: Arc::default(),
            leases: Arc::default(),
        }
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

    /// Returns what this client knows of a lease. A lease that it has not acquired itself starts with
    /// the token of its grant.
    fn lease(&self, ownership: &Ownership, ttl: Ttl) -> Arc<Lease> {
        self.leases.get(&ownership.holder).unwrap_or_else(|| {
            let valid_until = Moment::now() + ttl.reliable();
            self.leases.start(ownership.clone(), self.nodes.len(), ownership.grant, valid_until)
        })
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
                        let valid_until = asked + ttl.reliable();
                        self.leases.start(ownership.clone(), self.nodes.len(), token, valid_until);
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
            let keys = Arc::new(Keys::new(name));
            exchange::renew(&self.nodes, &keys, &self.lease(ownership, ttl), ttl).await
        })
    }

    fn reissue<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        above: Token,
    ) -> BackendFuture<'a, Option<Token>> {
        Box::pin(async move {
            let keys = Arc::new(Keys::new(name));
            let lease = self.lease(ownership, Ttl::MAX);
            exchange::reissue(&self.nodes, &keys, &lease, above).await
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
            // From here on, the lease joins no node.
            let height = self.leases.end(holder).map(|lease| lease.height());
            let (keys, holder) = (Keys::new(name), holder.clone());
            let release = move |_, _: &_| script::release(&keys, &holder, token.max(height));
            let mut answers = self.nodes.ask_all::<bool>(Request::Release, release);
            let (mut released, mut not_ours, mut errors) = (0, 0, Vec::new());
            let majority = self.nodes.majority();
            // The lock may have been ours on nodes that do not answer.
            let is_lost = |not_ours| not_ours > self.nodes.len() - majority;
            while released < majority && !is_lost(not_ours) {
                match answers.recv().await {
                    Some((_, Ok(true))) => released += 1,
                    Some((_, Ok(false))) => not_ours += 1,
                    Some((node, Err(error))) => errors.push((node, error)),
                    None => break,
                }
            }
            if released + not_ours < majority {
                return Err(self.nodes.no_majority(&errors));
            }
            Ok(!is_lost(not_ours))
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
        Box::pin(status::read(&self.nodes, name))
    }

    fn detach(&self, ownership: &Ownership, token: Token) -> Token {
        let lease = self.leases.get(&ownership.holder);
        lease.map_or(token, |lease| lease.height().max(token))
    }

    fn adopt(&self, ownership: &Ownership, token: Token) {
        if self.leases.get(&ownership.holder).is_none() {
            let until = Moment::now() + ADOPTION_PATIENCE;
            self.leases.start(ownership.clone(), self.nodes.len(), token, until);
        }
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
