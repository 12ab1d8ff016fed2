//! The schema of the server's own tables.

use sqlx::{
    SqlSafeStr,
    migrate::{Migrate, MigrateError, Migration, MigrationType, Migrator},
};

use super::error::OpenError;

/// What to do if migrations are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migrations {
    /// Apply them, which needs the right to create tables.
    Apply,
    /// Fail, and create nothing.
    Check,
}

/// The migrations of a database, each with its name, in their order. `applied` names the table in which they
/// are noted. It is their own, because the database may also have a user's migrations.
pub(super) fn migrator(
    migrations: &[(&'static str, &'static str)],
    applied: &'static str,
) -> Migrator {
    let migrations = (1..).zip(migrations).map(|(version, (name, sql))| {
        let kind = MigrationType::Simple;
        Migration::new(version, (*name).into(), kind, sql.into_sql_str(), false)
    });
    let mut migrator = Migrator::with_migrations(migrations.collect());
    migrator.dangerous_set_table_name(applied);
    migrator
}

/// Brings the schema up to date, or checks that it is. `name` is the database's address, for errors.
/// `exists` says whether the table of applied migrations does.
///
/// Nothing is created if nothing is missing. So a role that may not create tables can run the server.
pub(super) async fn prepare<C: Migrate>(
    migrations: Migrations,
    migrator: &Migrator,
    connection: &mut C,
    exists: bool,
    name: &str,
) -> Result<(), OpenError> {
    let failed = |error| match error {
        MigrateError::VersionMissing(migration) => {
            OpenError::NewerSchema { database: name.to_owned(), migration }
        }
        MigrateError::VersionMismatch(_) => OpenError::OtherBuild { database: name.to_owned() },
        source => OpenError::Migrate { database: name.to_owned(), source },
    };
    if exists && is_up_to_date(migrator, connection).await.map_err(failed)? {
        return Ok(());
    }
    match migrations {
        Migrations::Apply => migrator.run_direct(None, connection, false).await.map_err(failed),
        Migrations::Check => Err(OpenError::OutdatedSchema { database: name.to_owned() }),
    }
}

/// Whether no migration is missing. The migrator makes the same checks, but creates its table first.
async fn is_up_to_date<C: Migrate>(
    migrator: &Migrator,
    connection: &mut C,
) -> Result<bool, MigrateError> {
    let applied = connection.list_applied_migrations(&migrator.table_name).await?;
    for applied in &applied {
        let known = migrator.iter().find(|migration| migration.version == applied.version);
        let known = known.ok_or(MigrateError::VersionMissing(applied.version))?;
        if known.checksum != applied.checksum {
            return Err(MigrateError::VersionMismatch(applied.version));
        }
    }
    Ok(applied.len() == migrator.iter().count())
}
