//! The least that a database can do, by sqlx.

use std::time::{Duration, Instant};

use sqlx::{Database, Executor, IntoArguments};

/// Measures two upserts, each of which is durable before its answer.
pub(super) async fn two_upserts<D: Database>(
    connection: &mut D::Connection,
    upsert: &'static str,
    count: usize,
) -> anyhow::Result<Vec<Duration>>
where
    D::Arguments: IntoArguments<D>,
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
{
    let mut times = Vec::new();
    for _ in 0..count {
        let begun = Instant::now();
        for _ in 0..2 {
            sqlx::query::<D>(upsert).execute(&mut *connection).await?;
        }
        times.push(begun.elapsed());
    }
    Ok(times)
}
