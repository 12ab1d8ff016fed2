//! A connection that was idle, and may have been dropped in silence, as a NAT does.

use std::time::Duration;

use lock_client::AcquireError;
use testbed::{Proxy, Redis};
use tokio::time::sleep;

use crate::{
    lock_service::{locks, tried, until_free},
    names::name,
};

/// What is in every request about the lock.
const LOCK: &str = "fenced:{r}:lock";
/// What a client asks once for each connection.
const FIRST_QUESTION: &str = "fenced:node";
/// A connection that answered nothing for so long may have been dropped.
const IDLE: Duration = Duration::from_millis(2_500);

#[tokio::test]
async fn idle_connection_that_was_dropped_in_silence_costs_no_acquire() {
    let redis = Redis::start().await.unwrap();
    let proxy = Proxy::start(redis.socket()).await.unwrap();
    let locks = locks(&proxy.url("redis"));
    locks.status(&name("r")).await.unwrap();
    sleep(IDLE).await;
    // Nothing passes on this connection any more, and neither end sees it close.
    let _dropped = proxy.hold(LOCK);
    let lease = locks.acquire(&name("r"), tried(60_000)).await.expect("it connects again");
    assert_eq!(proxy.requests(FIRST_QUESTION), 2);
    lease.release().await.unwrap();
}

/// The network may repair it. Then an acquire would come after its undoing, which went over the new
/// connection.
#[tokio::test]
async fn connection_that_answered_just_now_is_kept_for_a_while() {
    let redis = Redis::start().await.unwrap();
    let proxy = Proxy::start(redis.socket()).await.unwrap();
    let locks = locks(&proxy.url("redis"));
    locks.status(&name("r")).await.unwrap();
    let silent = proxy.hold(LOCK);
    let unanswered = locks.acquire(&name("r"), tried(60_000)).await;
    assert!(matches!(unanswered, Err(AcquireError::Unavailable { .. })), "{unanswered:?}");
    assert_eq!(proxy.requests(FIRST_QUESTION), 1);
    silent.caught().await.unwrap().deliver();
    locks.wait_for_background().await;
    until_free(&redis).await;
}

/// A server that hangs accepts connections, and answers nothing. What it executes later, it
/// executes in order, if all came over one connection.
#[tokio::test]
async fn acquire_over_an_idle_connection_to_a_server_that_hangs_is_undone() {
    let mut redis = Redis::start().await.unwrap();
    let locks = locks(&redis.url());
    locks.status(&name("r")).await.unwrap();
    sleep(IDLE).await;
    redis.process().pause().await.unwrap();
    let unanswered = locks.acquire(&name("r"), tried(600_000)).await;
    assert!(matches!(unanswered, Err(AcquireError::Unavailable { .. })), "{unanswered:?}");
    locks.wait_for_background().await;
    redis.process().resume().unwrap();
    // It has executed the acquire.
    let granted = async || Ok(redis.command::<u64>(&["EXISTS", "fenced:{r}:token"]).await? == 1);
    testbed::wait::until_async(Duration::from_secs(20), granted).await.unwrap();
    until_free(&redis).await;
}

/// Keepalive probes find a connection that was dropped in silence, and keep a NAT from dropping it.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn idle_connections_are_probed() {
    use crate::lock_service::{lasting, waiting};

    let redis = Redis::start_on_tcp(&[]).await.unwrap();
    let locks = locks(&redis.url());
    let _held = locks.acquire(&name("r"), lasting()).await.unwrap();
    let _waiter = waiting(&redis, &locks, lasting().wait(Duration::from_secs(60))).await;
    let server = format!("0100007F:{:04X}", redis.address().unwrap().port());
    // The clients' ends, each with its timer. Kind 2 is keepalive, and its time is in 1/100 s.
    let timers = || {
        let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let fields = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let ours = fields.filter(|fields| fields[2] == server && fields[3] == "01");
        ours.map(|fields| fields[5].to_owned()).collect::<Vec<_>>()
    };
    let probed = |timer: &String| {
        let (kind, left) = timer.split_once(':').unwrap();
        kind == "02" && u64::from_str_radix(left, 16).unwrap() <= 1_000
    };
    let all_probed = || Ok(timers().len() == 2 && timers().iter().all(probed));
    let probed = testbed::wait::until(Duration::from_secs(5), all_probed).await;
    probed.unwrap_or_else(|_| panic!("{:?}", timers()));
}
