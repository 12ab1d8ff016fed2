//! Buyers of a sale: each takes an item if there is one left. What is left, and who has bought, is one
//! hash in Redis. The scenarios drive one buyer step by step, or let a crowd of them loose at once.

use std::{process::ExitCode, time::Duration};

use clap::{Args, ValueEnum};
use fence::{ClaimError, Fence, ResourceName, redis::Fenced};
use lock_client::{Lease, Locks, Released, Terms, Ttl, backend};
use redis::{AsyncCommands, AsyncConnectionConfig, aio::MultiplexedConnection};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::steps::{print, step};

/// The field that has the number of items left; every other field is a buyer who bought one.
pub(crate) const LEFT: &str = "left";
/// A buyer waits for the lock for as long as the crowd may take.
const WAIT: Duration = Duration::from_secs(60);

/// What buyers are to do.
#[derive(Args, Clone, Debug)]
pub struct Buyers {
    /// What is sold, and the lock that guards it
    sale: ResourceName,
    #[arg(long, value_name = "URL")]
    redis: String,
    #[arg(long, value_name = "MILLISECONDS")]
    ttl_ms: u64,
    #[arg(long)]
    way: Way,
    /// How many they are, all at once; one alone goes step by step
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// The number of the first of them, by which they are told apart
    #[arg(long)]
    first: u64,
}

/// What keeps buyers from taking the same item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// A transaction of Redis, which is aborted and tried again if the hash has changed: WATCH, MULTI
    /// and EXEC.
    Watch,
    /// A lock.
    Lock,
    /// A lock, and its token, which is claimed before reading and checked again in writing.
    Fence,
}

/// What came of a buyer, or of a crowd.
#[derive(Clone, Copy, Debug, Default)]
struct Served {
    bought: u64,
    sold_out: u64,
    refused: u64,
    aborted: u64,
}

struct Buyer {
    name: String,
    buyers: Buyers,
    /// One's own, as WATCH belongs to a connection.
    redis: MultiplexedConnection,
    locks: Locks,
}

impl Way {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Watch => "watch",
            Self::Lock => "lock",
            Self::Fence => "fence",
        }
    }
}

impl Buyers {
    /// Has them buy. A crowd prints one JSON line when all have been served; one buyer prints one for
    /// each step, and waits for a line on stdin before it goes on.
    ///
    /// # Errors
    /// If Redis or stdin fails.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        allow_connections();
        let locks = Locks::new(backend::Redis::open(&self.redis)?);
        let client = redis::Client::open(self.redis.as_str())?;
        // A crowd takes longer to answer than the half second that is the default.
        let patient = AsyncConnectionConfig::new().set_response_timeout(Some(WAIT));
        let mut all = Vec::new();
        for number in self.first..self.first + self.count {
            let redis = client.get_multiplexed_async_connection_with_config(&patient).await?;
            let name = format!("buyer-{number}");
            all.push(Buyer { name, buyers: self.clone(), redis, locks: locks.clone() });
        }
        // At once: none of them begins before all have come.
        let mut crowd = JoinSet::new();
        for mut buyer in all {
            crowd.spawn(async move { buyer.buy().await });
        }
        let mut sum = Served::default();
        while let Some(served) = crowd.join_next().await {
            let Served { bought, sold_out, refused, aborted } = served??;
            sum.bought += bought;
            sum.sold_out += sold_out;
            sum.refused += refused;
            sum.aborted += aborted;
        }
        if self.count > 1 {
            let Served { bought, sold_out, refused, aborted } = sum;
            print(&json!({
                "event": "served", "buyers": self.count, "bought": bought, "sold_out": sold_out,
                "refused": refused, "aborted": aborted,
            }));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The hash, in the slot of its fence.
    fn key(&self) -> String {
        key(&self.sale)
    }
}

/// The key of a sale's hash.
pub(crate) fn key(sale: &ResourceName) -> String {
    format!("{{{sale}}}:stock")
}

impl Buyer {
    async fn buy(&mut self) -> anyhow::Result<Served> {
        if self.buyers.way == Way::Watch {
            return self.buy_by_transaction().await;
        }
        let ttl = Ttl::new(Duration::from_millis(self.buyers.ttl_ms))?;
        let terms = Terms::new(ttl).wait(WAIT).without_renewal();
        let lease = self.locks.acquire(&self.buyers.sale, terms).await?;
        let served = self.buy_under(&lease).await?;
        self.print(&match lease.release().await? {
            Released::Released => json!({"event": "released"}),
            Released::NotHeld | Released::StillHeld => json!({"event": "lease-lost"}),
        });
        Ok(served)
    }

    async fn buy_under(&mut self, lease: &Lease) -> anyhow::Result<Served> {
        let fence = lease.fence()?;
        self.step(json!({"event": "acquired", "token": fence.token})).await?;
        if !self.claim(&fence).await? {
            return self.refused(&fence).await;
        }
        let left = self.items_left().await?;
        let token = lease.token()?;
        self.step(json!({"event": "stock-read", "token": token, "left": left})).await?;
        if left == 0 {
            return Ok(Served { sold_out: 1, ..Served::default() });
        }
        if !self.take_item(&fence, left - 1).await? {
            return self.refused(&fence).await;
        }
        self.step(json!({"event": "bought", "token": fence.token, "left": left - 1})).await?;
        Ok(Served { bought: 1, ..Served::default() })
    }

    async fn claim(&mut self, Fence { token, holder }: &Fence) -> anyhow::Result<bool> {
        match self.buyers.way {
            Way::Fence => {
                let fenced = Fenced::new(&self.buyers.sale, *token, holder);
                accepted(fenced.claim(&mut self.redis).await)
            }
            _ => Ok(true),
        }
    }

    /// Writes what is left and who has bought, in one command.
    async fn take_item(
        &mut self,
        Fence { token, holder }: &Fence,
        left: u64,
    ) -> anyhow::Result<bool> {
        let fields = [(LEFT.to_owned(), left), (self.name.clone(), 1)];
        match self.buyers.way {
            Way::Fence => {
                let fenced = Fenced::new(&self.buyers.sale, *token, holder);
                let key = self.buyers.key();
                accepted(fenced.hset(&mut self.redis, &key, &fields).await)
            }
            _ => {
                let () = self.redis.hset_multiple(self.buyers.key(), &fields).await?;
                Ok(true)
            }
        }
    }

    async fn refused(&self, fence: &Fence) -> anyhow::Result<Served> {
        self.step(json!({"event": "not-bought", "token": fence.token})).await?;
        Ok(Served { refused: 1, ..Served::default() })
    }

    async fn buy_by_transaction(&mut self) -> anyhow::Result<Served> {
        let key = self.buyers.key();
        for aborted in 0.. {
            redis::cmd("WATCH").arg(&key).exec_async(&mut self.redis).await?;
            let left = self.items_left().await?;
            self.step(json!({"event": "stock-read", "left": left})).await?;
            if left == 0 {
                return Ok(Served { sold_out: 1, aborted, ..Served::default() });
            }
            let fields = [(LEFT.to_owned(), left - 1), (self.name.clone(), 1)];
            let mut transaction = redis::pipe();
            transaction.atomic().hset_multiple(&key, &fields).ignore();
            let done: Option<()> = transaction.query_async(&mut self.redis).await?;
            if done.is_some() {
                self.step(json!({"event": "bought", "left": left - 1})).await?;
                return Ok(Served { bought: 1, aborted, ..Served::default() });
            }
            self.step(json!({"event": "aborted"})).await?;
        }
        unreachable!("the loop has no end")
    }

    async fn items_left(&mut self) -> anyhow::Result<u64> {
        Ok(self.redis.hget(self.buyers.key(), LEFT).await?)
    }

    /// Tells of a step, and waits to be told to go on, if this buyer is alone.
    async fn step(&self, event: Value) -> anyhow::Result<()> {
        if self.buyers.count == 1 { step(&event).await } else { Ok(()) }
    }

    fn print(&self, event: &Value) {
        if self.buyers.count == 1 {
            print(event);
        }
    }
}

fn accepted(answer: Result<(), ClaimError<redis::RedisError>>) -> anyhow::Result<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(ClaimError::Refused(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Raises the number of files that may be open, which is small on some systems, as far as it goes: if
/// that is not far enough, connecting says so.
pub(crate) fn allow_connections() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}
