//! The schema of the server's own tables.

use std::ops::Deref;

use sqlx::{
    Acquire,
    migrate::{Migrate, MigrateError, Migrator},
};

use super::error::OpenError;

/// Brings the schema up to date. `name` is the database's address, for errors.
pub(super) async fn migrate<'a, A>(
    migrator: &Migrator,
    database: A,
    name: &str,
) -> Result<(), OpenError>
where
    A: Acquire<'a>,
    <A::Connection as Deref>::Target: Migrate,
{
    migrator.run(database).await.map_err(|error| match error {
        MigrateError::VersionMissing(migration) => {
            OpenError::NewerSchema { database: name.to_owned(), migration }
        }
        source => OpenError::Migrate { database: name.to_owned(), source },
    })
}
