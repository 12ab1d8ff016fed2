//! Object storage under the hammer.

mod wrong_ways;

use std::{collections::HashMap, sync::Arc};

use anyhow::{Context, ensure};
use async_trait::async_trait;
use fence::{
    ResourceName,
    object_store::{Content, Failure, Outcome, Register, RegisterError, Registers},
};
use futures_util::{StreamExt, TryStreamExt};
use object_store::{ObjectStore, RetryConfig, path::Path};

use self::wrong_ways::WrongWay;
use super::{
    database::{Attempt, Connection, Database, Offer, Seen, Variant, Written},
    history::Order,
};
use crate::bucket::Bucket;

/// A folder of a bucket for this run only. Values are increments.
pub(super) struct ObjectStorage {
    store: Arc<dyn ObjectStore>,
    /// Repeats no request by itself.
    writer: Arc<dyn ObjectStore>,
    folder: Path,
    variant: Option<Variant>,
}

impl ObjectStorage {
    pub(super) async fn open(
        url: &str,
        run: &str,
        variant: Option<Variant>,
    ) -> anyhow::Result<Self> {
        ensure!(
            variant.is_none_or(Variant::is_for_object_storage),
            "the variants for object storage are 'metadata' and 'head-then-put'"
        );
        let bucket = Bucket::from_url(url)?;
        let store = bucket.client(RetryConfig::default().max_retries)?;
        let folder = bucket.folder().clone().join(format!("fenced_hammer_{run}"));
        store.list_with_delimiter(Some(&folder)).await.context("can't list the bucket")?;
        Ok(Self { store, writer: bucket.client(0)?, folder, variant })
    }

    fn registers(&self) -> Registers {
        Registers::new(self.store.clone(), self.folder.clone()).with_writer(self.writer.clone())
    }

    fn wrong_way(&self, variant: Variant) -> WrongWay {
        WrongWay::new(self.store.clone(), self.folder.clone(), variant)
    }
}

#[async_trait]
impl Database for ObjectStorage {
    fn isolation_levels(&self) -> &'static [&'static str] {
        &["an object at a time"]
    }

    /// Object storage reports no replaced state.
    fn order(&self) -> Order {
        Order::Versions
    }

    async fn prepare(&self, resources: &[ResourceName]) -> anyhow::Result<()> {
        if let Some(variant) = self.variant {
            self.wrong_way(variant).prepare(resources).await?;
        }
        Ok(())
    }

    async fn connect(&self, _isolation: &str) -> anyhow::Result<Box<dyn Connection>> {
        Ok(match self.variant {
            None => {
                let (registers, kept) = (self.registers(), HashMap::new());
                Box::new(FencedClient { registers, kept })
            }
            Some(variant) => Box::new(self.wrong_way(variant)),
        })
    }

    async fn increments(&self, resource: &ResourceName) -> anyhow::Result<u64> {
        match self.variant {
            None => increments(&self.registers().register(resource).read().await?),
            Some(variant) => self.wrong_way(variant).increments(resource).await,
        }
    }

    async fn clear(&self, _resources: &[ResourceName]) -> anyhow::Result<()> {
        let objects = self.store.list(Some(&self.folder)).map_ok(|object| object.location).boxed();
        let deleted = self.store.delete_stream(objects).try_collect::<Vec<_>>().await;
        deleted.with_context(|| format!("can't delete the objects in {}", self.folder))?;
        Ok(())
    }
}

/// A client that keeps its handles, as a client does that holds a lock for longer.
struct FencedClient {
    registers: Registers,
    kept: HashMap<ResourceName, Register>,
}

#[async_trait]
impl Connection for FencedClient {
    async fn read(&mut self, offer: &Offer) -> anyhow::Result<Attempt<Seen>> {
        let claim = self.register(&offer.resource).claim(&offer.fence).await;
        Ok(match attempt(claim)? {
            Attempt::Committed(content) => {
                let increments = increments(&content)?;
                Attempt::Committed(Seen { state: content.version, increments })
            }
            Attempt::Rejected => Attempt::Rejected,
            // A claim writes nothing that counts.
            Attempt::TryAgain | Attempt::Unknown => Attempt::TryAgain,
            Attempt::Lost => Attempt::Lost,
        })
    }

    async fn write(&mut self, offer: &Offer, increments: u64) -> anyhow::Result<Attempt<Written>> {
        let value = increments.to_string().into();
        let write = self.register(&offer.resource).write(&offer.fence, value).await;
        Ok(attempt(write)?.map(|content| Written { state: content.version, replaced: 0 }))
    }
}

impl FencedClient {
    fn register(&mut self, resource: &ResourceName) -> &mut Register {
        let registers = &self.registers;
        self.kept.entry(resource.clone()).or_insert_with(|| registers.register(resource))
    }
}

fn attempt(outcome: Result<Outcome<Content>, RegisterError>) -> anyhow::Result<Attempt<Content>> {
    Ok(match outcome {
        Ok(Outcome::Applied(content)) => Attempt::Committed(content),
        Ok(Outcome::Rejected(_)) => Attempt::Rejected,
        Ok(Outcome::Unknown(_)) => Attempt::Unknown,
        Err(RegisterError::Contended { .. }) => Attempt::TryAgain,
        // Some stores take one write a second for each key. It has changed nothing.
        Err(RegisterError::Store { source, .. }) if Failure::from_error(&source).is_throttled() => {
            Attempt::TryAgain
        }
        Err(RegisterError::Lost { .. }) => Attempt::Lost,
        Err(error) => return Err(error.into()),
    })
}

fn increments(content: &Content) -> anyhow::Result<u64> {
    let Some(value) = &content.value else {
        return Ok(0);
    };
    str::from_utf8(value)?.parse().context("a value is not a number")
}
