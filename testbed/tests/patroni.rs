//! The private cluster of PostgreSQL fails over, loses what its replication may lose, and can be split.

use std::{process::Command, time::Duration};

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, query_scalar};
use testbed::{
    Patroni,
    patroni::{Link, Replication},
    wait::until_async,
};
use tokio::time::timeout;

const ALL: [usize; 3] = [0, 1, 2];
const LONG: Duration = Duration::from_secs(120);

async fn start(replication: Replication) -> (Patroni, usize) {
    let cluster = Patroni::start(replication).await.unwrap();
    let primary = cluster.primary_among(&ALL).await.unwrap();
    execute(&cluster.url(primary), "create table tokens (token int)").await.unwrap();
    (cluster, primary)
}

fn others(number: usize) -> Vec<usize> {
    ALL.into_iter().filter(|&other| other != number).collect()
}

async fn execute(url: &str, statement: &str) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    connection.execute(AssertSqlSafe(statement.to_owned())).await?;
    Ok(())
}

async fn write(url: &str, token: i32) -> Result<(), sqlx::Error> {
    execute(url, &format!("insert into tokens values ({token})")).await
}

async fn highest(url: &str) -> Result<Option<i32>, sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    query_scalar("select max(token) from tokens").fetch_one(&mut connection).await
}

/// Waits until a member has the token.
async fn has(url: &str, token: i32) {
    let has = || async { Ok(highest(url).await.is_ok_and(|highest| highest == Some(token))) };
    until_async(LONG, has).await.unwrap();
}

async fn gives_up(cluster: &Patroni, member: usize) {
    // While it restarts as a standby, it may not answer.
    let gave_up = || async { Ok(!cluster.takes_writes(member).await.unwrap_or(true)) };
    until_async(LONG, gave_up).await.unwrap();
}

#[tokio::test]
async fn standby_takes_over_from_a_primary_that_is_killed_or_paused() {
    let (mut cluster, first) = start(Replication::Synchronous).await;
    write(&cluster.url(first), 33).await.unwrap();
    cluster.kill(first).await.unwrap();
    let second = cluster.primary_among(&others(first)).await.unwrap();
    has(&cluster.url(second), 33).await;
    cluster.launch_again(first).unwrap();
    cluster.in_step(2).await.unwrap();
    write(&cluster.url(second), 34).await.unwrap();

    cluster.pause(second).await.unwrap();
    let third = cluster.primary_among(&others(second)).await.unwrap();
    has(&cluster.url(third), 34).await;
    cluster.resume(second).unwrap();
    cluster.in_step(2).await.unwrap();
    gives_up(&cluster, second).await;
}

#[tokio::test]
async fn nothing_of_a_cluster_outlives_it() {
    let (mut cluster, primary) = start(Replication::Synchronous).await;
    let url = cluster.socket_url(primary);
    let (folder, _) = url.split_once("?host=").unwrap().1.rsplit_once('/').unwrap();
    let processes = || {
        let listed = Command::new("ps").args(["-A", "-o", "args="]).output().unwrap();
        String::from_utf8(listed.stdout).unwrap().matches(folder).count()
    };
    assert!(processes() >= 6, "each member has a Patroni and a PostgreSQL");
    // Also of a member that is killed while it is paused.
    let [standby, _] = others(primary)[..] else { panic!("three members") };
    cluster.pause(standby).await.unwrap();
    let killed = timeout(Duration::from_secs(30), cluster.kill(standby)).await;
    killed.expect("it ends at once").unwrap();
    drop(cluster);
    assert_eq!(processes(), 0);
}

mod at_length {
    use super::*;

    /// The first of the two is the negative control of the second.
    #[tokio::test]
    async fn failover_loses_an_acknowledged_write_unless_replication_is_synchronous() {
        for (replication, is_acknowledged) in
            [(Replication::Asynchronous, true), (Replication::StrictlySynchronous, false)]
        {
            let (mut cluster, primary) = start(replication).await;
            let url = cluster.url(primary);
            write(&url, 33).await.unwrap();
            for standby in others(primary) {
                has(&cluster.url(standby), 33).await;
            }
            cluster.cut(primary, Link::Members);
            let patience = if is_acknowledged { LONG } else { Duration::from_secs(3) };
            let written = timeout(patience, write(&url, 34)).await;
            let acknowledged = written.is_ok_and(|written| written.is_ok());
            assert_eq!(acknowledged, is_acknowledged, "{replication:?}");
            cluster.kill(primary).await.unwrap();
            let promoted = cluster.primary_among(&others(primary)).await.unwrap();
            let kept = highest(&cluster.url(promoted)).await.unwrap();
            assert_eq!(kept, Some(33), "{replication:?}");
        }
    }

    #[tokio::test]
    async fn primary_that_is_cut_off_gives_up_unless_its_patroni_is_paused() {
        let (mut cluster, first) = start(Replication::Asynchronous).await;
        // PostgreSQL shuts down only once each standby has confirmed its last WAL, or was silent for
        // `wal_sender_timeout`, a minute by default. If that takes so long, Patroni 3.0.2 demotes in two
        // threads, both start PostgreSQL, and it may lose track of the running process.
        for statement in ["alter system set wal_sender_timeout = '5s'", "select pg_reload_conf()"] {
            execute(&cluster.url(first), statement).await.unwrap();
        }
        write(&cluster.url(first), 33).await.unwrap();
        for standby in others(first) {
            has(&cluster.url(standby), 33).await;
        }
        let cut_off = |cluster: &Patroni, member| {
            cluster.cut(member, Link::Etcd);
            cluster.cut(member, Link::Members);
        };
        cut_off(&cluster, first);
        let second = cluster.primary_among(&others(first)).await.unwrap();
        gives_up(&cluster, first).await;
        cluster.mend(first, Link::Etcd);
        cluster.mend(first, Link::Members);
        cluster.in_step(2).await.unwrap();

        // Nothing is left that could stop its PostgreSQL: two primaries are up.
        cluster.agent(second).unwrap().pause().await.unwrap();
        cut_off(&cluster, second);
        let third = cluster.primary_among(&others(second)).await.unwrap();
        for (primary, token) in [(second, 34), (third, 35)] {
            write(&cluster.url(primary), token).await.unwrap();
            has(&cluster.url(primary), token).await;
        }
        cluster.cut(second, Link::Clients);
        let rejected = timeout(Duration::from_secs(1), PgConnection::connect(&cluster.url(second)));
        assert!(rejected.await.is_err(), "its clients are cut off, too");
    }
}
