//! The stock of a sale, a hash in Redis that has what is left and who has bought, as a buyer uses
//! it.

use std::time::Duration;

use fence::{ClaimError, ResourceName, redis::Fenced};
use redis::{AsyncCommands, AsyncConnectionConfig, aio::MultiplexedConnection};

use super::{lock::Lock, report::Reports, setup::SaleGuard};
use crate::record::EventKind;

/// The field that has the number of items left. Every other field is a buyer who bought an item.
pub(crate) const LEFT: &str = "left";
/// A crowd takes longer to be answered than the half second that is the default.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Sale {
    /// A connection of the buyer's own, because WATCH belongs to a connection.
    redis: MultiplexedConnection,
    resource: ResourceName,
    key: String,
    guard: SaleGuard,
    buyer: String,
    /// How many items were left when the buyer last read.
    left: u64,
}

impl Sale {
    pub(super) async fn connect(
        url: &str,
        sale: &ResourceName,
        guard: SaleGuard,
        buyer: &str,
    ) -> anyhow::Result<Self> {
        let patient = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let client = redis::Client::open(url)?;
        let redis = client.get_multiplexed_async_connection_with_config(&patient).await?;
        let (resource, buyer) = (sale.clone(), buyer.to_owned());
        Ok(Self { redis, key: key(sale), resource, guard, buyer, left: 0 })
    }

    /// Claims, if that is the guard, and reads how many items are left.
    pub(super) async fn read(&mut self, lock: &Lock, reports: &mut Reports) -> anyhow::Result<()> {
        match self.guard {
            SaleGuard::Lock => {}
            SaleGuard::Fence => {
                let fence = lock.fence()?;
                let fenced = Fenced::new(&self.resource, fence);
                if !accepted(fenced.claim(&mut self.redis).await)? {
                    reports.add((fence.token, EventKind::NotBought));
                    return Ok(());
                }
            }
            SaleGuard::Watch => {
                redis::cmd("WATCH").arg(&self.key).exec_async(&mut self.redis).await?;
            }
        }
        self.left = self.redis.hget(&self.key, LEFT).await?;
        reports.add((lock.token(), EventKind::StockRead { left: self.left }));
        Ok(())
    }

    /// Takes an item, if one was left: writes what is left then, and who has bought.
    pub(super) async fn take_item(
        &mut self,
        lock: &Lock,
        reports: &mut Reports,
    ) -> anyhow::Result<()> {
        while let Some(left) = self.left.checked_sub(1) {
            let fields = [(LEFT.to_owned(), left), (self.buyer.clone(), 1)];
            match self.guard {
                SaleGuard::Lock => {
                    let () = self.redis.hset_multiple(&self.key, &fields).await?;
                }
                SaleGuard::Fence => {
                    let fence = lock.fence()?;
                    let fenced = Fenced::new(&self.resource, fence);
                    if !accepted(fenced.hset(&mut self.redis, &self.key, &fields).await)? {
                        reports.add((fence.token, EventKind::NotBought));
                        return Ok(());
                    }
                }
                SaleGuard::Watch => {
                    let mut transaction = redis::pipe();
                    transaction.atomic().hset_multiple(&self.key, &fields).ignore();
                    let executed: Option<()> = transaction.query_async(&mut self.redis).await?;
                    if executed.is_none() {
                        reports.add(EventKind::Aborted);
                        self.read(lock, reports).await?;
                        continue;
                    }
                }
            }
            reports.add((lock.token(), EventKind::Bought { left }));
            break;
        }
        Ok(())
    }
}

/// The key of a sale's hash, in the slot of its fence.
pub(crate) fn key(sale: &ResourceName) -> String {
    format!("{{{sale}}}:stock")
}

fn accepted(answer: Result<(), ClaimError<redis::RedisError>>) -> anyhow::Result<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(ClaimError::Rejected { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
