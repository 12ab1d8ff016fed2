//! A client that works on a table of PostgreSQL, with no storage server in between. The scenarios
//! drive it, as a process of its own, step by step.

use std::process::ExitCode;

use anyhow::ensure;
use clap::{Args, ValueEnum};
use fence::{ClaimError, Fence, Refusal, ResourceName, postgres};
use lock_client::{Lease, Locks, Terms, Ttl, redis::Redis};
use serde_json::json;
use sqlx::{Connection, PgConnection};

use super::{
    REFUSED,
    steps::{print, release, step, told},
};

/// The table that the clients work on: a resource is a row.
pub(crate) const TABLE: &str =
    "create table shelf (resource text primary key, value text not null)";

/// What a client of the table is to do.
#[derive(Args, Debug)]
pub struct ShelfClient {
    resource: ResourceName,
    #[arg(long, value_name = "URL")]
    redis: String,
    #[arg(long, value_name = "URL")]
    database: String,
    #[arg(long, value_name = "MILLISECONDS")]
    ttl_ms: u64,
    #[arg(long)]
    guard: Guard,
    #[command(flatten)]
    act: Act,
}

/// How a client guards its transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Guard {
    /// Not at all: it relies on its lock.
    None,
    /// It presents its token when it writes.
    Present,
    /// It claims with its token before it reads, and again before it writes.
    Claim,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct Act {
    /// Set the row to this
    #[arg(long)]
    write: Option<String>,
    /// Sell so many of what is there
    #[arg(long)]
    sell: Option<u64>,
}

impl ShelfClient {
    /// Acquires the lock, reads, checks the lease, writes and releases; prints each step as a JSON
    /// line, and waits for a line on stdin before it goes on.
    ///
    /// # Errors
    /// If the lock, the database or stdin fails.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        let locks = Locks::new(Redis::open(&self.redis)?);
        let ttl = Ttl::new(std::time::Duration::from_millis(self.ttl_ms))?;
        let mut database = PgConnection::connect(&self.database).await?;
        let terms = Terms::new(ttl).no_wait().without_renewal();
        let lease = locks.acquire(&self.resource, terms).await?;
        let written = self.write_under(&lease, &mut database).await?;
        print(&release(lease).await?);
        Ok(written.map_or_else(|_| ExitCode::from(REFUSED), |()| ExitCode::SUCCESS))
    }

    async fn write_under(
        &self,
        lease: &Lease,
        database: &mut PgConnection,
    ) -> anyhow::Result<Result<(), Refusal>> {
        let fence = lease.fence()?;
        let token = fence.token;
        step(&json!({"event": "acquired", "token": token})).await?;

        let before = match self.read(&fence, database).await {
            Ok(before) => before,
            Err(error) => return refused(error).await,
        };
        let claimed = self.guard == Guard::Claim;
        step(&json!({"event": "read", "token": token, "value": before, "claimed": claimed}))
            .await?;

        let after = self.act.on(&before)?;
        lease.token()?;
        let remaining_ms: u64 = lease.remaining().as_millis().try_into()?;
        step(&json!({"event": "lease-checked", "token": token, "remaining_ms": remaining_ms}))
            .await?;

        match self.write(&fence, database, &after).await {
            Ok(()) => {
                step(&json!({"event": "written", "token": token, "value": after})).await.map(Ok)
            }
            Err(error) => refused(error).await,
        }
    }

    async fn read(&self, fence: &Fence, database: &mut PgConnection) -> anyhow::Result<String> {
        let mut transaction = database.begin().await?;
        if self.guard == Guard::Claim {
            postgres::claim(&mut transaction, &self.resource, fence).await?;
        }
        let value = sqlx::query_scalar("select value from shelf where resource = $1")
            .bind(self.resource.as_str())
            .fetch_one(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(value)
    }

    async fn write(
        &self,
        fence: &Fence,
        database: &mut PgConnection,
        value: &str,
    ) -> anyhow::Result<()> {
        let mut transaction = database.begin().await?;
        match self.guard {
            Guard::None => {}
            Guard::Present => postgres::present(&mut transaction, fence).await?,
            Guard::Claim => {
                postgres::claim(&mut transaction, &self.resource, fence).await?;
            }
        }
        let written = sqlx::query("update shelf set value = $2 where resource = $1")
            .bind(self.resource.as_str())
            .bind(value)
            .execute(&mut *transaction)
            .await;
        if let Err(error) = written {
            return Err(match postgres::refusal(&error) {
                Some(refusal) => refusal.into(),
                None => error.into(),
            });
        }
        Ok(transaction.commit().await?)
    }
}

impl Act {
    /// What the row is to be, from what it was.
    fn on(&self, before: &str) -> anyhow::Result<String> {
        if let Some(value) = &self.write {
            return Ok(value.clone());
        }
        let (stock, sold): (u64, u64) = (before.parse()?, self.sell.unwrap_or_default());
        ensure!(stock >= sold, "there are only {stock}");
        Ok((stock - sold).to_string())
    }
}

async fn refused(error: anyhow::Error) -> anyhow::Result<Result<(), Refusal>> {
    let refusal = match error.downcast::<ClaimError<sqlx::Error>>() {
        Ok(ClaimError::Refused { refusal, .. }) => refusal,
        Ok(error) => return Err(error.into()),
        Err(error) => error.downcast()?,
    };
    step(&told("refused", &refusal)).await?;
    Ok(Err(refusal))
}
