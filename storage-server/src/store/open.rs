//! Opening a store.

use std::sync::Arc;

use sqlx::sqlite::SqliteSynchronous;

use super::{
    Store, error::OpenError, object_storage::ObjectStorage, postgres::PostgresStore,
    replication::Replication, schema::Migrations, sqlite::SqliteStore,
};

/// What to do if there is no database file, or nothing in the folder of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingFile {
    /// Create an empty one, which knows no fence, and warn.
    Create,
    /// Fail.
    Reject,
}

/// Opens the store at a database URL, and applies its migrations or checks them.
///
/// # Errors
/// [`OpenError`] if the database can't be opened, is damaged, would not keep fences safely, or has
/// another schema than this server needs.
pub async fn open_store(
    url: &str,
    missing_file: MissingFile,
    migrations: Migrations,
    replication: &Replication,
) -> Result<Arc<dyn Store>, OpenError> {
    match DatabaseKind::from_url(url)? {
        DatabaseKind::Sqlite | DatabaseKind::ObjectStorage
            if *replication != Replication::default() =>
        {
            Err(OpenError::NoStandbys)
        }
        DatabaseKind::Sqlite => {
            let full = SqliteSynchronous::Full;
            Ok(Arc::new(SqliteStore::open(url, missing_file, migrations, full).await?))
        }
        DatabaseKind::Postgres => {
            Ok(Arc::new(PostgresStore::connect(url, migrations, replication).await?))
        }
        // It has no schema.
        DatabaseKind::ObjectStorage => Ok(Arc::new(ObjectStorage::open(url, missing_file).await?)),
    }
}

/// Opens an SQLite file as no server should: with another setting than `synchronous=FULL`. For the
/// lab, which shows what a power loss does then.
///
/// # Errors
/// As for [`open_store`].
#[doc(hidden)]
pub async fn open_careless_sqlite(
    url: &str,
    synchronous: SqliteSynchronous,
) -> Result<Arc<dyn Store>, OpenError> {
    let (missing_file, migrations) = (MissingFile::Create, Migrations::Apply);
    Ok(Arc::new(SqliteStore::open(url, missing_file, migrations, synchronous).await?))
}

/// The databases that are supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DatabaseKind {
    Sqlite,
    Postgres,
    ObjectStorage,
}

impl DatabaseKind {
    /// The kind of database at a URL, by its scheme.
    pub(crate) fn from_url(url: &str) -> Result<Self, OpenError> {
        match url.split_once(':').map(|(scheme, _)| scheme) {
            Some("sqlite") => Ok(Self::Sqlite),
            Some("postgres" | "postgresql") => Ok(Self::Postgres),
            Some("s3") => Ok(Self::ObjectStorage),
            _ => Err(OpenError::UnsupportedScheme),
        }
    }
}
