//! Redis in its four kinds.

use std::time::Duration;

use lock_client::{
    Ttl,
    conformance::{Failure, Subject},
    redis::Redis as Backend,
    redlock::Redlock,
};
use testbed::{NodeKind, Redis, RedisCluster, RedlockNodes, Sentinels};

use super::PATIENCE;
use crate::{lock_service::ttl, start_cluster::start_cluster};

const SHORTEST: u64 = 100;

/// Keeps what it has acknowledged.
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

pub(crate) struct OneRedis(Redis);

impl OneRedis {
    pub(crate) async fn start() -> Self {
        Self(Redis::start_with(&DURABLE).await.unwrap())
    }
}

impl Subject for OneRedis {
    type Backend = Backend;
    const IS_FAIR: bool = true;

    fn connect(&self) -> Backend {
        Backend::open(&self.0.url()).unwrap().answer_within(PATIENCE)
    }

    fn shortest_ttl(&self) -> Ttl {
        ttl(SHORTEST)
    }

    async fn pause(&mut self) -> Result<(), Failure> {
        Ok(self.0.process().pause().await?)
    }

    async fn resume(&mut self) -> Result<(), Failure> {
        Ok(self.0.process().resume()?)
    }

    async fn stop(&mut self) -> Result<(), Failure> {
        Ok(self.0.process().kill()?)
    }

    async fn start(&mut self) -> Result<(), Failure> {
        Ok(self.0.restart().await?)
    }
}

/// The primary that Sentinels name.
pub(crate) struct Primary(Sentinels);

impl Primary {
    pub(crate) async fn start() -> Self {
        Self(Sentinels::start().await.unwrap())
    }

    /// They would promote the replica.
    async fn pause_sentinels(&mut self) -> Result<(), Failure> {
        for sentinel in self.0.sentinels() {
            sentinel.process().pause().await?;
        }
        Ok(())
    }

    fn resume_sentinels(&mut self) -> Result<(), Failure> {
        for sentinel in self.0.sentinels() {
            sentinel.process().resume()?;
        }
        Ok(())
    }
}

impl Subject for Primary {
    type Backend = Backend;
    const IS_FAIR: bool = true;

    fn connect(&self) -> Backend {
        Backend::open(&self.0.url()).unwrap().answer_within(PATIENCE)
    }

    fn shortest_ttl(&self) -> Ttl {
        ttl(SHORTEST)
    }

    async fn pause(&mut self) -> Result<(), Failure> {
        self.pause_sentinels().await?;
        Ok(self.0.primary().process().pause().await?)
    }

    async fn resume(&mut self) -> Result<(), Failure> {
        self.0.primary().process().resume()?;
        self.resume_sentinels()
    }

    async fn stop(&mut self) -> Result<(), Failure> {
        self.pause_sentinels().await?;
        Ok(self.0.primary().process().kill()?)
    }

    async fn start(&mut self) -> Result<(), Failure> {
        self.0.primary().restart().await?;
        self.resume_sentinels()
    }
}

pub(crate) struct Cluster(RedisCluster);

impl Cluster {
    pub(crate) async fn start() -> Self {
        Self(RedisCluster::start().await.unwrap())
    }
}

impl Subject for Cluster {
    type Backend = Backend;
    const IS_FAIR: bool = true;

    fn connect(&self) -> Backend {
        Backend::open(&self.0.url()).unwrap().answer_within(PATIENCE)
    }

    fn shortest_ttl(&self) -> Ttl {
        ttl(SHORTEST)
    }

    async fn pause(&mut self) -> Result<(), Failure> {
        for node in self.0.nodes() {
            node.process().pause().await?;
        }
        Ok(())
    }

    async fn resume(&mut self) -> Result<(), Failure> {
        for node in self.0.nodes() {
            node.process().resume()?;
        }
        Ok(self.0.ready().await?)
    }

    async fn stop(&mut self) -> Result<(), Failure> {
        for node in self.0.nodes() {
            node.process().kill()?;
        }
        Ok(())
    }

    async fn start(&mut self) -> Result<(), Failure> {
        for node in self.0.nodes() {
            node.restart().await?;
        }
        Ok(self.0.ready().await?)
    }
}

/// Three Redlock nodes.
pub(crate) struct Nodes(RedlockNodes);

/// A majority of the nodes.
const MAJORITY: std::ops::Range<usize> = 0..2;

impl Nodes {
    pub(crate) async fn start() -> Self {
        let nodes = RedlockNodes::start(&[NodeKind::FORGETFUL; 3]).await.unwrap();
        start_cluster(&nodes, Duration::from_secs(600)).await;
        Self(nodes)
    }
}

impl Subject for Nodes {
    type Backend = Redlock;
    const IS_FAIR: bool = false;
    const UNDOES_BY_ITSELF: bool = true;

    fn connect(&self) -> Redlock {
        Redlock::open(self.0.urls()).unwrap().answer_within(PATIENCE)
    }

    fn shortest_ttl(&self) -> Ttl {
        ttl(500)
    }

    async fn pause(&mut self) -> Result<(), Failure> {
        for node in &mut self.0.nodes_mut()[MAJORITY] {
            node.process().pause().await?;
        }
        Ok(())
    }

    async fn resume(&mut self) -> Result<(), Failure> {
        for node in &mut self.0.nodes_mut()[MAJORITY] {
            node.process().resume()?;
        }
        Ok(())
    }

    /// Nodes that restart have no vote, and without a majority nobody admits them. So the majority is
    /// paused.
    async fn stop(&mut self) -> Result<(), Failure> {
        self.pause().await
    }

    async fn start(&mut self) -> Result<(), Failure> {
        self.resume().await
    }
}
