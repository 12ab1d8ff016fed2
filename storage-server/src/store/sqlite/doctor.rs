//! Whether an SQLite file can lose an acknowledged fence.

use doctor::{Check, Report, Verdict, sqlite};

use super::integrity::{check_integrity, parse_url, path};
use crate::store::error::OpenError;

/// Examines the file, and doesn't create it. A server sets WAL mode and `synchronous=FULL` by itself.
pub(in crate::store) async fn examine(url: &str) -> Result<Report, OpenError> {
    let file = path(url)?;
    let failed = |source| OpenError::Connect { database: url.to_owned(), source };
    std::fs::metadata(&file)
        .map_err(|source| OpenError::File { database: url.to_owned(), source })?;
    match check_integrity(&file, url).await {
        Ok(()) => {
            let options = parse_url(url)?;
            let mut report = sqlite::examine(&options).await.map_err(failed)?;
            report.checks.retain(|check| check.name != "journal_mode");
            report.checks.push(Check::ok("structure", "whole"));
            Ok(report)
        }
        Err(OpenError::Damaged { reason, .. }) => {
            let damaged = Check::bad(
                Verdict::Unfit,
                "structure",
                reason,
                "a damaged file has lost rows",
                "don't repair it: restore a backup",
            );
            Ok(Report::new(url, None, vec![damaged]))
        }
        Err(error) => Err(error),
    }
}
