//! The ways in which a token is checked on object storage at first.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use anyhow::Context;
use async_trait::async_trait;
use fence::ResourceName;
use object_store::{
    Attribute, Attributes, Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion,
    path::Path,
};
use tokio::time::sleep;

use crate::hammer::{
    client::{PAUSE_IN_TRANSACTION_MS, pause},
    database::{Attempt, Connection, Offer, Seen, Variant, Written},
};

/// A client that checks tokens in one of the wrong ways.
///
/// The content of an object is its version and the increments, and the token unless that is in the
/// metadata. Only writes make a version.
pub(super) struct WrongWay {
    store: Arc<dyn ObjectStore>,
    folder: Path,
    variant: Variant,
    /// The objects as they were when this client claimed them or wrote to them.
    held: HashMap<ResourceName, Object>,
}

#[derive(Clone, Debug)]
struct Object {
    version: u64,
    increments: u64,
    token: u64,
    condition: UpdateVersion,
}

const TOKEN: Attribute = Attribute::Metadata(Cow::Borrowed("token"));

impl WrongWay {
    pub(super) fn new(store: Arc<dyn ObjectStore>, folder: Path, variant: Variant) -> Self {
        Self { store, folder, variant, held: HashMap::new() }
    }

    pub(super) async fn prepare(&self, resources: &[ResourceName]) -> anyhow::Result<()> {
        let condition = UpdateVersion { e_tag: None, version: None };
        let empty = Object { version: 0, increments: 0, token: 0, condition };
        for resource in resources {
            self.put(resource, &empty, PutMode::Create).await?;
        }
        Ok(())
    }

    pub(super) async fn increments(&self, resource: &ResourceName) -> anyhow::Result<u64> {
        Ok(self.get(resource).await?.increments)
    }

    fn path(&self, resource: &ResourceName) -> Path {
        self.folder.clone().join(resource.as_str())
    }

    async fn get(&self, resource: &ResourceName) -> anyhow::Result<Object> {
        let answer = self.store.get(&self.path(resource)).await?;
        let in_metadata = answer.attributes.get(&TOKEN).map(|token| token.to_string());
        let condition = UpdateVersion {
            e_tag: answer.meta.e_tag.clone(),
            version: answer.meta.version.clone(),
        };
        let content = String::from_utf8(answer.bytes().await?.to_vec())?;
        let mut numbers = content.split(' ').map(str::parse);
        let mut number = || anyhow::Ok(numbers.next().context("an object is truncated")??);
        let (version, increments) = (number()?, number()?);
        let token = match in_metadata {
            Some(token) => token.parse()?,
            None => number()?,
        };
        Ok(Object { version, increments, token, condition })
    }

    async fn put(
        &self,
        resource: &ResourceName,
        object: &Object,
        mode: PutMode,
    ) -> Result<UpdateVersion, Error> {
        let Object { version, increments, token, .. } = object;
        let mut attributes = Attributes::new();
        let content = match self.variant {
            Variant::Metadata => {
                attributes.insert(TOKEN, token.to_string().into());
                format!("{version} {increments}")
            }
            _ => format!("{version} {increments} {token}"),
        };
        let options = PutOptions { mode, attributes, ..PutOptions::default() };
        Ok(self.store.put_opts(&self.path(resource), content.into(), options).await?.into())
    }

    /// Replaces an object in the way of the variant.
    async fn replace(
        &mut self,
        resource: &ResourceName,
        mut object: Object,
    ) -> anyhow::Result<Attempt<Object>> {
        let mode = match self.variant {
            // It looks like a compare-and-set on the token.
            Variant::Metadata => PutMode::Update(object.condition.clone()),
            _ => PutMode::Overwrite,
        };
        match self.put(resource, &object, mode).await {
            Ok(condition) => {
                object.condition = condition;
                self.held.insert(resource.clone(), object.clone());
                Ok(Attempt::Committed(object))
            }
            Err(Error::Precondition { .. } | Error::AlreadyExists { .. }) => Ok(Attempt::TryAgain),
            Err(error) => Err(error.into()),
        }
    }
}

#[async_trait]
impl Connection for WrongWay {
    async fn read(&mut self, Offer { resource, fence }: &Offer) -> anyhow::Result<Attempt<Seen>> {
        let token = fence.token.as_u64();
        let object = self.get(resource).await?;
        if object.token > token {
            return Ok(Attempt::Rejected);
        }
        let claimed = self.replace(resource, Object { token, ..object }).await?;
        Ok(claimed.map(|object| Seen { state: object.version, increments: object.increments }))
    }

    async fn write(
        &mut self,
        Offer { resource, fence }: &Offer,
        increments: u64,
    ) -> anyhow::Result<Attempt<Written>> {
        let token = fence.token.as_u64();
        let held = match self.variant {
            // Its ETag is to prove that nobody has claimed since.
            Variant::Metadata => self.held[resource].clone(),
            _ => {
                let object = self.get(resource).await?;
                if object.token > token {
                    return Ok(Attempt::Rejected);
                }
                sleep(pause(PAUSE_IN_TRANSACTION_MS)).await;
                object
            }
        };
        let next = Object { version: held.version + 1, increments, token, ..held };
        let written = self.replace(resource, next).await?;
        Ok(written.map(|object| Written { state: object.version, replaced: 0 }))
    }
}
