//! A lock as it is found in many applications: a row that can be inserted once. It has no token.

use std::time::{Duration, Instant};

use anyhow::Context;
use fence::ResourceName;
use sqlx::{Connection, PgConnection};
use tokio::time::sleep;

use super::{command::Terms, report::Reports, setup::Expiry};
use crate::record::EventKind;

/// The table of the locks. The primary key is the unique index.
pub(crate) const TABLE: &str =
    "create table row_lock (name text primary key, owner text not null, expires_at timestamptz)";

/// The time between two tries of a client that waits.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub(super) struct RowLock {
    database: PgConnection,
    lock: ResourceName,
    owner: String,
    expiry: Expiry,
}

impl RowLock {
    pub(super) async fn connect(
        url: &str,
        lock: &ResourceName,
        owner: &str,
        expiry: Expiry,
    ) -> anyhow::Result<Self> {
        let (database, owner) = (PgConnection::connect(url).await?, owner.to_owned());
        Ok(Self { database, lock: lock.clone(), owner, expiry })
    }

    /// Inserts the row as soon as there is none, or the present one has expired.
    pub(super) async fn acquire(
        &mut self,
        terms: Terms,
        reports: &mut Reports,
    ) -> anyhow::Result<()> {
        let (started, mut waiting) = (Instant::now(), false);
        let ttl_ms = match self.expiry {
            Expiry::None => None,
            Expiry::AfterTtl => Some(terms.ttl_ms),
        };
        while !self.insert(ttl_ms).await? {
            if !waiting && terms.wait_ms > 0 {
                reports.add(EventKind::Busy);
                waiting = true;
            }
            if started.elapsed() >= Duration::from_millis(terms.wait_ms) {
                reports.add(EventKind::GaveUp { waited_ms: terms.wait_ms });
                return Ok(());
            }
            sleep(POLL_INTERVAL).await;
        }
        reports.add(EventKind::Acquired {
            ttl_ms,
            remaining_ms: None,
            resource: None,
            holder: None,
            beside: None,
        });
        Ok(())
    }

    /// Deletes its own row.
    pub(super) async fn release(&mut self) -> anyhow::Result<EventKind> {
        let deleted = sqlx::query("delete from row_lock where name = $1 and owner = $2")
            .bind(self.lock.as_str())
            .bind(&self.owner)
            .execute(&mut self.database)
            .await?;
        Ok(match deleted.rows_affected() {
            0 => EventKind::LeaseLost,
            _ => EventKind::Released,
        })
    }

    /// Returns whether the row is inserted, or taken over. A row without an expiry never is.
    async fn insert(&mut self, ttl_ms: Option<u64>) -> anyhow::Result<bool> {
        let insert = "
            insert into row_lock values ($1, $2, now() + $3 * interval '1 ms')
            on conflict (name) do update
            set owner = excluded.owner, expires_at = excluded.expires_at
            where row_lock.expires_at < now()";
        let inserted = sqlx::query(insert)
            .bind(self.lock.as_str())
            .bind(&self.owner)
            .bind(ttl_ms.map(i64::try_from).transpose()?)
            .execute(&mut self.database)
            .await
            .context("can't insert the row")?;
        Ok(inserted.rows_affected() == 1)
    }
}
