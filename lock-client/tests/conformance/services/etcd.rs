//! etcd.

use lock_client::{
    Ttl,
    conformance::{Failure, Subject},
    etcd,
};
use testbed::Etcd;

use super::PATIENCE;
use crate::lock_service::ttl;

/// An etcd of one member, or of three.
pub(crate) struct EtcdMembers(Etcd, usize);

impl EtcdMembers {
    pub(crate) async fn start_one() -> Self {
        Self(Etcd::start().await.unwrap(), 1)
    }

    pub(crate) async fn start_three() -> Self {
        Self(Etcd::start_cluster().await.unwrap(), 3)
    }
}

impl Subject for EtcdMembers {
    type Backend = etcd::Etcd;
    const IS_FAIR: bool = true;

    fn connect(&self) -> etcd::Etcd {
        etcd::Etcd::open(&self.0.url()).unwrap().answer_within(PATIENCE)
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
