//! Object storage: tried out, because no setting says what it does.
//!
//! [`Site`] is the folder in which all checks work. [`Wire`] sees the answers of the store, and loses one.
//! The other modules are the checks.

mod atomicity;
mod conditions;
mod lost_answer;
mod read_after_write;
mod site;
mod wire;

use std::time::{Duration, Instant};

pub use self::{
    conditions::check as check_conditions,
    site::{Clients, Site},
    wire::Wire,
};
use crate::{
    check::{Check, Verdict},
    report::Report,
};

/// How many checks go on until their time is over.
const LONG_CHECKS: u32 = 3;
const UNSEEN: &str = "whether the store keeps what it has acknowledged; rules that delete or restore objects; \
                      replication to another place, from which clients may read; who else may write to the \
                      bucket";

/// Runs all checks in a folder of this run, which is removed, also if this is interrupted. Several clients
/// use the store at once for a total of `time`.
///
/// # Errors
/// If the store can't be examined, or the folder can't be removed.
pub async fn examine(
    site: &Site,
    time: Duration,
    interrupted: impl Future<Output = anyhow::Error>,
) -> anyhow::Result<Report> {
    let checks = tokio::select! {
        biased;
        interruption = interrupted => Err(interruption),
        checks = check(site, time / LONG_CHECKS) => checks,
    };
    let cleared = site.clear().await;
    let checks = checks?;
    cleared?;
    Ok(report(site.name(), checks))
}

/// A report of some checks of a store.
pub fn report(store: String, checks: Vec<Check>) -> Report {
    Report { unseen: Some(UNSEEN.to_owned()), ..Report::new(store, None, checks) }
}

/// Runs the checks, each of the long ones for this time.
async fn check(site: &Site, each: Duration) -> anyhow::Result<Vec<Check>> {
    let mut checks = conditions::check(&*site.store, &site.path("conditions")).await?;
    // Without conditions, the others would find nothing else.
    if checks.iter().all(|check| check.verdict == Verdict::Ok) {
        checks.push(atomicity::check_creation(site, Instant::now() + each).await?);
        checks.push(atomicity::check_replacement(site, Instant::now() + each).await?);
        checks.push(read_after_write::check(site, Instant::now() + each).await?);
        checks.push(lost_answer::check(site).await?);
    }
    Ok(checks)
}

/// A store that fails a check. No setting of a client mends it.
fn unfit(name: &'static str, found: impl Into<String>, why: &'static str) -> Check {
    Check::bad(
        Verdict::UnfitForFence,
        name,
        found,
        why,
        "use another store, or a newer version of it",
    )
}

/// A check of which the condition decides whether the store is fit.
fn fit_if(is_fit: bool, name: &'static str, found: impl Into<String>, why: &'static str) -> Check {
    if is_fit { Check::ok(name, found) } else { unfit(name, found, why) }
}
