//! A ZooKeeper of one member.

use async_trait::async_trait;
use lock_client::{Locks, zookeeper};
use testbed::{Proxy, ZooKeeper, proxy::Upstream};

use super::{super::lock_service::ANSWER_WITHIN, Server};
use crate::{client::setup::LockSetup, record::Actor};

#[async_trait(?Send)]
impl Server for ZooKeeper {
    const ACTOR: Actor = Actor::ZooKeeper;
    const NAME: &str = "ZooKeeper";

    async fn start() -> anyhow::Result<Self> {
        Self::start().await
    }

    fn upstream(&self) -> Upstream {
        self.address(0).into()
    }

    fn setup(&self, way: &Proxy) -> LockSetup {
        LockSetup::ZooKeeper(way.url("zookeeper"))
    }

    fn locks(&self) -> anyhow::Result<Locks> {
        Ok(Locks::new(zookeeper::ZooKeeper::open(&self.url())?.answer_within(ANSWER_WITHIN)))
    }

    async fn kill(&mut self) -> anyhow::Result<()> {
        self.process(0).kill()
    }

    async fn start_again(&mut self) -> anyhow::Result<u64> {
        self.restart().await?;
        self.nodes(0).await
    }

    async fn start_empty(&mut self) -> anyhow::Result<()> {
        self.restart_empty().await
    }
}
