//! Where the checks work: a folder of a bucket for this run only.

use std::sync::Arc;

use anyhow::Context;
use fence::Holder;
use futures_util::{StreamExt, TryStreamExt};
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutResult, path::Path};

use super::wire::Wire;
use crate::bucket::Bucket;

pub(super) struct Site {
    bucket: Bucket,
    pub(super) folder: Path,
    pub(super) store: Arc<dyn ObjectStore>,
    /// What `store` sends and receives.
    pub(super) wire: Wire,
}

impl Site {
    /// Opens the bucket.
    ///
    /// # Errors
    /// If it can't be listed.
    pub(super) async fn open(url: &str) -> anyhow::Result<Self> {
        let bucket = Bucket::from_url(url)?;
        let run = Holder::random().as_str()[..8].to_owned();
        let folder = bucket.folder().clone().join(format!("fenced_doctor_{run}"));
        let wire = Wire::default();
        let store = bucket.client_through(wire.clone(), 0)?;
        store.list_with_delimiter(Some(&folder)).await.context("can't list the bucket")?;
        Ok(Self { bucket, folder, store, wire })
    }

    /// Returns the name by which the store calls itself, and its address.
    pub(super) fn name(&self) -> String {
        match (self.wire.server(), self.bucket.endpoint()) {
            (Some(server), Some(address)) => format!("{server} at {address}"),
            (Some(server), None) => server,
            (None, address) => address.unwrap_or("S3").to_owned(),
        }
    }

    pub(super) fn path(&self, name: &str) -> Path {
        self.folder.clone().join(name)
    }

    /// Makes a client with connections of its own, which repeats no request by itself.
    pub(super) fn another_client(&self) -> anyhow::Result<Arc<dyn ObjectStore>> {
        self.bucket.client(0)
    }

    /// Makes a client that repeats a request once.
    pub(super) fn repeating_client(&self, wire: &Wire) -> anyhow::Result<Arc<dyn ObjectStore>> {
        self.bucket.client_through(wire.clone(), 1)
    }

    pub(super) async fn read(&self, path: &Path) -> anyhow::Result<String> {
        let bytes = self.store.get(path).await?.bytes().await?;
        Ok(String::from_utf8(bytes.to_vec())?)
    }

    /// Removes all objects of this run.
    pub(super) async fn clear(&self) -> anyhow::Result<()> {
        let objects = self.store.list(Some(&self.folder)).map_ok(|object| object.location).boxed();
        let deleted = self.store.delete_stream(objects).try_collect::<Vec<_>>().await;
        deleted.with_context(|| format!("can't delete the objects in {}", self.folder))?;
        Ok(())
    }
}

pub(super) async fn put(
    store: &dyn ObjectStore,
    path: &Path,
    content: &str,
    mode: PutMode,
) -> Result<PutResult, Error> {
    store.put_opts(path, content.to_owned().into(), mode.into()).await
}

/// Whether an error says that a condition does not hold.
pub(super) fn is_rejection(error: &Error) -> bool {
    matches!(error, Error::Precondition { .. } | Error::AlreadyExists { .. })
}
