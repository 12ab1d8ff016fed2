//! Whether conditions are honoured when nobody else writes.

use object_store::{
    Error, ObjectStore, ObjectStoreExt, PutMode, PutResult, UpdateVersion, path::Path,
};

use super::{
    fit_if,
    site::{is_rejection, put},
    unfit,
};
use crate::check::Check;

const CREATE: &str = "an object is created on the condition that there is none (If-None-Match): otherwise two \
                      clients both begin with a fence of their own";
const REPLACE: &str = "an object is replaced on the condition that it still is as it was read (If-Match): \
                       otherwise an older token overwrites a newer one";
const MISSING: &str = "if an object is lost, a client that has read it must not write it anew: its fence would \
                       be an older one";

/// Tries the conditions of writes on an object that nobody else uses. It does not exist before, and not
/// afterwards. An error of a write is a check that fails.
///
/// # Errors
/// If the object can't be read or deleted.
pub async fn check(store: &dyn ObjectStore, path: &Path) -> Result<Vec<Check>, Error> {
    let checked = try_all(store, path).await;
    match store.delete(path).await {
        Ok(()) | Err(Error::NotFound { .. }) => checked,
        Err(error) => checked.and(Err(error)),
    }
}

async fn try_all(store: &dyn ObjectStore, path: &Path) -> Result<Vec<Check>, Error> {
    let put = async |content: &str, mode| put(store, path, content, mode).await;
    let holds = async |content: &str| {
        Ok::<_, Error>(store.get(path).await?.bytes().await? == content.as_bytes())
    };
    // 1. Create it, and then create it again.
    let first: UpdateVersion = match put("first", PutMode::Create).await {
        Ok(first) => first.into(),
        Err(error) => return Ok(vec![unfit("create", error.to_string(), CREATE)]),
    };
    let created_again = put("second", PutMode::Create).await;
    let mut checks = vec![rejection("create", created_again, holds("first").await?, CREATE)];

    // 2. Replace it as it was read, and then again under the same condition.
    let second: UpdateVersion = match put("third", PutMode::Update(first.clone())).await {
        Ok(second) => second.into(),
        Err(error) => {
            checks.push(unfit("replace", error.to_string(), REPLACE));
            return Ok(checks);
        }
    };
    let replaced_again = put("fourth", PutMode::Update(first)).await;
    checks.push(rejection("replace", replaced_again, holds("third").await?, REPLACE));

    // 3. Delete it, and then replace it as it was before.
    store.delete(path).await?;
    let replaced_missing = put("fifth", PutMode::Update(second)).await;
    let stays_missing = matches!(store.head(path).await, Err(Error::NotFound { .. }));
    checks.push(rejection("missing", replaced_missing, stays_missing, MISSING));
    Ok(checks)
}

/// Checks that the last write was rejected, and has changed nothing.
fn rejection(
    name: &'static str,
    outcome: Result<PutResult, Error>,
    is_unchanged: bool,
    why: &'static str,
) -> Check {
    let (is_fit, found) = match outcome {
        Ok(_) => (false, "accepted, though the condition does not hold".to_owned()),
        Err(error) if !is_rejection(&error) => (false, error.to_string()),
        Err(_) if !is_unchanged => (false, "rejected, and changed all the same".to_owned()),
        Err(_) => (true, "rejected".to_owned()),
    };
    fit_if(is_fit, name, found, why)
}
