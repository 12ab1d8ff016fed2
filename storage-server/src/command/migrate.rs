//! `migrate`: the schema.

use super::{audited::Action, print};
use crate::store::{
    open::{MissingFile, open_store},
    replication::Replication,
    schema::Migrations,
};

pub(super) const MIGRATION: Action = Action { command: "migrate", target: None, token: None };

/// Creates or updates the server's tables.
pub(super) async fn migrate(database_url: &str) -> anyhow::Result<()> {
    let (missing_file, migrations) = (MissingFile::Create, Migrations::Apply);
    let store = open_store(database_url, missing_file, migrations, &Replication::default()).await?;
    print(format_args!("the schema of {} is up to date", store.database()));
    store.close().await;
    Ok(())
}
