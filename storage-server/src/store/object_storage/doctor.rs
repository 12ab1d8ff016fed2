//! Whether a bucket can lose a fence.

use doctor::{Check, Report, Verdict, object_storage};
use fence::Holder;
use object_store::{
    Error, ObjectStore,
    path::{Path, PathPart},
};

use super::{ANSWER_TIMEOUT, bucket::Bucket, within};
use crate::store::error::OpenError;

/// Tries out whether the bucket honours conditions.
pub(in crate::store) async fn examine(url: &str) -> Result<Report, OpenError> {
    let Bucket { address, client, folder, .. } = Bucket::from_url(url)?;
    let checked = within(ANSWER_TIMEOUT, check_conditions(&*client, &folder)).await;
    let checks =
        checked.map_err(|source| OpenError::Connect { database: address.clone(), source })?;
    let mut report = object_storage::report(address, checks);
    let alone =
        "whether conditions hold for several clients at once, which `lab doctor store` tries";
    report.unseen = report.unseen.map(|unseen| format!("{alone}; {unseen}"));
    Ok(report)
}

/// The folder of objects that no resource has. The part of no name begins with a tilde and goes on.
pub(super) fn scratch(folder: &Path) -> Path {
    folder.clone().join(PathPart::parse("~scratch").expect("it has no slash"))
}

/// Returns what is wrong if the store does not honour the conditions of a write, or does not return what was
/// written last.
pub(super) async fn find_unmet_condition(
    client: &dyn ObjectStore,
    folder: &Path,
) -> Result<Option<String>, Error> {
    let checks = check_conditions(client, folder).await?;
    let unmet = checks.into_iter().find(|check| check.verdict != Verdict::Ok);
    Ok(unmet.map(|Check { name, found, .. }| {
        format!("it does not honour the conditions of writes: {name}: {found}")
    }))
}

async fn check_conditions(client: &dyn ObjectStore, folder: &Path) -> Result<Vec<Check>, Error> {
    let path = scratch(folder).join(Holder::random().as_str());
    object_storage::check_conditions(client, &path).await
}
