//! One buyer, and how it takes an item.

use std::time::Duration;

use fence::{ClaimError, Fence, redis::Fenced};
use lock_client::{Lease, Locks, Terms, Ttl};
use redis::{AsyncCommands, aio::MultiplexedConnection};
use serde_json::{Value, json};

use super::{
    Buyers, LEFT, Served, WAIT, Way,
    steps::{print, release, step},
};

/// A buyer.
pub(super) struct Buyer {
    pub(super) name: String,
    pub(super) buyers: Buyers,
    /// One's own, as WATCH belongs to a connection.
    pub(super) redis: MultiplexedConnection,
    pub(super) locks: Locks,
}

impl Buyer {
    pub(super) async fn buy(&mut self) -> anyhow::Result<Served> {
        if self.buyers.way == Way::Watch {
            return self.buy_by_transaction().await;
        }
        let ttl = Ttl::new(Duration::from_millis(self.buyers.ttl_ms))?;
        let terms = Terms::new(ttl).wait(WAIT).without_renewal();
        let lease = self.locks.acquire(&self.buyers.sale, terms).await?;
        let served = self.buy_under(&lease).await?;
        self.print(&release(lease).await?);
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

    async fn claim(&mut self, fence: &Fence) -> anyhow::Result<bool> {
        match self.buyers.way {
            Way::Fence => {
                let fenced = Fenced::new(&self.buyers.sale, fence);
                accepted(fenced.claim(&mut self.redis).await)
            }
            _ => Ok(true),
        }
    }

    /// Writes what is left and who has bought, in one command.
    async fn take_item(&mut self, fence: &Fence, left: u64) -> anyhow::Result<bool> {
        let fields = [(LEFT.to_owned(), left), (self.name.clone(), 1)];
        match self.buyers.way {
            Way::Fence => {
                let fenced = Fenced::new(&self.buyers.sale, fence);
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
        Err(ClaimError::Refused { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
