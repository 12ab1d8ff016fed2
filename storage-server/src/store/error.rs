//! The errors of stores.

use std::{error::Error, io, time::Duration};

use sqlx::{error::ErrorKind, migrate::MigrateError};

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URL is of a database that is not supported.
    #[error("the database URL begins neither with sqlite: nor with postgres: nor with s3:")]
    UnsupportedScheme,
    /// An option is for standbys, which the database can't have.
    #[error(
        "the database has no standbys: --require-sync-standby, --read-url and --patroni need PostgreSQL"
    )]
    NoStandbys,
    /// The URL is malformed. It is not printed, because it may contain a password.
    #[error("the database URL is malformed")]
    InvalidUrl(#[source] sqlx::Error),
    /// The URL has a parameter that means nothing. Its value is not printed: it may be a password.
    #[error("the database URL has an unknown parameter: {parameter}")]
    UnknownParameter {
        /// Its name.
        parameter: String,
    },
    /// The database can't be opened, or the connection was rejected.
    #[error("can't open {database}")]
    Connect {
        /// The database's address.
        database: String,
        /// What failed.
        source: sqlx::Error,
    },
    /// The file can't be opened.
    #[error("can't open {database}")]
    File {
        /// The database's address.
        database: String,
        /// What the system says.
        source: io::Error,
    },
    /// None of several hosts is the primary.
    #[error("{database} has no primary that can be used: {reason}")]
    NoPrimary {
        /// The database's address.
        database: String,
        /// What each host has said.
        reason: String,
    },
    /// The database would not keep fences safely.
    #[error("{database} can't keep a fence: {reason}")]
    Unsafe {
        /// The database's address.
        database: String,
        /// Why it would not.
        reason: String,
    },
    /// The file is damaged, or its write-ahead log is another file's.
    #[error(
        "{database} is damaged: {reason}. Don't repair it: restore a backup with `storage-server \
         restore`. If the file can't even be opened, that command says which files to move away first"
    )]
    Damaged {
        /// The database's address.
        database: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The schema is older than this server needs, and it may not migrate it.
    #[error("the schema of {database} is not up to date: run `storage-server migrate` first")]
    OutdatedSchema {
        /// The database's address.
        database: String,
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
    /// Another build, which was never released, has created the tables.
    #[error(
        "the tables of {database} are of another build. To carry values and fences over, stop all \
         servers, and set the tables aside: rename the schema `storage` of PostgreSQL to \
         `storage_before`, or move the files of SQLite away and attach the old one as \
         `storage_before`. Run `storage-server migrate`, and copy the rows. PostgreSQL: \
         insert into storage.resource select * from storage_before.resource; \
         insert into storage.common_fence select * from storage_before.common_fence; \
         SQLite: insert into storage_resource (resource, token, holder, version, content_type, bytes, \
         value_token, value_holder, answers) select resource, token, holder, version, content_type, \
         bytes, value_token, value_holder, answers from storage_before.storage_resource; \
         insert into storage_common_fence select * from storage_before.storage_common_fence; \
         Large values of SQLite move out of these rows when they are written again"
    )]
    OtherBuild {
        /// The database's address.
        database: String,
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

/// How long to wait for the answer to a statement before the connection is closed.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// There was no answer within this time.
pub(super) fn no_answer(limit: Duration) -> sqlx::Error {
    let timeout = format!("no answer within {} s", limit.as_secs());
    sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, timeout))
}

/// An error of object storage, which is not SQL's.
pub(super) fn object_storage_failed(error: impl Into<Box<dyn Error + Send + Sync>>) -> sqlx::Error {
    sqlx::Error::Io(io::Error::other(error))
}

pub(super) fn primary_replaced() -> sqlx::Error {
    let reason = "another host became the primary before this one answered";
    sqlx::Error::Io(io::Error::new(io::ErrorKind::ConnectionAborted, reason))
}

/// A row that no server has written, such as one that was repaired by hand.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the row of resource {resource:?} is unreadable, because {reason}")]
pub struct UnreadableRow {
    resource: String,
    reason: String,
}

impl UnreadableRow {
    /// Creates the error from the resource's name, as it is stored, and the reason, which says how to
    /// repair the row.
    pub fn new(resource: impl Into<String>, reason: impl ToString) -> Self {
        Self { resource: resource.into(), reason: reason.to_string() }
    }

    /// The resource's name, as it is stored.
    pub(crate) fn resource(&self) -> &str {
        &self.resource
    }
}

/// Why a row was not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The database did not answer.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    /// The row is unreadable.
    #[error(transparent)]
    Unreadable(#[from] UnreadableRow),
}

/// Why changes were not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// Another transaction held a lock for too long. Nothing was changed, but some of the changes
    /// may succeed without the others.
    #[error("another transaction holds a lock on the resource")]
    Blocked,
    /// A rival was faster with one of the rows, such as a new one. Nothing was changed, but the changes of the
    /// other rows may succeed.
    #[error("another transaction was faster")]
    LostRace,
    /// The row is unreadable, and nothing was changed.
    #[error(transparent)]
    Unreadable(#[from] UnreadableRow),
    /// Nothing was changed.
    #[error("nothing was changed")]
    Unchanged(#[source] sqlx::Error),
    /// The row is gone, or older than this server has seen it. The changes may have been made before.
    #[error(transparent)]
    Lost(UnreadableRow),
    /// The connection was lost before the database answered. The changes may have been made.
    #[error("the connection was lost before the database answered")]
    Unknown(#[source] sqlx::Error),
}

impl ApplyError {
    /// Whether a row is the reason, so that changes of other rows would succeed.
    pub(crate) fn concerns_one_row(&self) -> bool {
        match self {
            Self::Blocked | Self::LostRace | Self::Unreadable(_) | Self::Lost(_) => true,
            Self::Unchanged(sqlx::Error::Database(error)) => {
                !matches!(error.kind(), ErrorKind::Other)
            }
            Self::Unchanged(_) | Self::Unknown(_) => false,
        }
    }
}
