//! A primary and its replica under three Sentinels.

use std::{collections::HashMap, fs, time::Duration};

use anyhow::Context;

use super::{
    launch::SENTINEL_SETTINGS,
    listener::Door,
    replica::catch_up,
    server::{Redis, new_folder},
};
use crate::wait::until_async;

/// The name of the primary at the Sentinels.
const NAME: &str = "locks";
const READY_TIMEOUT: Duration = Duration::from_secs(30);
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(60);

/// Three Sentinels that watch a primary and its replica, all on free ports of 127.0.0.1. When two
/// of them have not reached the primary for half a second, they promote the replica.
#[derive(Debug)]
pub struct Sentinels {
    sentinels: Vec<Redis>,
    primary: Redis,
    replica: Redis,
}

impl Sentinels {
    /// Starts all five, and waits until each Sentinel knows the others, the primary and the
    /// replica.
    ///
    /// # Errors
    /// If `redis-server` isn't installed or doesn't start, or they don't find each other.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_at(Door::Tcp, &[]).await
    }

    /// Starts all five with ports that take TLS only, and whose clients need a certificate. All have
    /// the certificate of the primary.
    ///
    /// # Errors
    /// If `redis-server` or `openssl` isn't installed, or `redis-server` doesn't start, or they
    /// don't find each other.
    pub async fn start_mutual_tls() -> anyhow::Result<Self> {
        Self::start_at(Door::MutualTls, &["--tls-replication", "yes"]).await
    }

    async fn start_at(door: Door, arguments: &[&str]) -> anyhow::Result<Self> {
        let primary = Redis::start_at(door, arguments).await?;
        let certificates = certificates(&primary);
        let certificates = certificates.iter().map(String::as_str);
        let arguments: Vec<_> = arguments.iter().copied().chain(certificates).collect();
        let port = port(&primary).to_string();
        // No proxy is between them: Sentinels would tell the replica the primary's own address.
        let replica = [&arguments[..], &["--replicaof", "127.0.0.1", &port]].concat();
        let replica = Redis::start_at(door, &replica).await?;
        catch_up(&replica, &primary).await?;
        let mut sentinels = Vec::new();
        for _ in 0..3 {
            sentinels.push(start_sentinel(&port, door, &arguments).await?);
        }
        for sentinel in &sentinels {
            until_async(READY_TIMEOUT, || is_ready(sentinel))
                .await
                .context("the Sentinels did not find each other and the replica")?;
        }
        Ok(Self { sentinels, primary, replica })
    }

    /// Returns the URL of the primary that the Sentinels name.
    pub fn url(&self) -> String {
        let addresses = self.sentinels.iter().filter_map(Redis::address);
        let addresses: Vec<_> = addresses.map(|address| address.to_string()).collect();
        let scheme = if self.primary.ca_file().is_some() { "rediss" } else { "redis" };
        format!("{scheme}+sentinel://{}/{NAME}", addresses.join(","))
    }

    /// Returns the Sentinels.
    pub fn sentinels(&mut self) -> &mut [Redis] {
        &mut self.sentinels
    }

    /// Returns the Redis that was the primary at the start. A failover follows when it is killed.
    pub fn primary(&mut self) -> &mut Redis {
        &mut self.primary
    }

    /// Returns the Redis that was the replica at the start.
    pub fn replica(&mut self) -> &mut Redis {
        &mut self.replica
    }

    /// Waits until all three Sentinels name the former replica as the primary, and it agrees.
    ///
    /// # Errors
    /// If they don't within a minute.
    pub async fn fail_over(&self) -> anyhow::Result<()> {
        let promoted = ("127.0.0.1".to_owned(), port(&self.replica));
        until_async(FAILOVER_TIMEOUT, async || {
            for sentinel in &self.sentinels {
                let get_address = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME];
                if sentinel.command::<(String, u16)>(&get_address).await? != promoted {
                    return Ok(false);
                }
            }
            Ok(self.replica.info("role").await? == "master")
        })
        .await
        .context("the Sentinels did not promote the replica")
    }
}

/// The arguments of a server that has the certificate of another, if that has one.
fn certificates(other: &Redis) -> Vec<String> {
    let (Some(authority), Some((certificate, key))) = (other.ca_file(), other.client_certificate())
    else {
        return Vec::new();
    };
    let files =
        [("tls-ca-cert-file", authority), ("tls-cert-file", certificate), ("tls-key-file", key)];
    let words = files.map(|(name, file)| [format!("--{name}"), file.display().to_string()]);
    words.concat()
}

async fn start_sentinel(
    primary_port: &str,
    door: Door,
    arguments: &[&str],
) -> anyhow::Result<Redis> {
    let folder = new_folder()?;
    let settings = format!(
        "sentinel monitor {NAME} 127.0.0.1 {primary_port} 2\n\
         sentinel down-after-milliseconds {NAME} 500\n\
         sentinel failover-timeout {NAME} 3000\n"
    );
    fs::write(folder.path().join(SENTINEL_SETTINGS), settings)?;
    Redis::start_in(folder, door, arguments).await
}

/// Whether a Sentinel knows enough to take part in a failover.
async fn is_ready(sentinel: &Redis) -> anyhow::Result<bool> {
    type Fields = HashMap<String, String>;
    let primary: Fields = sentinel.command(&["SENTINEL", "MASTER", NAME]).await?;
    let replicas: Vec<Fields> = sentinel.command(&["SENTINEL", "REPLICAS", NAME]).await?;
    let others: Vec<Fields> = sentinel.command(&["SENTINEL", "SENTINELS", NAME]).await?;
    let is = |fields: &Fields, name: &str, value: &str| {
        fields.get(name).is_some_and(|present| present == value)
    };
    Ok(is(&primary, "flags", "master")
        && replicas.len() == 1
        && is(&replicas[0], "flags", "slave")
        && is(&replicas[0], "master-link-status", "ok")
        && others.len() == 2
        && others.iter().all(|other| is(other, "flags", "sentinel")))
}

fn port(redis: &Redis) -> u16 {
    redis.address().expect("it has a port").port()
}
