//! Whether a bucket can lose a fence.

use fence::Holder;
use object_store::{
    Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutResult,
    path::{Path, PathPart},
};

use super::{ANSWER_TIMEOUT, bucket::Bucket, within};
use crate::store::{
    doctor::{Examination, Finding, Verdict},
    error::OpenError,
};

const UNSEEN: &str = "whether conditions hold for several clients at once, which `lab doctor store` tries; \
                      rules that delete objects after a time; who else may write or delete objects; \
                      earlier versions of objects that were restored";

/// Tries out whether the bucket honours conditions.
pub(in crate::store) async fn examine(url: &str) -> Result<Examination, OpenError> {
    let Bucket { address, client, folder } = Bucket::from_url(url)?;
    let unmet = within(ANSWER_TIMEOUT, find_unmet_condition(&*client, &folder)).await;
    let unmet = unmet.map_err(|source| OpenError::Connect { database: address.clone(), source })?;
    let finding = Finding {
        check: "conditions",
        verdict: Verdict::wrong_if(unmet.is_some()),
        found: unmet.unwrap_or_else(|| "honoured".to_owned()),
        why: "Every write has the condition that the object is as it was read. A store that ignores it, or \
              returns older objects, accepts late writers.",
    };
    Ok(Examination { database: address, findings: vec![finding], unseen: UNSEEN })
}

/// The folder of objects that no resource has. The part of no name begins with a tilde and goes on.
pub(super) fn scratch(folder: &Path) -> Path {
    folder.clone().join(PathPart::parse("~scratch").expect("it has no slash"))
}

/// Says what is wrong if the store does not honour the conditions of a write, or does not return what was
/// written last.
pub(super) async fn find_unmet_condition(
    client: &dyn ObjectStore,
    folder: &Path,
) -> Result<Option<String>, Error> {
    let path = scratch(folder).join(Holder::random().as_str());
    let found = try_conditions(client, &path).await;
    client.delete(&path).await?;
    found
}

async fn try_conditions(client: &dyn ObjectStore, path: &Path) -> Result<Option<String>, Error> {
    let put = async |value: &'static str, mode: PutMode| {
        client.put_opts(path, value.into(), PutOptions::from(mode)).await
    };
    let ignored = |what: &str| Ok(Some(format!("it ignores the condition that an object {what}")));
    let first = put("1", PutMode::Create).await?;
    if !is_rejected(put("2", PutMode::Create).await)? {
        return ignored("does not exist");
    }
    put("3", PutMode::Update(first.clone().into())).await?;
    if !is_rejected(put("4", PutMode::Update(first.into())).await)? {
        return ignored("is unchanged");
    }
    let read = client.get(path).await?.bytes().await?;
    Ok((read != "3").then(|| "it does not return what was written last".to_owned()))
}

fn is_rejected(put: Result<PutResult, Error>) -> Result<bool, Error> {
    match put {
        Ok(_) => Ok(false),
        Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}
