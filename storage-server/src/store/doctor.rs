//! Whether a database can lose a fence that a server has acknowledged.

use doctor::{Report, postgres::PatroniUrl};

use super::{error::OpenError, object_storage, open::DatabaseKind, postgres, sqlite};

/// Examines the database at a URL, and changes nothing. In object storage, it writes an object beside the
/// resources, and deletes it. Asks Patroni, too, if it has an address.
///
/// # Errors
/// [`OpenError`] if the database can't be reached, or Patroni is given for another database than PostgreSQL.
pub(crate) async fn examine(url: &str, patroni: Option<&PatroniUrl>) -> Result<Report, OpenError> {
    match DatabaseKind::from_url(url)? {
        DatabaseKind::Sqlite | DatabaseKind::ObjectStorage if patroni.is_some() => {
            Err(OpenError::NoStandbys)
        }
        DatabaseKind::Sqlite => sqlite::doctor::examine(url).await,
        DatabaseKind::Postgres => postgres::doctor::examine(url, patroni).await,
        DatabaseKind::ObjectStorage => object_storage::doctor::examine(url).await,
    }
}
