//! Whether conditions are honoured when nobody else writes.

use object_store::{Error, ObjectStoreExt, PutMode, PutResult, UpdateVersion};

use super::{
    Check,
    site::{Site, is_rejection, put},
};

const CREATE: &str = "A register is created on the condition that there is none (If-None-Match): \
                      otherwise two clients both begin with a fence of their own.";
const REPLACE: &str = "A register is replaced on the condition that it still is as it was read \
                       (If-Match): otherwise an older token overwrites a newer one.";
const MISSING: &str = "If a register is lost, a client that has read it must not write it anew: its \
                       fence would be an older one.";

pub(super) async fn check(site: &Site) -> anyhow::Result<Vec<Check>> {
    let path = site.path("conditions");
    let put = async |content: &str, mode| put(&*site.store, &path, content, mode).await;

    // 1. Create it, and then create it again.
    let first = match put("first", PutMode::Create).await {
        Ok(first) => condition(first),
        Err(error) => return Ok(vec![Check::new("create", false, error.to_string(), CREATE)]),
    };
    let created_again = put("second", PutMode::Create).await;
    let mut checks =
        vec![rejection(site, "create", created_again, site.read(&path).await? == "first", CREATE)];

    // 2. Replace it as it was read, and then again under the same condition.
    let second = match put("third", PutMode::Update(first.clone())).await {
        Ok(second) => condition(second),
        Err(error) => {
            checks.push(Check::new("replace", false, error.to_string(), REPLACE));
            return Ok(checks);
        }
    };
    site.wire.take_statuses();
    let replaced_again = put("fourth", PutMode::Update(first)).await;
    let is_kept = site.read(&path).await? == "third";
    checks.push(rejection(site, "replace", replaced_again, is_kept, REPLACE));

    // 3. Delete it, and then replace it as it was before.
    site.store.delete(&path).await?;
    let replaced_missing = put("fifth", PutMode::Update(second)).await;
    let stays_missing = matches!(site.store.head(&path).await, Err(Error::NotFound { .. }));
    checks.push(rejection(site, "missing", replaced_missing, stays_missing, MISSING));
    Ok(checks)
}

fn condition(put: PutResult) -> UpdateVersion {
    put.into()
}

/// Checks that the last write was rejected, and has changed nothing.
fn rejection(
    site: &Site,
    name: &str,
    outcome: Result<PutResult, Error>,
    is_unchanged: bool,
    why: &str,
) -> Check {
    let statuses = site.wire.take_statuses();
    let status = statuses.last().map_or("no answer".to_owned(), u16::to_string);
    let (ok, found) = match outcome {
        Ok(_) => (false, format!("accepted, though the condition does not hold ({status})")),
        Err(error) if !is_rejection(&error) => (false, error.to_string()),
        Err(_) if !is_unchanged => {
            (false, format!("rejected ({status}), and written all the same"))
        }
        Err(_) => (true, format!("rejected ({status})")),
    };
    Check::new(name, ok, found, why)
}
