//! A node of Redlock that is named alone: a lock on it would exclude nobody.

use std::{cell::Cell, time::Duration};

use fence::Holder;
use lock_client::{
    Order,
    backend::{Backend, BackendError},
    redis::Keys,
};
use testbed::{Redis, wait::until_async};

use crate::{
    lock_service::{locks, tried, ttl, with_causes},
    names::name,
};

const SOON: Duration = Duration::from_secs(30);

/// A restart is when a client asks whether it is a node, and Redis answers nothing but -LOADING.
#[tokio::test]
async fn node_of_redlock_that_loads_its_data_grants_no_lock() {
    // It takes two seconds to load a thousand keys, and answers in between.
    let slow = ["--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024"];
    let mut redis = Redis::start_with(&slow).await.unwrap();
    let _: u64 = redis.command(&["HSET", Keys::NODE, "cluster", "c"]).await.unwrap();
    let fill = "for i = 1, 1000 do redis.call('SET', i, string.rep('x', 1024)) end";
    let _: () = redis.command(&["EVAL", fill, "0"]).await.unwrap();
    let _: String = redis.command(&["SAVE"]).await.unwrap();
    let backend = lock_client::redis::Redis::open(&redis.url()).unwrap();
    let (r, holder) = (name("r"), Holder::random());
    redis.process().kill().unwrap();

    let was_loading = Cell::new(false);
    let rejection = async {
        until_async(SOON, async || {
            match backend.try_acquire(&r, &holder, ttl(60_000), Order::Unordered).await {
                Ok(attempt) => panic!("a node alone granted a lock: {attempt:?}"),
                Err(error @ BackendError::Unavailable(_)) => {
                    if with_causes(&error).contains("BusyLoading") {
                        was_loading.set(true);
                    }
                    Ok(false)
                }
                Err(error) => {
                    assert!(with_causes(&error).contains("this is a node of Redlock"), "{error:?}");
                    Ok(true)
                }
            }
        })
        .await
        .unwrap();
    };
    let (restarted, ()) = tokio::join!(redis.restart(), rejection);
    restarted.unwrap();
    assert!(was_loading.get(), "it was asked while it loaded");
}

#[tokio::test]
async fn client_without_the_right_to_see_whether_redis_is_a_node_may_lock() {
    let redis = Redis::start_on_tcp(&[]).await.unwrap();
    let rights = ["on", ">secret", "~fenced:{r}:*", "&fenced:*", "+@all"];
    let user = [&["ACL", "SETUSER", "locker"], &rights[..]].concat();
    let _: String = redis.command(&user).await.unwrap();
    let locks = locks(&redis.url_as("locker", "secret"));
    locks.acquire(&name("r"), tried(60_000)).await.unwrap().release().await.unwrap();
}
