//! Whether a read returns what was acknowledged before it began.

use std::time::Instant;

use anyhow::{Context, ensure};
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, path::Path};

use super::{
    fit_if,
    site::{Site, put},
};
use crate::check::Check;

const WHY: &str =
    "a client that reads an older object may reject the right token, or report an object as lost";
/// How many versions each object gets.
const VERSIONS: u64 = 10;

/// Writes objects, and reads them through another client after each answer.
pub(super) async fn check(site: &Site, until: Instant) -> anyhow::Result<Check> {
    let reader = site.another_client()?;
    let (mut reads, mut stale) = (0, 0);
    while reads == 0 || Instant::now() < until {
        let path = site.path(&format!("read-{reads}"));
        // A store may remember that there was nothing.
        ensure!(version(&*reader, &path).await? == 0, "an object of this run is there already");
        let mut mode = PutMode::Create;
        for written in 1..=VERSIONS {
            let answer = put(&*site.store, &path, &written.to_string(), mode).await?;
            mode = PutMode::Update(answer.into());
            reads += 1;
            stale += u64::from(version(&*reader, &path).await? < written);
        }
    }
    let found = format!("{reads} reads by another client, {stale} of an older object");
    Ok(fit_if(stale == 0, "read_after_write", found, WHY))
}

/// Returns 0 if there is no object.
async fn version(store: &dyn ObjectStore, path: &Path) -> anyhow::Result<u64> {
    match store.get(path).await {
        Ok(answer) => {
            let content = String::from_utf8(answer.bytes().await?.to_vec())?;
            content.parse().context("an object of this run has no version")
        }
        Err(Error::NotFound { .. }) => Ok(0),
        Err(error) => Err(error.into()),
    }
}
