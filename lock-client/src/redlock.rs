//! Locks on a majority of independent Redis nodes: Redlock, with a fencing token.
//!
//! **Where the token comes from.** Each node keeps the lock and a counter of its own. A round asks all
//! nodes at once; a node whose lock is free takes it and counts on: that is its *grant*. With grants of
//! a majority, the highest of them is the token. A node that granted just that has *sealed* it; the
//! others seal it by lifting their counter to it, if the lock there is still this round's. With a
//! majority sealed, the lock is had: in one round trip where the nodes count alike, which is the rule,
//! as each release lifts all counters to the token.
//!
//! **Why it grows.** Any two majorities share a node. There, the one ownership ended before the other
//! began, and left the counter at its token or above; so the later one's grant there, and with it its
//! token, is higher. This holds whatever the clocks do.
//!
//! **What breaks that.** A node that loses its counters and votes all the same. So a node has no vote
//! after a restart until it was admitted again (`lock-client node admit`), unless it had every write
//! on disk before it was answered (`appendfsync always`). What a clock that jumps does break is the
//! exclusion: two may hold the lock at once, and the storage refuses the older token.
//!
//! The algorithm is [Redlock](https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/),
//! which yields no token; grants, seals and admission are ours. A model of them is checked in
//! `lock-client/redlock-model`.
//!
//! # Keys
//! Those of [one Redis](super::redis), on each node, and `fenced:node`: what it is a member of. On a
//! node that has sealed a token, the lock's grant is that token, so that an ownership is the same
//! on all nodes.
//!
//! # Waiting
//! Waiters hear of a lock when it was freed on a majority of the nodes. There is no fair order, as the
//! nodes would have to agree on one. Of those who try at once, each may get some of the nodes, and
//! none a majority: then all give back what they got, and try again after a random time.
//!
//! # Lost nodes
//! What a majority answers is answered: nobody waits for the slowest node, or for one that is down.
//! One that hangs is asked for its vote ten times a second at most; after five seconds it is connected
//! to anew.

mod durability;
mod membership;
mod node;
mod nodes;
pub mod operator;
mod round;
mod script;
mod status;
mod tally;
mod wakeups;

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use fence::{Holder, ResourceName, Token};
use tokio::{sync::oneshot, time::sleep};

pub use self::tally::majority;
use self::{
    membership::Membership,
    node::{Absence, Asking, Node},
    nodes::{Answers, Nodes},
    round::{Round, Won},
    tally::Missed,
};
use crate::{
    Locks, Moment, Order, Ttl,
    backend::{Attempt, Backend, BackendError, Ownership, Status, Wakeups},
    redis::{
        self, InvalidRedisUrl, Server,
        keys::Keys,
        script::{Call, STATUS},
        unix_millis, valid_token,
        wakeups::Subscriptions,
    },
};

/// How often in a row a try may be split between rivals before it counts as contended.
const MOST_SPLITS: u32 = 8;
/// For how long a try that was split is repeated.
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

/// The nodes can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidNodes {
    /// One of the URLs can't be used.
    #[error(transparent)]
    Url(#[from] InvalidRedisUrl),
    /// They are too few, or an even number: of 4 nodes, no more may fail than of 3.
    #[error("Redlock takes 3, 5 or another odd number of nodes, not {0}")]
    Number(usize),
    /// Two URLs name one node.
    #[error("{0} is named twice: each node is a Redis of its own")]
    Twice(String),
    /// A URL names Sentinels or a Cluster.
    #[error("a node of Redlock is one Redis by itself: no Cluster, and none behind Sentinels")]
    NotOne,
}

impl Redlock {
    /// Makes a client of the cluster that these nodes are: 3, 5 or another odd number of them, each a
    /// Redis by itself. They are connected to when they are first used. All clients name the same nodes.
    ///
    /// The URLs are those of [`Redis::open`](redis::Redis::open), without Sentinels and Clusters.
    ///
    /// # Errors
    /// [`InvalidNodes`] if they can't be used.
    pub fn open<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Self, InvalidNodes> {
        let urls: Vec<_> = urls.into_iter().collect();
        if urls.len() < 3 || urls.len().is_multiple_of(2) {
            return Err(InvalidNodes::Number(urls.len()));
        }
        let mut nodes = Vec::new();
        let mut subscriptions = Vec::new();
        for url in urls {
            let server = Arc::new(Server::open(url.as_ref())?);
            let address = server.single_node().ok_or(InvalidNodes::NotOne)?.1;
            if nodes.iter().any(|node: &Node| node.address() == address) {
                return Err(InvalidNodes::Twice(address));
            }
            subscriptions.push(Subscriptions::new(server.clone()));
            nodes.push(Node::at(server, address));
        }
        Ok(Self { nodes: Arc::new(Nodes::of(nodes)), subscriptions, rounds: Arc::default() })
    }

    /// The holder of a new round.
    fn holder_of_round(&self, holder: &Holder) -> Holder {
        let round = self.rounds.fetch_add(1, Ordering::Relaxed);
        let holder = format!("{}-{round}", holder.as_str());
        holder.parse().expect("a random holder and a number are visible ASCII, and short")
    }

    /// Plays one round under a holder of its own.
    async fn play_round(
        &self,
        name: &ResourceName,
        holder: Holder,
        ttl: Ttl,
    ) -> Result<Result<(Token, Ownership), Missed>, BackendError> {
        let round = Round {
            nodes: self.nodes.clone(),
            keys: Keys::of(name),
            holder: holder.clone(),
            ttl,
            start: unix_millis(),
            decided: AtomicBool::new(false),
            cluster: OnceLock::new(),
        };
        let (tell, told) = oneshot::channel();
        self.nodes.background().spawn(round.play(tell));
        match told.await {
            Ok(Ok(Won { token, take })) => {
                if take.send(()).is_err() {
                    return Err(BackendError::Unavailable("it was not taken in time".into()));
                }
                Ok(Ok((token, Ownership { holder, grant: token })))
            }
            Ok(Err(missed)) => Ok(Err(missed)),
            Err(_) => Err(BackendError::Unavailable("there was no majority in time".into())),
        }
    }

    /// Hears the nodes, until so many say that the lock is ours, by a number, or that it isn't, by 0, that
    /// the others don't matter any more.
    async fn hear(&self, mut answers: Answers<i64>) -> Said {
        let mut said = Said { ours: Vec::new(), not_ours: 0, absent: Vec::new() };
        let majority = self.nodes.majority();
        while said.ours.len() < majority && said.not_ours <= self.nodes.len() - majority {
            match answers.recv().await {
                Some((_, Ok(0))) => said.not_ours += 1,
                Some((_, Ok(number))) => said.ours.push(number),
                Some((node, Err(why))) => said.absent.push((node, why)),
                None => break,
            }
        }
        said
    }

    /// Asks all nodes for their votes: these are the numbers of a majority, or nothing if the lock is not
    /// ours on so many that there is none.
    async fn vote(
        &self,
        call: impl Fn(&Membership) -> Call + Send + Sync + 'static,
    ) -> Result<Option<Vec<i64>>, BackendError> {
        let said = self.hear(self.nodes.ask_all(Asking::Vote, call)).await;
        let majority = self.nodes.majority();
        if said.ours.len() >= majority {
            Ok(Some(said.ours))
        } else if said.not_ours > self.nodes.len() - majority {
            Ok(None)
        } else {
            Err(self.nodes.too_few(&said.absent))
        }
    }
}

/// What nodes say of a lock.
struct Said {
    /// The numbers of those that say that it is ours.
    ours: Vec<i64>,
    /// How many say that it is not.
    not_ours: usize,
    absent: Vec<(usize, Absence)>,
}

/// Locks that also wait, in [`Locks::settled`], for the rounds that Redlock undoes by itself.
impl From<Redlock> for Locks {
    fn from(redlock: Redlock) -> Self {
        let background = redlock.nodes.background().clone();
        Self::with_background(redlock, background)
    }
}

#[async_trait]
impl Backend for Redlock {
    async fn try_acquire(
        &self,
        name: &ResourceName,
        holder: &Holder,
        ttl: Ttl,
        order: Order,
    ) -> Result<Attempt, BackendError> {
        if order == Order::Fair {
            return Err(BackendError::Rejected(
                "Redlock has no fair order: its nodes keep no common queue".into(),
            ));
        }
        let began = Moment::now();
        let mut splits = 0;
        loop {
            let asked = Moment::now();
            let contention = match self.play_round(name, self.holder_of_round(holder), ttl).await? {
                Ok((token, ownership)) => return Ok(Attempt::Granted { token, ownership, asked }),
                Err(Missed::Held(contention)) => return Ok(Attempt::Busy(contention)),
                Err(Missed::Split(contention)) => contention,
                Err(Missed::Absent(absent)) => return Err(self.nodes.too_few(&absent)),
            };
            if splits == MOST_SPLITS || began.elapsed() > SPLIT_PATIENCE {
                return Ok(Attempt::Busy(contention));
            }
            // Rivals that meet again wait for random times that grow, so that one gets ahead.
            splits += 1;
            let longest = (asked.elapsed() * 2_u32.pow(splits)).min(LONGEST_SPLIT_PAUSE);
            sleep(longest.mul_f64(rand::random_range(0.0..1.0))).await;
        }
    }

    async fn renew(
        &self,
        name: &ResourceName,
        ownership: &Ownership,
        ttl: Ttl,
    ) -> Result<Option<Token>, BackendError> {
        let (keys, owner) = (Arc::new(Keys::of(name)), ownership.clone());
        let renew = {
            let (keys, owner) = (keys.clone(), owner.clone());
            move |voter: &_| script::renew(&keys, voter, &owner, ttl)
        };
        let Some(mut tokens) = self.vote(renew).await? else { return Ok(None) };
        tokens.sort_unstable();
        let (lowest, highest) = (valid_token(tokens[0])?, valid_token(tokens[tokens.len() - 1])?);
        if lowest == highest {
            return Ok(Some(lowest));
        }
        // A reissue has reached some of them: it is brought to its end. Until then, a majority has sealed
        // the lowest.
        let seal = move |voter: &_| script::seal(&keys, voter, &owner, owner.grant, highest);
        Ok(Some(match self.vote(seal).await {
            Ok(Some(_)) => highest,
            Ok(None) | Err(_) => lowest,
        }))
    }

    async fn reissue(
        &self,
        name: &ResourceName,
        ownership: &Ownership,
        above: Token,
    ) -> Result<Option<Token>, BackendError> {
        let (keys, owner, start) = (Arc::new(Keys::of(name)), ownership.clone(), unix_millis());
        let raise = {
            let (keys, owner) = (keys.clone(), owner.clone());
            move |voter: &_| script::raise(&keys, voter, &owner, above, start)
        };
        let Some(raised) = self.vote(raise).await? else { return Ok(None) };
        let highest = raised.into_iter().max().expect("a majority is more than none");
        let token = valid_token(highest)?;
        let seal = move |voter: &_| script::seal(&keys, voter, &owner, owner.grant, token);
        Ok(self.vote(seal).await?.map(|_| token))
    }

    async fn release(
        &self,
        name: &ResourceName,
        holder: &Holder,
        token: Option<Token>,
    ) -> Result<bool, BackendError> {
        if token.is_none() {
            // Each round undoes by itself what it did not report as granted.
            return Ok(false);
        }
        let (keys, holder) = (Keys::of(name), holder.clone());
        let release = move |_: &_| script::release(&keys, &holder, token);
        let said = self.hear(self.nodes.ask_all(Asking::Release, release)).await;
        let majority = self.nodes.majority();
        if said.ours.len() < majority && said.ours.len() + said.not_ours < majority {
            return Err(self.nodes.too_few(&said.absent));
        }
        // Those that didn't answer may have been ours.
        Ok(said.not_ours <= self.nodes.len() - majority)
    }

    async fn subscribe(
        &self,
        name: &ResourceName,
        _: &Holder,
        _: Order,
    ) -> Result<Wakeups, BackendError> {
        let subscribed = wakeups::subscribe(&self.subscriptions, Keys::of(name).freed()).await;
        subscribed.map_err(|absent| self.nodes.too_few(&absent))
    }

    async fn status(&self, name: &ResourceName) -> Result<Status, BackendError> {
        let keys = Keys::of(name);
        let call = move |_: &_| STATUS.with([keys.lock(), keys.counter(), keys.queue()]);
        let mut answers = self.nodes.ask_all(Asking::Vote, call);
        let (mut told, mut absent) = (Vec::new(), Vec::new());
        while let Some((node, answer)) = answers.recv().await {
            match answer {
                Ok(answer) => told.push(redis::status(name, answer)?),
                Err(why) => absent.push((node, why)),
            }
            let outstanding = self.nodes.len() - told.len() - absent.len();
            if let Some(status) = status::of_all(&told, outstanding, self.nodes.majority()) {
                return Ok(status);
            }
        }
        Err(self.nodes.too_few(&absent))
    }

    fn address(&self) -> String {
        self.nodes.addresses().join(", ")
    }
}
