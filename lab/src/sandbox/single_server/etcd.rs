//! An etcd of one member.

use async_trait::async_trait;
use lock_client::{Locks, etcd};
use testbed::{Etcd, Proxy, proxy::Upstream};

use super::{super::lock_service::ANSWER_WITHIN, Server};
use crate::{client::setup::LockSetup, record::Actor};

#[async_trait(?Send)]
impl Server for Etcd {
    const ACTOR: Actor = Actor::Etcd;
    const NAME: &str = "etcd";

    async fn start() -> anyhow::Result<Self> {
        Self::start().await
    }

    fn upstream(&self) -> Upstream {
        self.address(0).into()
    }

    fn setup(&self, way: &Proxy) -> LockSetup {
        LockSetup::Etcd(way.url("etcd"))
    }

    fn locks(&self) -> anyhow::Result<Locks> {
        Ok(Locks::new(etcd::Etcd::open(&self.url())?.answer_within(ANSWER_WITHIN)))
    }

    async fn kill(&mut self) -> anyhow::Result<()> {
        self.process(0).kill()
    }

    async fn start_again(&mut self) -> anyhow::Result<u64> {
        self.restart().await?;
        let keys = self.etcdctl(&["get", "", "--prefix", "--keys-only"]).await?;
        Ok(keys.lines().filter(|line| !line.is_empty()).count().try_into()?)
    }

    async fn start_empty(&mut self) -> anyhow::Result<()> {
        self.restart_empty().await
    }
}
