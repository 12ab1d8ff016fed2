//! PostgreSQL: its fence has a doctor of its own.

use anyhow::{Context, ensure};
use sqlx::{Connection, PgConnection, query_as};

use super::{check::Check, report::Report};

pub(super) async fn examine(url: &str) -> anyhow::Result<Report> {
    let connected = PgConnection::connect(url).await;
    let mut database = connected.context("can't connect to the database")?;
    let facts = query_as::<_, (String, bool)>(
        "select current_setting('server_version'), to_regprocedure('fence.doctor()') is not null",
    );
    let (version, has_doctor) = facts.fetch_one(&mut database).await?;
    ensure!(
        has_doctor,
        "the fence is not installed in this database, or is too old; see migrations/README.md"
    );
    let checks = query_as::<_, (String, Option<bool>, String, String)>(
        "select name, ok, found, why from fence.doctor()",
    );
    let checks = checks.fetch_all(&mut database).await?.into_iter();
    let checks = checks.map(|(name, ok, found, why)| Check { name, ok, found, why }).collect();
    let number = version.split(' ').next().unwrap_or_default();
    Ok(Report::new(format!("PostgreSQL {number}"), checks))
}
