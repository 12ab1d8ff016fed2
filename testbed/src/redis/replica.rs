//! A replica that can be cut off from its primary.

use std::time::Duration;

use anyhow::Context;

use super::{listener::Door, server::Redis};
use crate::{proxy::Proxy, wait::until_async};

const SYNC_TIMEOUT: Duration = Duration::from_secs(30);

/// A replica on a free port of 127.0.0.1. It reaches its primary through a [`Proxy`].
#[derive(Debug)]
pub struct Replica {
    redis: Redis,
    proxy: Proxy,
}

impl Redis {
    /// Starts a replica of a primary, and waits until it has all data of the primary.
    ///
    /// # Errors
    /// If `redis-server` isn't installed or doesn't start, or the replica doesn't reach the
    /// primary.
    pub async fn replica_of(primary: &Self) -> anyhow::Result<Replica> {
        let proxy = Proxy::start(primary.socket()).await?;
        let port = proxy.address().port().to_string();
        let mut arguments = vec!["--replicaof", "127.0.0.1", &port];
        // The primary sees the address of the proxy only.
        arguments.extend(["--replica-announce-ip", "127.0.0.1"]);
        if let Some(password) = &primary.password {
            arguments.extend(["--masterauth", password, "--requirepass", password]);
        }
        let redis = Self::start_at(Door::Tcp, &arguments).await?;
        let replica = Replica { redis, proxy };
        replica.catch_up(primary).await?;
        Ok(replica)
    }
}

impl Replica {
    /// Returns the Redis that is the replica.
    pub fn redis(&self) -> &Redis {
        &self.redis
    }

    /// Returns the Redis that is the replica, to pause, kill or restart it.
    pub fn redis_mut(&mut self) -> &mut Redis {
        &mut self.redis
    }

    /// Returns the proxy between it and its primary.
    pub fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    /// Cuts the replica off from its primary. Clients still reach both.
    pub fn cut(&self) {
        self.proxy.cut();
    }

    /// Makes it a primary, as a failover does. After a restart it is a replica again.
    ///
    /// # Errors
    /// If the server does not do it.
    pub async fn promote(&self) -> anyhow::Result<()> {
        self.redis.command(&["REPLICAOF", "NO", "ONE"]).await
    }

    /// Waits until it has all data that its primary has now.
    ///
    /// # Errors
    /// If it hasn't within half a minute.
    pub async fn catch_up(&self, primary: &Redis) -> anyhow::Result<()> {
        catch_up(&self.redis, primary).await
    }
}

/// Waits until a replica has all data that its primary has now.
pub(super) async fn catch_up(replica: &Redis, primary: &Redis) -> anyhow::Result<()> {
    let offset: u64 = primary.info("master_repl_offset").await?.parse()?;
    until_async(SYNC_TIMEOUT, async || {
        // Before its first synchronisation, its offset belongs to no replication.
        let is_up = replica.info("master_link_status").await? == "up";
        Ok(is_up && replica.info("slave_repl_offset").await?.parse::<u64>()? >= offset)
    })
    .await
    .context("the replica did not catch up with its primary")
}
