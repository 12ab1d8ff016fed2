//! `migrate`: the schema.

use super::print;
use crate::store::{
    open::{MissingFile, open_store},
    schema::Migrations,
};

/// Creates or updates the server's tables.
pub(super) async fn migrate(database_url: &str) -> anyhow::Result<()> {
    let store = open_store(database_url, MissingFile::Create, Migrations::Apply).await?;
    print(format_args!("the schema of {} is up to date", store.database()));
    store.close().await;
    Ok(())
}
