//! The private Redis servers keep, lose, reject and promote what their documentation says.

#[cfg(target_os = "linux")]
mod clocks;
mod nodes;

use std::{
    process::{Command, Output},
    time::Duration,
};

use redis::AsyncConnectionConfig;
use testbed::{
    Redis, RedisCluster, Sentinels,
    wait::{until, until_async},
};

use crate::value;

const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn only_a_redis_that_appends_keeps_its_keys_through_a_crash() {
    let appending = ["--appendonly", "yes", "--appendfsync", "always"];
    for (arguments, kept) in [(&appending[..], Some("34")), (&[], None)] {
        let mut redis = Redis::start_with(arguments).await.unwrap();
        redis.set("key", "34").await.unwrap();
        let first_run = redis.info("run_id").await.unwrap();
        redis.restart().await.unwrap();
        assert_ne!(redis.info("run_id").await.unwrap(), first_run);
        assert_eq!(value(&redis, "key").await.as_deref(), kept);
        redis.restart_empty().await.unwrap();
        assert_eq!(value(&redis, "key").await, None);
    }
}

#[tokio::test]
async fn port_stays_the_same_through_a_restart_and_differs_between_servers() {
    let mut first = Redis::start_on_tcp(&[]).await.unwrap();
    let second = Redis::start_on_tcp(&[]).await.unwrap();
    let address = first.address().unwrap();
    assert_ne!(first.address(), second.address());
    first.restart().await.unwrap();
    assert_eq!(first.address(), Some(address));
    let mut connection = testbed::redis::connect(first.url()).await.unwrap();
    let run_id = first.info("run_id").await.unwrap();
    let info: String = redis::cmd("INFO").arg("server").query_async(&mut connection).await.unwrap();
    assert!(info.contains(&run_id), "the port and the socket are of one process");
}

#[tokio::test]
async fn restart_waits_for_a_port_that_another_process_has_taken() {
    let mut redis = Redis::start_on_tcp(&[]).await.unwrap();
    let log = redis.socket().with_file_name("redis.log");
    redis.process().kill().unwrap();
    let other_process = std::net::TcpListener::bind(redis.address().unwrap()).unwrap();
    let leave = async move {
        let is_rejected = || Ok(std::fs::read_to_string(&log)?.contains("Address already in use"));
        until(SOON, is_rejected).await.unwrap();
        drop(other_process);
    };
    let (restarted, ()) = tokio::join!(redis.restart(), leave);
    restarted.unwrap();
    redis.set("key", "34").await.unwrap();
}

#[tokio::test]
async fn password_is_required() {
    let password = ["--requirepass", "secret"];
    for redis in
        [Redis::start_with(&password).await.unwrap(), Redis::start_on_tcp(&password).await.unwrap()]
    {
        redis.set("key", "34").await.unwrap();
        let connect = async |url: String| {
            let mut connection = testbed::redis::connect(url).await?;
            redis::cmd("GET").arg("key").query_async::<String>(&mut connection).await
        };
        assert_eq!(connect(redis.url_as("default", "secret")).await.unwrap(), "34");
        let rejected = connect(redis.url()).await.unwrap_err();
        assert_eq!(rejected.code(), Some("NOAUTH"));
        assert!(connect(redis.url_as("default", "wrong")).await.is_err());
    }
}

/// Sends PING over TLS, and returns the answer.
async fn ping_over_tls(redis: &Redis, ca_file: &std::path::Path) -> Output {
    let port = redis.address().unwrap().port().to_string();
    let mut command = Command::new("redis-cli");
    command.args(["-h", "127.0.0.1", "-p", &port, "--tls", "--cacert"]).arg(ca_file).arg("PING");
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

#[tokio::test]
async fn tls_port_rejects_plain_text_and_has_a_certificate_of_its_own_authority() {
    let redis = Redis::start_tls().await.unwrap();
    let ponged = ping_over_tls(&redis, &redis.ca_file().unwrap()).await;
    assert_eq!(String::from_utf8_lossy(&ponged.stdout), "PONG\n", "{ponged:?}");

    let other = Redis::start_tls().await.unwrap();
    let distrusted = ping_over_tls(&redis, &other.ca_file().unwrap()).await;
    assert!(!distrusted.status.success(), "another authority's: {distrusted:?}");

    let url = format!("redis://{}", redis.address().unwrap());
    let plain = async {
        let mut connection = testbed::redis::connect(url).await?;
        redis::cmd("PING").exec_async(&mut connection).await
    };
    plain.await.unwrap_err();
    assert!(redis.url().starts_with("rediss://"));
}

/// Sets the key, waits for a replica to acknowledge it, and returns how many have.
async fn acknowledgements_of(primary: &Redis, value: &str, wait: Duration) -> u64 {
    let client = redis::Client::open(primary.url()).unwrap();
    let patient = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(2 * SOON))
        .set_response_timeout(Some(2 * SOON));
    let connection = client.get_multiplexed_async_connection_with_config(&patient).await;
    let mut connection = connection.unwrap();
    let wait = wait.as_millis().to_string();
    let mut set_and_wait = redis::pipe();
    set_and_wait.cmd("SET").arg("key").arg(value).ignore().cmd("WAIT").arg(1).arg(wait);
    set_and_wait.query_async::<[u64; 1]>(&mut connection).await.unwrap()[0]
}

#[tokio::test]
async fn replica_that_is_cut_off_misses_what_its_primary_took() {
    let primary = Redis::start().await.unwrap();
    primary.set("key", "32").await.unwrap();
    let replica = Redis::replica_of(&primary).await.unwrap();
    assert_eq!(value(replica.redis(), "key").await.as_deref(), Some("32"));
    assert_eq!(acknowledgements_of(&primary, "33", SOON).await, 1);
    assert_eq!(value(replica.redis(), "key").await.as_deref(), Some("33"));

    replica.cut();
    assert_eq!(acknowledgements_of(&primary, "34", Duration::from_millis(300)).await, 0);
    assert_eq!(value(replica.redis(), "key").await.as_deref(), Some("33"));
    assert_eq!(primary.info("connected_slaves").await.unwrap(), "1", "the primary is not notified");

    replica.proxy().mend();
    replica.catch_up(&primary).await.unwrap();
    assert_eq!(value(replica.redis(), "key").await.as_deref(), Some("34"));

    replica.cut();
    primary.set("key", "35").await.unwrap();
    replica.promote().await.unwrap();
    assert_eq!(replica.redis().info("role").await.unwrap(), "master");
    assert_eq!(value(replica.redis(), "key").await.as_deref(), Some("34"));
    replica.redis().set("key", "other").await.unwrap();
    assert_eq!(value(&primary, "key").await.as_deref(), Some("35"), "two primaries are up");
}

#[tokio::test]
async fn replica_notices_the_end_of_its_primary() {
    let mut primary = Redis::start_with(&["--requirepass", "secret"]).await.unwrap();
    let replica = Redis::replica_of(&primary).await.unwrap();
    primary.process().kill().unwrap();
    let is_down = async || Ok(replica.redis().info("master_link_status").await? == "down");
    until_async(SOON, is_down).await.unwrap();
    primary.restart().await.unwrap();
    primary.set("key", "34").await.unwrap();
    replica.catch_up(&primary).await.unwrap();
    assert_eq!(value(replica.redis(), "key").await.as_deref(), Some("34"));
}

#[tokio::test]
async fn sentinels_promote_the_replica_of_a_primary_that_died() {
    let mut world = Sentinels::start().await.unwrap();
    world.primary().set("key", "34").await.unwrap();
    assert_eq!(world.replica().info("role").await.unwrap(), "slave");
    world.primary().process().kill().unwrap();
    world.fail_over().await.unwrap();
    world.replica().set("key", "35").await.unwrap();
}

#[tokio::test]
async fn cluster_rejects_keys_of_different_slots() {
    let mut cluster = RedisCluster::start().await.unwrap();
    let node = cluster.node_of("{invoice-7}").await.unwrap();
    let nodes = cluster.nodes();
    let tagged = ["MSET", "{invoice-7}:a", "1", "{invoice-7}:b", "2"];
    nodes[node].command::<()>(&tagged).await.unwrap();
    let crossing = nodes[node].command::<()>(&["MSET", "{invoice-7}:a", "1", "b", "2"]).await;
    assert!(crossing.unwrap_err().to_string().contains("CrossSlot"));

    let elsewhere = nodes[(node + 1) % 3].command::<()>(&["GET", "{invoice-7}:a"]).await;
    let elsewhere = elsewhere.unwrap_err().to_string();
    let address = nodes[node].address().unwrap().to_string();
    assert!(elsewhere.contains("Moved") && elsewhere.contains(&address), "{elsewhere}");

    nodes[node].restart().await.unwrap();
    cluster.ready().await.unwrap();
}
