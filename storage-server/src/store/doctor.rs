//! Whether a database can lose a fence that a server has acknowledged.

use serde::Serialize;

use super::{error::OpenError, object_storage, open::DatabaseKind, postgres, sqlite};

pub(crate) use super::postgres::doctor::PatroniUrl;

/// What was found in a database.
#[derive(Debug, Serialize)]
pub(crate) struct Examination {
    /// Its address, without a password.
    pub(crate) database: String,
    pub(crate) findings: Vec<Finding>,
    /// What no check can see.
    pub(crate) unseen: &'static str,
}

impl Examination {
    /// Whether all checks have found the database safe.
    pub(crate) fn is_safe(&self) -> bool {
        self.findings.iter().all(|finding| finding.verdict == Verdict::Ok)
    }
}

/// What a check has found.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) check: &'static str,
    pub(crate) verdict: Verdict,
    pub(crate) found: String,
    /// What a wrong state endangers, and how to cure it.
    pub(crate) why: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    Ok,
    /// A fence can be lost.
    Wrong,
    /// The check could not see whether one can be lost.
    Unknown,
}

impl Verdict {
    pub(crate) fn wrong_if(is_wrong: bool) -> Self {
        if is_wrong { Self::Wrong } else { Self::Ok }
    }
}

/// Examines the database at a URL, and changes nothing. In object storage, it writes an object beside the
/// resources, and deletes it. Asks Patroni, too, if it has an address.
///
/// # Errors
/// [`OpenError`] if the database can't be reached, or Patroni is given for another database than PostgreSQL.
pub(crate) async fn examine(
    url: &str,
    patroni: Option<&PatroniUrl>,
) -> Result<Examination, OpenError> {
    match DatabaseKind::from_url(url)? {
        DatabaseKind::Sqlite | DatabaseKind::ObjectStorage if patroni.is_some() => {
            Err(OpenError::NoStandbys)
        }
        DatabaseKind::Sqlite => sqlite::doctor::examine(url).await,
        DatabaseKind::Postgres => postgres::doctor::examine(url, patroni).await,
        DatabaseKind::ObjectStorage => object_storage::doctor::examine(url).await,
    }
}
