//! A table of PostgreSQL, with no storage server in between, as a client uses it.

use anyhow::{Context, ensure};
use fence::{ClaimError, Fence, Rejection, ResourceName, postgres};
use sqlx::{Connection, PgConnection};

use super::{lock::Lock, report::Reports, setup::Guard};
use crate::record::{Content, EventKind};

/// The table that clients work on: a resource is a row.
pub(crate) const TABLE: &str =
    "create table shelf (resource text primary key, value text not null)";

pub(super) struct Table {
    database: PgConnection,
    resource: ResourceName,
    guard: Guard,
    /// What the client read last.
    value: Option<String>,
}

impl Table {
    pub(super) async fn connect(
        url: &str,
        resource: &ResourceName,
        guard: Guard,
    ) -> anyhow::Result<Self> {
        let database = PgConnection::connect(url).await?;
        Ok(Self { database, resource: resource.clone(), guard, value: None })
    }

    pub(super) async fn read(&mut self, lock: &Lock, reports: &mut Reports) -> anyhow::Result<()> {
        let value = match self.select(lock).await {
            Ok(value) => value,
            Err(error) => {
                let rejection = error.downcast::<Rejection>()?;
                reports.add((rejection.token, EventKind::ClaimRejected(rejection.into())));
                return Ok(());
            }
        };
        self.value = Some(value.clone());
        let claimed = Some(self.guard == Guard::Claim);
        let content = Content { value: Some(value), version: None, claimed };
        reports.add((lock.token(), EventKind::Read(content)));
        Ok(())
    }

    pub(super) async fn write(
        &mut self,
        value: String,
        lock: &Lock,
        reports: &mut Reports,
    ) -> anyhow::Result<()> {
        if let Err(error) = self.update(lock, &value).await {
            // All other errors end the client.
            reports.add(error.downcast::<Rejection>()?);
            return Ok(());
        }
        let content = Content { value: Some(value), ..Content::default() };
        reports.add((lock.token(), EventKind::Written { content, overwrites_unseen: 0 }));
        Ok(())
    }

    /// The value that was read last, less what is sold.
    pub(super) fn rest(&self, sold: u64) -> anyhow::Result<String> {
        let stock: u64 = self.value.as_ref().context("nothing was read")?.parse()?;
        ensure!(stock >= sold, "only {stock} are left");
        Ok((stock - sold).to_string())
    }

    /// Reads the row. A rejection is the error [`Rejection`].
    async fn select(&mut self, lock: &Lock) -> anyhow::Result<String> {
        let mut transaction = self.database.begin().await?;
        if self.guard == Guard::Claim {
            claim(&mut transaction, &self.resource, lock.fence()?).await?;
        }
        let value = sqlx::query_scalar("select value from shelf where resource = $1")
            .bind(self.resource.as_str())
            .fetch_one(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(value)
    }

    /// Writes the row. A rejection is the error [`Rejection`].
    async fn update(&mut self, lock: &Lock, value: &str) -> anyhow::Result<()> {
        let mut transaction = self.database.begin().await?;
        match self.guard {
            Guard::None => {}
            Guard::Present => postgres::present(&mut transaction, lock.fence()?).await?,
            Guard::Claim => claim(&mut transaction, &self.resource, lock.fence()?).await?,
        }
        let updated = sqlx::query("update shelf set value = $2 where resource = $1")
            .bind(self.resource.as_str())
            .bind(value)
            .execute(&mut *transaction)
            .await;
        if let Err(error) = updated {
            return Err(postgres::rejection(&error).map_or_else(|| error.into(), Into::into));
        }
        Ok(transaction.commit().await?)
    }
}

async fn claim(
    transaction: &mut PgConnection,
    resource: &ResourceName,
    fence: &Fence,
) -> anyhow::Result<()> {
    match postgres::claim(transaction, resource, fence).await {
        Err(ClaimError::Rejected { rejection, .. }) => Err(rejection.into()),
        answer => Ok(answer?),
    }
}
