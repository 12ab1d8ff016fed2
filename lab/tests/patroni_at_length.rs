//! Storage servers under the hammer while their PostgreSQL fails over. `make at-length` runs these tests.

use std::time::{Duration, Instant};

use fence::{Fence, Holder, Token};
use lock_client::storage::Storage;
use serde_json::Value;
use sqlx::{Connection, PgConnection, query_scalar};
use testbed::{
    Patroni, StorageServer,
    patroni::{Link, Replication},
    wait::until_async,
};
use tokio::join;

use crate::{
    hammer::{VIOLATIONS, run, violations},
    storage_server,
};

const ALL: [usize; 3] = [0, 1, 2];
const PATIENCE: Duration = Duration::from_secs(120);
/// How soon after a promotion writes must go through again.
const AFTER_PROMOTION: Duration = Duration::from_secs(30);

/// A cluster, and two storage servers that follow its primary.
struct World {
    cluster: Patroni,
    servers: [StorageServer; 2],
}

impl World {
    async fn start(replication: Replication, arguments: &[&str]) -> Self {
        let cluster = Patroni::start(replication).await.unwrap();
        let url = cluster.url_of_the_primary();
        let serve = async || StorageServer::start_on(&storage_server(), &url, arguments).await;
        let servers = [serve().await.unwrap(), serve().await.unwrap()];
        Self { cluster, servers }
    }

    /// Hammers at both servers while something happens to the primary, and returns the exit code and the
    /// figures.
    async fn hammer(
        &mut self,
        seconds: &str,
        faults: impl AsyncFnOnce(&mut Self),
    ) -> (Option<i32>, Value) {
        let urls = self.servers.each_ref().map(StorageServer::url).join(",");
        let hammering = async {
            let arguments = ["--seconds", seconds, "--clients", "6"];
            (run(&urls, &arguments).await, Instant::now())
        };
        let (((code, stdout, stderr), hammered), done) = join!(hammering, async {
            self.until_hammered(0).await;
            faults(self).await;
            Instant::now()
        });
        assert!(done < hammered, "the hammer ended first: {stdout}{stderr}");
        let report: Value = serde_json::from_str(&stdout).expect(&stderr);
        (code, report["figures"].clone())
    }

    async fn primary(&self) -> usize {
        self.cluster.primary_among(&ALL).await.unwrap()
    }

    /// Waits until another member is the primary, and both servers write again.
    async fn fail_over(&self, from: usize) {
        let others: Vec<_> = ALL.into_iter().filter(|&member| member != from).collect();
        self.cluster.primary_among(&others).await.unwrap();
        self.writes_within(AFTER_PROMOTION).await;
    }

    async fn writes_within(&self, within: Duration) {
        for server in &self.servers {
            let storage = Storage::new(server.url()).unwrap();
            let (resource, token) = ("r".parse().unwrap(), Token::new(1).unwrap());
            let fence = Fence { token, holder: Holder::EMPTY };
            let is_written =
                async || Ok(storage.write(&resource, &fence, "text/plain", "x").await.is_ok());
            until_async(within, is_written).await.unwrap();
        }
    }

    /// Waits until the hammer has written more than this often, and returns how often.
    async fn until_hammered(&self, more_than: i64) -> i64 {
        let url = self.cluster.socket_url(self.primary().await);
        let written = async || {
            let mut database = PgConnection::connect(&url).await?;
            let count = "select coalesce(sum(version), 0)::bigint from storage.resource
                where resource like 'hammer/%'";
            anyhow::Ok(query_scalar::<_, i64>(count).fetch_one(&mut database).await?)
        };
        until_async(PATIENCE, async || Ok(written().await? > more_than)).await.unwrap();
        written().await.unwrap()
    }
}

#[tokio::test]
async fn no_write_is_lost_while_primaries_are_killed_stopped_cut_off_and_restarted() {
    let required = ["--require-sync-standby", "1"];
    let mut world = World::start(Replication::StrictlySynchronous, &required).await;
    let (code, figures) = world
        .hammer("150", async |world| {
            // Killed.
            let first = world.primary().await;
            world.cluster.kill(first).await.unwrap();
            world.fail_over(first).await;
            world.cluster.launch_again(first).unwrap();
            world.cluster.in_step(2).await.unwrap();

            // Stopped.
            let second = world.primary().await;
            world.cluster.pause(second).await.unwrap();
            world.fail_over(second).await;
            world.cluster.resume(second).unwrap();
            world.cluster.in_step(2).await.unwrap();

            // Cut off, while it has no Patroni that makes it a standby. A Patroni before version 3.0.3 that is
            // paused takes the lock back when it is resumed: then acknowledged writes are lost (patroni#2689).
            let third = world.primary().await;
            world.cluster.agent(third).unwrap().kill().unwrap();
            let links = [Link::Etcd, Link::Members, Link::Clients];
            links.iter().for_each(|link| world.cluster.cut(third, *link));
            world.fail_over(third).await;
            links.iter().for_each(|link| world.cluster.mend(third, *link));
            world.cluster.launch_again(third).unwrap();
            world.cluster.in_step(2).await.unwrap();

            // Restarted.
            let fourth = world.primary().await;
            world.cluster.kill(fourth).await.unwrap();
            world.cluster.launch_again(fourth).unwrap();
            world.primary().await;
            world.writes_within(PATIENCE).await;
        })
        .await;
    assert_eq!(code, Some(0), "{figures:#}");
    let figures = figures.as_array().unwrap();
    for kind in VIOLATIONS {
        assert_eq!(violations(figures, kind), 0, "{kind}: {figures:?}");
    }
    assert!(violations(figures, "writes") > 100, "{figures:?}");
}

/// The negative control: what the primary alone has acknowledged is lost, and the hammer finds that.
#[tokio::test]
async fn hammer_finds_what_an_asynchronous_failover_loses() {
    let mut world = World::start(Replication::Asynchronous, &[]).await;
    let (code, figures) = world
        .hammer("60", async |world| {
            let first = world.primary().await;
            world.cluster.cut(first, Link::Members);
            let written = world.until_hammered(0).await;
            world.until_hammered(written + 10).await;
            world.cluster.kill(first).await.unwrap();
            world.fail_over(first).await;
            world.until_hammered(written + 10).await;
        })
        .await;
    assert_eq!(code, Some(1), "{figures:#}");
    assert!(violations(figures.as_array().unwrap(), "forked_writes") > 0, "{figures:#}");
}
