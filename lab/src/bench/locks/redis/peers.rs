//! The lock clients that are measured on one Redis.

use std::slice;

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use testbed::Redis;

use super::{super::hold::RoundTrip, python::PythonRedis};
use crate::bench::peer::{Fenced, RsLock};

pub(super) struct Peers {
    pub(super) ping: MultiplexedConnection,
    pub(super) fenced: Fenced,
    /// Many clients, each with its own connections.
    pub(super) fenced_apart: Vec<Fenced>,
    pub(super) rslock: RsLock,
    pub(super) python: PythonRedis,
}

impl Peers {
    pub(super) async fn connect(redis: &Redis, clients_apart: usize) -> anyhow::Result<Self> {
        let url = redis.url();
        let apart = (0..clients_apart).map(|_| Fenced::open(&url));
        Ok(Self {
            // The same kind of connection as ours and rslock's.
            ping: testbed::redis::connect(&*url).await?,
            fenced: Fenced::open(&url)?,
            fenced_apart: apart.collect::<anyhow::Result<_>>()?,
            rslock: RsLock::open(slice::from_ref(&url))?,
            python: PythonRedis::start(&url)?,
        })
    }
}

#[async_trait]
impl RoundTrip for MultiplexedConnection {
    async fn round_trip(&self) -> anyhow::Result<()> {
        Ok(redis::cmd("PING").exec_async(&mut self.clone()).await?)
    }
}
