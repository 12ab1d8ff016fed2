//! Whether conditions are honoured when nobody else writes.

use fence::object_store::Failure;
use object_store::{
    Error, ObjectStore, ObjectStoreExt, PutMode, PutResult, UpdateVersion, path::Path,
};

use super::{
    fit_if,
    site::{is_rejection, put},
    unfit,
};
use crate::check::{Check, Verdict};

const CREATE: &str = "an object is created on the condition that there is none (If-None-Match): otherwise two \
                      clients both begin with a fence of their own";
const REPLACE: &str = "an object is replaced on the condition that it still is as it was read (If-Match): \
                       otherwise an older token overwrites a newer one";
const MISSING: &str = "if an object is lost, a client that has read it must not write it anew: its fence would \
                       be an older one";

/// Tries the conditions of writes on an object that nobody else uses. It does not exist before, and not
/// afterwards.
///
/// # Errors
/// Those of the store, unless they prove that it does not have conditions.
pub async fn check(store: &dyn ObjectStore, path: &Path) -> Result<Vec<Check>, Error> {
    let checked = try_all(store, path).await;
    match store.delete(path).await {
        Ok(()) | Err(Error::NotFound { .. }) => checked,
        Err(error) => match checked {
            // What was found about a store that is unfit is true all the same.
            Ok(checks) if checks.iter().any(|check| check.verdict != Verdict::Ok) => Ok(checks),
            checked => checked.and(Err(error)),
        },
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
        Err(error) if has_no_conditions(&error) || is_rejection(&error) => {
            return Ok(vec![unfit("create", reason(&error), CREATE)]);
        }
        Err(error) => return Err(error),
    };
    let created_again = put("second", PutMode::Create).await;
    let mut checks = vec![rejection("create", created_again, holds("first").await?, CREATE)?];

    // 2. Replace it as it was read, and then again under the same condition.
    let second: UpdateVersion = match put("third", PutMode::Update(first.clone())).await {
        Ok(second) => second.into(),
        // A condition that holds was rejected, for example because the second creation was carried out.
        Err(error) if has_no_conditions(&error) || is_rejection(&error) => {
            checks.push(unfit("replace", reason(&error), REPLACE));
            return Ok(checks);
        }
        Err(error) => return Err(error),
    };
    let replaced_again = put("fourth", PutMode::Update(first)).await;
    checks.push(rejection("replace", replaced_again, holds("third").await?, REPLACE)?);

    // 3. Delete it, and then replace it as it was before.
    store.delete(path).await?;
    let replaced_missing = put("fifth", PutMode::Update(second)).await;
    let stays_missing = match store.head(path).await {
        Ok(_) => false,
        Err(Error::NotFound { .. }) => true,
        Err(error) => return Err(error),
    };
    checks.push(rejection("missing", replaced_missing, stays_missing, MISSING)?);
    Ok(checks)
}

/// Checks that the last write was rejected, and has changed nothing.
fn rejection(
    name: &'static str,
    outcome: Result<PutResult, Error>,
    is_unchanged: bool,
    why: &'static str,
) -> Result<Check, Error> {
    match outcome {
        Ok(_) => Ok(unfit(name, "accepted, though the condition does not hold", why)),
        Err(error) if has_no_conditions(&error) => Ok(unfit(name, reason(&error), why)),
        // An object that is gone is no object that is as it was read.
        Err(error) if is_rejection(&error) || matches!(error, Error::NotFound { .. }) => {
            let found =
                if is_unchanged { "rejected" } else { "rejected, and changed all the same" };
            Ok(fit_if(is_unchanged, name, found, why))
        }
        Err(error) => Err(error),
    }
}

/// Whether the store, or its client, does not know conditions.
fn has_no_conditions(error: &Error) -> bool {
    Failure::from_error(error).has_no_conditions()
}

fn reason(error: &Error) -> String {
    if has_no_conditions(error) {
        format!("the store has no conditional writes (If-Match, If-None-Match): {error}")
    } else {
        error.to_string()
    }
}
