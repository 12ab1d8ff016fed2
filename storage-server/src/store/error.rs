//! The errors of stores.

use sqlx::migrate::MigrateError;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL is of a database that is not supported.
    #[error("the database URL begins neither with sqlite: nor with postgres:")]
    UnsupportedScheme,
    /// The URL is malformed. It is not printed, because it may contain a password.
    #[error("the database URL is malformed")]
    InvalidUrl(#[source] sqlx::Error),
    /// The database can't be opened, or the connection was refused.
    #[error("can't open {database}")]
    Connect {
        /// The database's address.
        database: String,
        /// What failed.
        source: sqlx::Error,
    },
    /// The database would not keep fences safely.
    #[error("{database} can't keep a fence: {reason}")]
    Unsafe {
        /// The database's address.
        database: String,
        /// Why it would not.
        reason: String,
    },
    /// A newer server has changed the schema.
    #[error(
        "the schema of {database} is newer than this server knows (migration {migration}): \
         a newer storage-server is needed"
    )]
    NewerSchema {
        /// The database's address.
        database: String,
        /// The unknown migration.
        migration: i64,
    },
    /// A migration failed.
    #[error("can't bring the schema of {database} up to date")]
    Migrate {
        /// The database's address.
        database: String,
        /// What failed.
        source: MigrateError,
    },
}

/// The database did not answer. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[error("the database can't be reached")]
pub struct Unreachable(#[from] pub(crate) sqlx::Error);

/// Why changes were not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// Another transaction held a lock for too long. Nothing was changed, but some of the changes
    /// may succeed without the others.
    #[error("another transaction holds a lock on the resource")]
    Blocked,
    /// Nothing was changed.
    #[error("nothing was changed")]
    Unchanged(#[source] sqlx::Error),
    /// The connection was lost before the database answered. The changes may have been made.
    #[error("the connection was lost before the database answered")]
    Unknown(#[source] sqlx::Error),
}
