//! The table "Connections" of the README: how many a process has that holds locks, and one that waits.

use std::time::Duration;

use lock_client::{Locks, Terms, redis, redlock::Redlock, zookeeper};
use testbed::{
    Etcd, MariaDb, NodeKind, Postgres, Redis, RedisCluster, RedlockNodes, Sentinels, ZooKeeper,
    wait::until_async,
};
use tokio::{task::JoinSet, time::sleep};

use crate::{
    etcd::{connections::Forwarder, service::client as etcd_client},
    kept_connections::connections,
    lock_service::ttl,
    names::name,
    sql::servers::Server,
    start_cluster::start_cluster,
};

const SOON: Duration = Duration::from_secs(30);
const PATIENTLY: Duration = Duration::from_secs(5);

/// How many connections one process has.
struct Costs {
    holds: usize,
    /// After it has acquired another lock meanwhile.
    holds_several: usize,
    waits: usize,
    /// Each further waiter of the same client for the same lock.
    further_waiter: usize,
}

impl Costs {
    /// Acquires locks, and waits for one, with clients of their own. Neither number changes later.
    async fn assert(
        self,
        open: impl Fn() -> Locks,
        count: impl AsyncFn() -> anyhow::Result<usize>,
    ) {
        let Self { holds, holds_several, waits, further_waiter } = self;
        let before = count().await.unwrap();
        let stays = async |expected| {
            let is_reached = async || Ok(count().await? == before + expected);
            if until_async(SOON, is_reached).await.is_ok() {
                sleep(Duration::from_secs(3)).await;
            }
            assert_eq!(count().await.unwrap() - before, expected);
        };
        let ([holder, waiter], terms) = ([open(), open()], Terms::new(ttl(30_000)));
        let lease = holder.acquire(&name("r"), terms.no_wait()).await.unwrap();
        stays(holds).await;
        let other = holder.acquire(&name("other"), terms.no_wait()).await.unwrap();
        stays(holds_several).await;
        let mut waiters = JoinSet::new();
        for number in 0..2 {
            let waiter = waiter.clone();
            waiters.spawn(async move {
                waiter.acquire(&name("r"), terms).await.unwrap().release().await.unwrap();
            });
            stays(holds_several + waits + number * further_waiter).await;
        }
        lease.release().await.unwrap();
        while let Some(ended) = waiters.join_next().await {
            ended.unwrap();
        }
        other.release().await.unwrap();
    }
}

fn redis(url: &str) -> Locks {
    Locks::new(redis::Redis::open(url).unwrap().answer_within(PATIENTLY))
}

/// The number of connections to these servers.
async fn sum(servers: &[&Redis]) -> anyhow::Result<usize> {
    let mut sum = 0;
    for server in servers {
        sum += connections(server).await?.len();
    }
    Ok(sum)
}

#[tokio::test]
async fn connections_to_redis() {
    let server = Redis::start().await.unwrap();
    let costs = Costs { holds: 1, holds_several: 1, waits: 2, further_waiter: 0 };
    costs.assert(|| redis(&server.url()), async || sum(&[&server]).await).await;
}

#[tokio::test]
async fn connections_to_the_primary_behind_sentinels() {
    let mut world = Sentinels::start().await.unwrap();
    let url = world.url();
    let primary = &*world.primary();
    let costs = Costs { holds: 1, holds_several: 1, waits: 2, further_waiter: 0 };
    costs.assert(|| redis(&url), async || sum(&[primary]).await).await;
}

/// It has three primaries.
#[tokio::test]
async fn connections_to_a_cluster() {
    let mut cluster = RedisCluster::start().await.unwrap();
    let url = cluster.url();
    let nodes: Vec<&Redis> = cluster.nodes().iter().collect();
    let costs = Costs { holds: 3, holds_several: 3, waits: 4, further_waiter: 0 };
    costs.assert(|| redis(&url), || sum(&nodes)).await;
}

#[tokio::test]
async fn connections_to_three_nodes_of_redlock() {
    let cluster = RedlockNodes::start(&[NodeKind::FORGETFUL; 3]).await.unwrap();
    start_cluster(&cluster, SOON).await;
    let nodes: Vec<&Redis> = cluster.nodes().iter().collect();
    let open = || Locks::new(Redlock::open(cluster.urls()).unwrap().answer_within(PATIENTLY));
    let costs = Costs { holds: 3, holds_several: 3, waits: 6, further_waiter: 0 };
    costs.assert(open, || sum(&nodes)).await;
}

#[tokio::test]
async fn connections_to_etcd() {
    let etcd = Etcd::start().await.unwrap();
    let forwarder = Forwarder::start(etcd.address(0)).await;
    let costs = Costs { holds: 2, holds_several: 2, waits: 2, further_waiter: 0 };
    let open = || Locks::new(etcd_client(&forwarder.url()));
    costs.assert(open, async || Ok(forwarder.open())).await;
}

#[tokio::test]
async fn connections_to_zookeeper() {
    let server = ZooKeeper::start().await.unwrap();
    let costs = Costs { holds: 1, holds_several: 1, waits: 2, further_waiter: 0 };
    let open = || {
        let locks = zookeeper::ZooKeeper::open(&server.url()).unwrap();
        Locks::new(locks.answer_within(PATIENTLY))
    };
    costs.assert(open, || server.connections(0)).await;
}

async fn assert_costs_of<S: Server>(waits: usize) {
    let server = S::start().await;
    let count = async || Ok(server.count().await?.try_into()?);
    Costs { holds: 1, holds_several: 2, waits, further_waiter: 0 }
        .assert(|| server.named(), count)
        .await;
}

#[tokio::test]
async fn connections_to_postgres() {
    assert_costs_of::<Postgres>(2).await;
}

#[tokio::test]
async fn connections_to_mariadb() {
    assert_costs_of::<MariaDb>(1).await;
}
