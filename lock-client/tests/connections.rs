//! The connections of a client: to servers that hang, are busy or are slow to answer, and in
//! runtimes that end.

use std::{cell::RefCell, pin::pin, time::Duration};

use lock_client::{AcquireError, Locks, Terms};
use testbed::{
    Redis, Sentinels,
    wait::{until, until_async},
};
use tokio::{
    net::TcpListener,
    runtime::{self, Runtime},
    time::timeout,
};

use crate::{
    lock_service::{lasting, locks, tried, ttl, waiting},
    names::name,
};
use testbed::{Proxy, proxy::Framing};

const SOON: Duration = Duration::from_secs(30);

fn runtime() -> Runtime {
    runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// The kernel of a server that hangs acknowledges its packets, as does a proxy before a dead
/// server.
#[tokio::test]
async fn primary_that_hangs_is_left_for_the_one_that_the_sentinels_name() {
    let mut world = Sentinels::start().await.unwrap();
    // Connections that are silent for 10 of these are left.
    let redis = lock_client::redis::Redis::open(&world.url()).unwrap();
    let locks = Locks::new(redis.answer_within(Duration::from_secs(1)));
    let lease = locks.acquire(&name("r"), Terms::new(ttl(60_000)).wait(SOON)).await.unwrap();
    lease.release().await.unwrap();
    world.primary().process().pause().await.unwrap();
    // So the connection was not idle before it was silent, however long the failover takes.
    let unanswered = locks.acquire(&name("r"), tried(60_000)).await;
    assert!(matches!(unanswered, Err(AcquireError::Unavailable { .. })), "{unanswered:?}");
    world.fail_over().await.unwrap();
    let errors = RefCell::new(Vec::new());
    let acquired = async || {
        let tried = locks.acquire(&name("r"), tried(60_000)).await;
        let released = match tried {
            Ok(lease) => lease.release().await.map_err(|error| format!("{error:?}")),
            Err(error) => Err(format!("{error:?}")),
        };
        Ok(released.map_err(|error| errors.borrow_mut().push(error)).is_ok())
    };
    let result = until_async(SOON, acquired).await;
    result.unwrap_or_else(|error| panic!("the new primary is asked: {error}: {errors:#?}"));
}

#[tokio::test]
async fn short_wait_is_long_enough_to_connect_to_the_second_sentinel() {
    let world = Sentinels::start().await.unwrap();
    // It accepts connections, and never answers.
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let first = format!("redis+sentinel://{},", mute.local_addr().unwrap());
    let locks = locks(&world.url().replace("redis+sentinel://", &first));
    let terms = Terms::new(ttl(60_000)).wait(Duration::from_millis(100));
    locks.acquire(&name("r"), terms).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn redis_that_is_busy_with_a_script_is_waited_for() {
    let redis = Redis::start_with(&["--busy-reply-threshold", "10"]).await.unwrap();
    let proxy = Proxy::start(redis.socket()).await.unwrap();
    let (locks, r) = (locks(&proxy.url("redis")), name("r"));
    let lease = locks.acquire(&r, tried(60_000)).await.unwrap();
    let endless = redis.command::<()>(&["EVAL", "while true do end", "0"]);
    let meanwhile = async {
        let is_busy = async || Ok(redis.command::<String>(&["PING"]).await.is_err());
        until_async(SOON, is_busy).await.unwrap();
        // A client that tries again was rejected as busy before. Before the first subscription,
        // only an acquire names the counter, and only a release names the channel.
        let asked =
            ["fenced:{r}:token", "fenced:{r}:freed"].map(|text| (text, proxy.requests(text)));
        let ask_again =
            || Ok(asked.iter().all(|(text, before)| proxy.requests(text) >= before + 2));
        let waits = locks.acquire(&r, Terms::new(ttl(60_000)).wait(SOON));
        let (released, acquired, ()) = tokio::join!(lease.release(), waits, async {
            // The script is killed in any case.
            let both_ask_again = until(Duration::from_secs(5), ask_again).await;
            let _: String = redis.command(&["SCRIPT", "KILL"]).await.unwrap();
            both_ask_again.expect("what is busy is asked again");
        });
        released.expect("it was busy, and did not reject");
        acquired.expect("it was busy, and did not reject").release().await.unwrap();
    };
    let (killed, ()) = tokio::join!(endless, meanwhile);
    assert!(killed.unwrap_err().to_string().contains("SCRIPT KILL"));
}

#[tokio::test]
async fn redis_whose_memory_is_full_is_waited_for() {
    let redis = Redis::start_with(&["--maxmemory", "1"]).await.unwrap();
    let proxy = Proxy::start(redis.socket()).await.unwrap();
    let (locks, r) = (locks(&proxy.url("redis")), name("r"));
    let waits = locks.acquire(&r, Terms::new(ttl(60_000)).wait(SOON));
    let (acquired, ()) = tokio::join!(waits, async {
        let asks_again = || Ok(proxy.requests("fenced:{r}:token") >= 2);
        until(SOON, asks_again).await.expect("a full Redis is asked again");
        let _: String = redis.command(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    });
    acquired.expect("it was full, and did not reject").release().await.unwrap();
}

#[test]
fn waiters_are_notified_in_another_runtime_than_the_first() {
    let servers = runtime();
    let redis = servers.block_on(Redis::start()).unwrap();
    let (locks, r) = (locks(&redis.url()), name("r"));
    for _ in 0..2 {
        let runtime = runtime();
        runtime.block_on(async {
            let held = locks.acquire(&r, tried(60_000)).await.unwrap();
            let waits = locks.acquire(&r, Terms::new(ttl(60_000)).wait(SOON));
            let releases = async {
                let channel = ["PUBSUB", "NUMSUB", "fenced:{r}:freed"];
                let is_notified =
                    async || Ok(redis.command::<(String, u64)>(&channel).await?.1 == 1);
                until_async(SOON, is_notified).await.unwrap();
                held.release().await.unwrap();
            };
            let (acquired, ()) = tokio::join!(waits, releases);
            acquired.unwrap().release().await.unwrap();
        });
    }
}

#[test]
fn acquire_that_is_dropped_outside_of_its_runtime_leaves_nothing_behind() {
    let runtime = runtime();
    let redis = runtime.block_on(Redis::start()).unwrap();
    let (locks, r) = (locks(&redis.url()), name("r"));
    let held = runtime.block_on(locks.acquire(&r, tried(60_000))).unwrap();
    {
        let mut waits = pin!(locks.acquire(&r, Terms::new(ttl(60_000)).fair()));
        let queued = async {
            let stands = async || Ok(locks.status(&r).await?.queued == 1);
            until_async(SOON, stands).await.unwrap();
        };
        runtime.block_on(async {
            tokio::select! {
                acquired = &mut waits => panic!("it is taken: {acquired:?}"),
                () = queued => {}
            }
        });
    }
    runtime.block_on(async {
        timeout(SOON, locks.wait_for_background()).await.unwrap();
        assert_eq!(locks.status(&r).await.unwrap().queued, 0);
        held.release().await.unwrap();
    });
}

#[tokio::test]
async fn waiter_is_woken_through_a_proxy_for_messages_of_redis() {
    let redis = Redis::start().await.unwrap();
    let proxy = Proxy::start_framed(redis.socket(), Framing::Resp).await.unwrap();
    let (near, far) = (locks(&redis.url()), locks(&proxy.url("redis")));
    let lease = near.acquire(&name("r"), lasting()).await.unwrap();
    let waiter = waiting(&redis, &far, lasting().wait(SOON)).await;
    lease.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}
