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
//! is higher, and so is the later token. While the same processes vote, this holds whatever the clocks do.
//!
//! **What breaks that.** A node that loses its counters and still votes. So a node that restarted
//! has no vote, whatever its settings, until it is admitted again (`lock-client node admit`). The admission
//! waits for the longest ttl, until the rounds and leases from before have ended. So meanwhile the clocks of
//! clients, nodes and the watcher must run at one speed, up to 1 %. At other times, a clock that jumps
//! breaks only the exclusion: two clients may hold the lock at once, and the storage rejects the older token.
//!
//! The algorithm is
//! [Redlock](https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/), which
//! issues no token; grants, seals, joins and admission are our additions. A model of them is checked
//! in `lock-client/redlock-model`, and a test compares each script with it.
//!
//! # Keys
//! Each node has the keys of [a single Redis](super::redis), and `fenced:node`, the record of its
//! roster and its vote. When a node seals a token in a round, the token replaces the grant in the lock's
//! value. So all sealed nodes know the ownership by the same grant.
//!
//! # Joins
//! A lease loses a node that hangs for longer than the ttl, or that restarts. After each renewal, it
//! *joins* the nodes that are free. But another client may have had such a node in the meantime,
//! with a higher token. So the lock's value records its *floor*: the node's counter before this
//! ownership took it. A node counts for a lease, in a renewal and in a reissue, only if its floor is
//! not above the token that the lease had when the step began. If a joined node has a higher floor, a
//! reissue seals a token above it on a majority that does count. From then on, the node counts.
//! Such a reissue does not change the token that the lease has handed out.
//!
//! A joined node has a grant of its own if its counter was above the lease's token. Each request
//! names the grant on its node. A client that adopts a lease learns the grants from the answers.
//!
//! # Members
//! Each node keeps the *roster*: the cluster, the term, the longest ttl, and for each member the process
//! that may vote, by its `run_id`. Each request names the whole roster, and a node rejects another. So a
//! token counts only if a majority has sealed it for one roster. A client that meets another roster
//! finds it, and repeats its step.
//!
//! A restart, an empty server at the same address and a server at another address are one thing: another
//! process takes a member's seat, in the roster of the next term. First the members that stay *close*
//! the old term, by taking the new roster, until no majority can be left for the old one, whatever the
//! old process does. The new process votes when it is admitted: after the longest ttl, and with the
//! counters of a majority. `machines/takeover.rs` has the steps.
//!
//! # Waiting
//! Waiters are notified when the lock was freed on a majority of the nodes. When a client learns of
//! new members, its waiters listen to those. There is no fair order: the nodes would have to agree
//! on one. If several clients try at once, each may get some of the nodes and none a majority. Then
//! all of them release what they got, and retry after a random time.
//!
//! # Failed nodes
//! A request returns when a majority has answered. It does not wait for the slowest
//! node, or for a node that is down. A node that hangs is asked for its vote at most ten times a
//! second. After five seconds without an answer, there is a new connection. A search for new members
//! takes two seconds at most, and requests that fail together share it. While there are leases, each
//! connection is checked every second, and made again at once when it is lost.
//!
//! # The code
//! [`Redlock`] runs each step on the nodes of the current roster (`members.rs`). `machines.rs`
//! decides the steps, without I/O, and the model explores the same code. The messages are carried by
//! `round.rs` for a round, by `update.rs` for a renewal or a reissue, and by `regain.rs` for joins.
//! The scripts that run on the nodes are the `.lua` files: `grant.lua` grants the lock, `seal.lua`
//! seals a token, `join.lua` takes a free node for a lease. `lease.rs` has what the client knows of
//! each lease. `record.rs` reads whether a node may vote. The operator's part is in [`operator`].

mod acquire;
mod lease;
mod machines;
mod majority;
mod members;
mod node;
mod node_error;
mod node_urls;
mod nodes;
mod numbers;
pub mod operator;
mod patience;
mod record;
mod regain;
mod release;
mod reply;
mod roster;
mod roster_text;
mod round;
mod script;
mod state;
mod status;
mod tally;
mod update;
mod wakeups;

use std::{
    pin::Pin,
    sync::{Arc, Weak, atomic::AtomicU64},
    time::Duration,
};

use fence::{Holder, ResourceName, Token};
use tokio::time::sleep;

use self::{
    acquire::Acquire,
    lease::{Lease, Leases},
    members::Members,
    node_urls::NodeUrl,
    patience::{Patience, Request},
    release::release,
    update::OnNodes,
};
use crate::{
    Moment, Order, Ttl,
    backend::{Attempt, Backend, BackendError, BackendFuture, Ownership, Status, Wakeups},
    redis::{CHECK_INTERVAL, TimeLimits, keys::Keys},
};

pub use self::{majority::majority, node_urls::InvalidNodes, nodes::LongTtl};

/// How long a lease is remembered without a renewal if another client has acquired it.
const ADOPTION_PATIENCE: Duration = Duration::from_secs(10);

/// Locks on a majority of independent Redis nodes.
#[derive(Clone)]
pub struct Redlock {
    members: Arc<Members>,
    rounds: Arc<AtomicU64>,
    leases: Arc<Leases>,
    /// The keys of a name. A lock of the operators has others than that of a user.
    keys: fn(&ResourceName) -> Keys,
}

impl std::fmt::Debug for Redlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redlock").field("nodes", &self.members.addresses()).finish_non_exhaustive()
    }
}

impl Redlock {
    /// Creates a client of a cluster of an odd number of nodes, 3 or 5 as a rule, each of them a
    /// single Redis. It connects to a node when it first uses it. It must name a majority of the
    /// members, and learns the others from them. It reaches a member that it does not name at the address
    /// that the operator gave, with the user, the password, the database and the certificates of the
    /// first URL.
    ///
    /// The URLs are those of [`Redis::open`](crate::redis::Redis::open), without Sentinels and
    /// Clusters. All of them name the same database.
    ///
    /// # Errors
    /// [`InvalidNodes`] if the URLs do not name such nodes.
    pub fn open<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Self, InvalidNodes> {
        Ok(Self::with(Members::new(NodeUrl::parse_all(urls)?, Patience::default())))
    }

    fn with(members: Members) -> Self {
        Self {
            members: Arc::new(members),
            rounds: Arc::default(),
            leases: Arc::default(),
            keys: Keys::new,
        }
    }

    /// Makes a client of locks that no name can have.
    fn of_reserved_locks(self) -> Self {
        Self { keys: |name| Keys::reserved(name.as_str()), ..self }
    }

    /// Waits this long for the votes of the nodes, instead of half a second. It suits nodes that are
    /// far away: take twice the time of a round trip to a majority, or more, because a token may
    /// have to be sealed. The limits for connecting, subscribing and repeating grow with it. So does
    /// the time for which a node that hangs delays a client that has just started.
    ///
    /// It is 1 millisecond at least, and 1 hour at most.
    #[must_use]
    pub fn answer_within(self, timeout: Duration) -> Self {
        let members = self.members.with_patience(Patience(TimeLimits::new(timeout)));
        Self { keys: self.keys, ..Self::with(members) }
    }

    /// Keeps the connections to the nodes as long as there are leases.
    fn keep_connections(&self) {
        let (members, leases) = (Arc::downgrade(&self.members), Arc::downgrade(&self.leases));
        self.leases.keeper.start(|| check_connections_each_second(members, leases));
    }

    /// Returns what this client knows of a lease. A lease that it has not acquired itself starts with
    /// the token of its grant.
    fn lease(&self, ownership: &Ownership) -> Arc<Lease> {
        self.leases.get(&ownership.holder).unwrap_or_else(|| {
            let valid_until = Moment::now() + ADOPTION_PATIENCE;
            self.leases.start(ownership.clone(), ownership.grant, valid_until)
        })
    }
}

/// Checks the connections every second, as long as there are leases, and makes lost ones again at once.
/// Later, other clients may have all connections of a node.
async fn check_connections_each_second(members: Weak<Members>, leases: Weak<Leases>) {
    loop {
        sleep(CHECK_INTERVAL).await;
        let (Some(members), Some(leases)) = (members.upgrade(), leases.upgrade()) else { return };
        if leases.keeper.end_if(|| !leases.need_connections()) {
            return;
        }
        members.check_connections();
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
                return Err(BackendError::Invalid(
                    "Redlock has no fair order, because its nodes keep no common queue".into(),
                ));
            }
            let keys = &(self.keys)(name);
            let acquire = Acquire { rounds: &self.rounds, keys, holder, ttl };
            let attempt = self.members.run(|nodes| acquire.run(nodes)).await?;
            if let Attempt::Granted { token, ownership, asked } = &attempt {
                self.leases.start(ownership.clone(), *token, *asked + ttl.reliable());
                self.keep_connections();
            }
            Ok(attempt)
        })
    }

    fn renew<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        ttl: Ttl,
    ) -> BackendFuture<'a, Option<Token>> {
        Box::pin(async move {
            self.keep_connections();
            let (keys, lease) = (Arc::new((self.keys)(name)), self.lease(ownership));
            let on = |nodes| OnNodes { nodes, keys: keys.clone(), lease: lease.clone() };
            self.members.run(|nodes| on(nodes).renew(ttl)).await
        })
    }

    fn reissue<'a>(
        &'a self,
        name: &'a ResourceName,
        ownership: &'a Ownership,
        above: Token,
    ) -> BackendFuture<'a, Option<Token>> {
        Box::pin(async move {
            let (keys, lease) = (Arc::new((self.keys)(name)), self.lease(ownership));
            let on = |nodes| OnNodes { nodes, keys: keys.clone(), lease: lease.clone() };
            self.members.run(|nodes| on(nodes).reissue(above)).await
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
            // From here on, the lease joins no node. Its height is needed until there is an answer.
            let height = self.leases.release(holder).map(|lease| lease.height());
            let (keys, token) = (&(self.keys)(name), token.max(height));
            let released = self.members.run(|nodes| release(nodes, keys, holder, token)).await;
            // Without a majority, a few nodes may still have carried it out.
            let released = released.map_err(|error| match error {
                BackendError::Rejected(reason) => BackendError::Unavailable(reason),
                error => error,
            })?;
            self.leases.forget(holder);
            Ok(released)
        })
    }

    fn subscribe<'a>(
        &'a self,
        name: &'a ResourceName,
        _: &'a Holder,
        _: Order,
    ) -> BackendFuture<'a, Wakeups> {
        Box::pin(async move {
            wakeups::subscribe(self.members.subscribe().await?, (self.keys)(name).freed()).await
        })
    }

    fn status<'a>(&'a self, name: &'a ResourceName) -> BackendFuture<'a, Status> {
        let read = move |nodes| async move { status::read(&nodes, name, (self.keys)(name)).await };
        Box::pin(self.members.run(read))
    }

    fn detach(&self, ownership: &Ownership, token: Token) -> Token {
        // From here on, the lease joins no node, beside the client that adopts it.
        let lease = self.leases.detach(&ownership.holder);
        lease.map_or(token, |lease| lease.height().max(token))
    }

    fn adopt(&self, ownership: &Ownership, token: Token) {
        self.leases.adopt(ownership, token, Moment::now() + ADOPTION_PATIENCE);
    }

    fn wait_for_releases(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            self.members.background().close();
            self.members.background().wait().await;
        })
    }

    fn answer_timeout(&self) -> Duration {
        self.members.patience().answers(Request::Vote)
    }

    fn address(&self) -> String {
        self.members.addresses()
    }
}
