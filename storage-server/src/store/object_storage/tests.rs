//! A server's store over object storage in memory, whose requests can fail.

mod flawed;
mod limits;
mod lost_registers;
mod outcomes;
mod values;

use std::sync::Arc;

use fence::{Fence, ResourceName, Token};
use object_store::path::Path;

use self::flawed::Flawed;
use super::*;
use crate::{
    committer::{Committer, job::Unavailable, queue::Queue},
    config::Enforcement,
    metrics::Metrics,
    operation::{Action, Content, Decided, Operation},
    store::WantedValue,
};

/// A server's store and its committer.
struct World {
    flawed: Flawed,
    store: Arc<ObjectStorage>,
    queue: Queue,
    _committer: Committer,
}

impl World {
    fn new() -> Self {
        Self::on(&Flawed::default())
    }

    /// A server on objects that are there.
    fn on(flawed: &Flawed) -> Self {
        let client = Arc::new(flawed.clone());
        let bucket = Bucket {
            address: "flawed".to_owned(),
            client: client.clone(),
            writer: client,
            folder: Path::from("folder"),
        };
        let store = Arc::new(ObjectStorage::new(bucket));
        let commits = Metrics::default().commits.clone();
        let (queue, committer) = Committer::start(store.clone(), Enforcement::Enforce, commits);
        Self { flawed: flawed.clone(), store, queue, _committer: committer }
    }

    async fn submit(
        &self,
        resource: &str,
        token: u64,
        action: Action,
    ) -> Result<Decided, Unavailable> {
        let fence = Fence { token: Token::new(token).unwrap(), holder: Default::default() };
        let (resource, offered) = (name(resource), Some(fence));
        let ceiling = Token::MAX;
        self.queue.submit(Operation { resource, offered, ceiling, numbered: None, action }).await
    }

    async fn write(&self, resource: &str, token: u64, value: &str) -> Result<Decided, Unavailable> {
        let content = Content { content_type: String::new(), bytes: value.to_owned().into() };
        let condition = Default::default();
        self.submit(resource, token, Action::Write { content, condition }).await
    }

    /// Reads without a claim, as much as the largest answer may have.
    async fn read(&self, resource: &str) -> Result<Row, ReadError> {
        let resource = &name(resource);
        self.store.read(Wanted { resource, value: WantedValue::AtMost(usize::MAX) }).await
    }
}

fn name(resource: &str) -> ResourceName {
    resource.parse().unwrap()
}

/// The register of a resource.
fn register(resource: &str) -> Path {
    Path::from(format!("folder/{resource}/fence.register"))
}
