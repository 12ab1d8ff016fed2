//! `--check`: whether the server could start.

use anyhow::Context;

use super::{print, restore::folder_of};
use crate::store::{
    error::OpenError,
    open::{DatabaseKind, MissingFile, open_store},
    replication::Replication,
    schema::Migrations,
    sqlite::integrity::path,
};

/// Tries the database, and starts and changes nothing. What the server would create
/// at its start may be missing.
pub(super) async fn check(
    database_url: &str,
    missing_file: MissingFile,
    migrations: Migrations,
    replication: &Replication,
) -> anyhow::Result<()> {
    let migrates = migrations == Migrations::Apply;
    let creates = migrates && missing_file == MissingFile::Create;
    // A folder in object storage needs no creation.
    let missing_file = match DatabaseKind::from_url(database_url)? {
        DatabaseKind::ObjectStorage => missing_file,
        DatabaseKind::Sqlite | DatabaseKind::Postgres => MissingFile::Reject,
    };
    match open_store(database_url, missing_file, Migrations::Check, replication).await {
        Ok(store) => {
            // Reading the schema does not show whether the database takes writes.
            let probed = store.probe().await;
            store.close().await;
            probed?;
            print("the configuration can be used");
        }
        Err(OpenError::OutdatedSchema { .. }) if migrates => {
            print("the configuration can be used; the server will create or change its tables");
        }
        Err(OpenError::File { .. }) if creates && is_missing_file(database_url)? => {
            let file = path(database_url)?;
            tempfile::tempfile_in(folder_of(&file))
                .with_context(|| format!("can't create {}", file.display()))?;
            print("the configuration can be used; the server will create the database");
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

fn is_missing_file(database_url: &str) -> Result<bool, OpenError> {
    let kind = DatabaseKind::from_url(database_url)?;
    Ok(kind == DatabaseKind::Sqlite && !path(database_url)?.exists())
}
