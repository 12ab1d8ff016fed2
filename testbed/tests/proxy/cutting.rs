//! A proxy is cut and mended, its server ends, and it is dropped.

use testbed::wait::until_async;
use tokio::time::timeout;

use super::*;

const A_WHILE: Duration = Duration::from_millis(300);

async fn clients(redis: &Redis) -> u64 {
    // Without the client that asks.
    redis.info("connected_clients").await.unwrap().parse::<u64>().unwrap() - 1
}

#[tokio::test]
async fn cut_is_silent_in_both_directions_and_its_connections_end_when_it_is_mended() {
    let (redis, proxy) = start().await;
    let mut connection = connect(&proxy).await.unwrap();
    let mut control = connect(&proxy).await.unwrap();
    assert_eq!(increment(&mut connection, "count").await.unwrap(), 1);
    assert_eq!(increment(&mut control, "count").await.unwrap(), 2);

    proxy.cut();
    let mut asking = Box::pin(increment(&mut connection, "count"));
    timeout(A_WHILE, &mut asking).await.expect_err("the client learns nothing");
    timeout(A_WHILE, connect(&proxy)).await.expect_err("a new connection is silent");
    assert_eq!(value(&redis, "count").await.as_deref(), Some("2"));
    // The connection of the line above may end a moment later.
    let learns_nothing = async || Ok(clients(&redis).await == 2);
    until_async(PATIENCE, learns_nothing).await.expect("the server learns nothing");

    proxy.mend();
    assert!(asking.await.unwrap_err().is_connection_dropped());
    until_async(PATIENCE, async || Ok(clients(&redis).await == 0)).await.unwrap();
    assert_eq!(value(&redis, "count").await.as_deref(), Some("2"), "the cut request is lost");
    assert_eq!(increment_anew(&proxy, "count").await.unwrap(), 3);
}

#[tokio::test]
async fn server_that_ends_during_a_cut_is_not_noticed_until_it_is_mended() {
    let (mut redis, proxy) = start().await;
    let mut connection = connect(&proxy).await.unwrap();
    proxy.cut();
    redis.process().kill().unwrap();
    let mut asking = Box::pin(increment(&mut connection, "count"));
    timeout(A_WHILE, &mut asking).await.expect_err("the client learns nothing");
    proxy.mend();
    assert!(asking.await.unwrap_err().is_connection_dropped());
}

/// A proxy that reconnected by itself would hide a restart.
#[tokio::test]
async fn connection_ends_when_its_server_ends() {
    let (mut redis, proxy) = start().await;
    let mut connection = connect(&proxy).await.unwrap();
    assert_eq!(increment(&mut connection, "count").await.unwrap(), 1);
    redis.process().kill().unwrap();
    assert!(increment(&mut connection, "count").await.unwrap_err().is_connection_dropped());
    connect(&proxy).await.expect_err("the server is down");
    redis.restart().await.unwrap();
    increment(&mut connection, "count").await.expect_err("it stays closed");
    assert_eq!(
        increment_anew(&proxy, "count").await.unwrap(),
        1,
        "a new one reaches the new server"
    );
}

#[tokio::test]
async fn connections_end_with_the_proxy() {
    let (redis, proxy) = start().await;
    let mut connection = connect(&proxy).await.unwrap();
    assert_eq!(increment(&mut connection, "count").await.unwrap(), 1);
    let address = proxy.address();
    drop(proxy);
    assert!(increment(&mut connection, "count").await.unwrap_err().is_connection_dropped());
    until_async(PATIENCE, async || Ok(clients(&redis).await == 0)).await.unwrap();
    let is_rejected = async || Ok(tokio::net::TcpStream::connect(address).await.is_err());
    until_async(PATIENCE, is_rejected).await.expect("nobody listens any more");
}
