//! A Redis Cluster.

use std::{ops::RangeInclusive, time::Duration};

use anyhow::Context;

use super::{Redis, listener::Door};
use crate::{program::temporary_folder, wait::until_async};

const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a node may say nothing to the others before they take it to have failed.
const NODE_TIMEOUT_MS: &str = "2000";
/// What each primary has of the 16 384 hash slots.
const SLOTS: [RangeInclusive<u16>; 3] = [0..=5460, 5461..=10922, 10923..=16383];

/// A Cluster of three primaries without replicas, on free ports of 127.0.0.1.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<Redis>,
}

impl RedisCluster {
    /// Starts the three, and waits until each says that the Cluster serves all slots.
    ///
    /// # Errors
    /// If `redis-server` isn't installed or doesn't start, or they don't come together.
    pub async fn start() -> anyhow::Result<Self> {
        let mut nodes = Vec::new();
        for (number, slots) in SLOTS.iter().enumerate() {
            let arguments = ["--cluster-node-timeout", NODE_TIMEOUT_MS];
            let node = Redis::start_in(temporary_folder()?, Door::ClusterNode, &arguments).await?;
            // Nodes with one epoch would first have to settle who is to have another.
            let epoch = (number + 1).to_string();
            node.command::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await?;
            let [first, last] = [slots.start(), slots.end()].map(u16::to_string);
            node.command::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]).await?;
            nodes.push(node);
        }
        for other in &nodes[1..] {
            let (port, bus) = other.listener.cluster_ports().context("it is a node")?;
            let [port, bus] = [port, bus].map(|port| port.to_string());
            nodes[0].command::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).await?;
        }
        let cluster = Self { nodes };
        cluster.ready().await?;
        Ok(cluster)
    }

    /// The nodes.
    pub fn nodes(&mut self) -> &mut [Redis] {
        &mut self.nodes
    }

    /// Its URL.
    pub fn url(&self) -> String {
        let addresses = self.nodes.iter().filter_map(Redis::address);
        let addresses: Vec<_> = addresses.map(|address| address.to_string()).collect();
        format!("redis+cluster://{}", addresses.join(","))
    }

    /// The number, from 0, of the node that a key's slot belongs to.
    ///
    /// # Errors
    /// If the first node doesn't answer.
    pub async fn node_of(&self, key: &str) -> anyhow::Result<usize> {
        let slot: u16 = self.nodes[0].command(&["CLUSTER", "KEYSLOT", key]).await?;
        SLOTS.iter().position(|slots| slots.contains(&slot)).context("there are 16 384 slots")
    }

    /// Waits until each node says that the Cluster serves all slots.
    ///
    /// # Errors
    /// If it doesn't within half a minute.
    pub async fn ready(&self) -> anyhow::Result<()> {
        for node in &self.nodes {
            until_async(READY_TIMEOUT, async || {
                let info: String = node.command(&["CLUSTER", "INFO"]).await?;
                let says = |line: &str| info.lines().any(|said| said == line);
                Ok(says("cluster_state:ok")
                    && says("cluster_known_nodes:3")
                    && says("cluster_slots_ok:16384"))
            })
            .await
            .context("the Cluster did not come to serve all slots")?;
        }
        Ok(())
    }
}
