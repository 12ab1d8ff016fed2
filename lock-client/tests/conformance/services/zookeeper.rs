//! ZooKeeper.

use lock_client::{
    Ttl,
    conformance::{Failure, Subject},
    zookeeper,
};
use testbed::ZooKeeper;

use super::PATIENCE;
use crate::lock_service::ttl;

/// A ZooKeeper of one member, or of three.
pub(crate) struct ZooKeeperMembers(ZooKeeper, usize);

impl ZooKeeperMembers {
    pub(crate) async fn start_one() -> Self {
        Self(ZooKeeper::start().await.unwrap(), 1)
    }

    pub(crate) async fn start_three() -> Self {
        Self(ZooKeeper::start_cluster().await.unwrap(), 3)
    }
}

impl Subject for ZooKeeperMembers {
    type Backend = zookeeper::ZooKeeper;
    const IS_FAIR: bool = true;

    fn connect(&self) -> zookeeper::ZooKeeper {
        zookeeper::ZooKeeper::open(&self.0.url()).unwrap().answer_within(PATIENCE)
    }

    fn shortest_ttl(&self) -> Ttl {
        ttl(1_000)
    }

    async fn pause(&mut self) -> Result<(), Failure> {
        for number in 0..self.1 {
            self.0.process(number).pause().await?;
        }
        Ok(())
    }

    async fn resume(&mut self) -> Result<(), Failure> {
        for number in 0..self.1 {
            self.0.process(number).resume()?;
        }
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), Failure> {
        for number in 0..self.1 {
            self.0.process(number).kill()?;
        }
        Ok(())
    }

    async fn start(&mut self) -> Result<(), Failure> {
        Ok(self.0.restart().await?)
    }
}
