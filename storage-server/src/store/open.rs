//! Opening a store.

use std::sync::Arc;

use super::{Store, error::OpenError, postgres::PostgresStore, sqlite::SqliteStore};

/// Opens the store at a database URL, and applies its migrations.
///
/// # Errors
/// [`OpenError`] if the database can't be opened, would not keep fences safely, or has a schema
/// that is newer than this server knows.
pub async fn open_store(url: &str) -> Result<Arc<dyn Store>, OpenError> {
    match url.split_once(':').map(|(scheme, _)| scheme) {
        Some("sqlite") => Ok(Arc::new(SqliteStore::open(url).await?)),
        Some("postgres" | "postgresql") => Ok(Arc::new(PostgresStore::connect(url).await?)),
        _ => Err(OpenError::UnsupportedScheme),
    }
}
