//! Object storage: tried out, because no setting says what it does.
//!
//! `site.rs` is the folder in which all checks work, `wire.rs` sees the answers of the store, and
//! loses one. The other modules are the checks.

mod atomicity;
mod conditions;
mod etag;
mod lost_answer;
mod read_after_write;
mod site;
mod wire;

use std::time::{Duration, Instant};

use self::site::Site;
use super::{check::Check, report::Report};

/// How many checks go on until their time is over.
const LONG_CHECKS: u32 = 3;

pub(super) async fn examine(
    url: &str,
    time: Duration,
    interrupted: impl Future<Output = anyhow::Error>,
) -> anyhow::Result<Report> {
    let site = Site::open(url).await?;
    let checks = tokio::select! {
        biased;
        interruption = interrupted => Err(interruption),
        checks = check(&site, time / LONG_CHECKS) => checks,
    };
    let cleared = site.clear().await;
    let checks = checks?;
    cleared?;
    Ok(Report::new(site.name(), checks))
}

/// Runs the checks, each of the long ones for this time.
async fn check(site: &Site, each: Duration) -> anyhow::Result<Vec<Check>> {
    let mut checks = conditions::check(site).await?;
    // Without conditions, the others would find nothing else.
    if checks.iter().all(|check| check.ok == Some(true)) {
        checks.push(atomicity::check_creation(site, Instant::now() + each).await?);
        checks.push(atomicity::check_replacement(site, Instant::now() + each).await?);
        checks.push(read_after_write::check(site, Instant::now() + each).await?);
        checks.push(lost_answer::check(site).await?);
    }
    checks.push(etag::check(site).await?);
    checks.push(Check::unseen(
        "Whether the store keeps what it has acknowledged; rules that delete or restore objects; \
         replication to another place, from which clients may read; who else may write to the bucket.",
    ));
    Ok(checks)
}
