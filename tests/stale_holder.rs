//! A stale holder never uses its successor's token.

use std::time::Duration;

use lock_client::{
    RenewError,
    storage::{FencedError, Storage},
};
use testbed::{Redis, StorageServer};

use crate::{
    lock_service::{locks, redis_before, unrenewed},
    names::{name, token},
    programs::storage_server,
};

const PATIENCE: Duration = Duration::from_secs(30);
const LOCK: &str = "fenced:{r}:lock";

async fn counter(redis: &Redis) -> u64 {
    redis.command(&["GET", "fenced:{r}:token"]).await.unwrap()
}

async fn expire(redis: &Redis) {
    assert_eq!(redis.command::<u64>(&["DEL", LOCK]).await.unwrap(), 1);
}

/// Redisson's `getToken()` reads the shared counter.
#[tokio::test]
async fn stale_holder_never_gets_its_successors_token() {
    let redis = redis_before(33).await;
    let server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let (storage, locks) = (Storage::new(server.url()).unwrap(), locks(&redis.url()));

    // It is past its deadline, and knows.
    let stale = locks.acquire(&name("r"), unrenewed(3_000)).await.unwrap();
    let next = locks.acquire(&name("r"), unrenewed(60_000).wait(PATIENCE)).await.unwrap();
    assert_eq!((next.token(), counter(&redis).await), (Ok(token(34)), 34));
    assert!(stale.token().is_err() && stale.fence().is_err());
    let resource = storage.under(&stale, &name("r"));
    let late = resource.write("text/plain", "late").await;
    assert!(matches!(late, Err(FencedError::Lost { rejection: None, .. })), "{late:?}");
    assert_eq!(storage.read(&name("r")).await.unwrap(), None);

    // Redis's clock has jumped, and it doesn't know yet.
    expire(&redis).await;
    let last = locks.acquire(&name("r"), unrenewed(60_000)).await.unwrap();
    assert_eq!((last.token(), counter(&redis).await), (Ok(token(35)), 35));
    assert_eq!(next.token(), Ok(token(34)), "its own");
    assert!(matches!(next.renew().await, Err(RenewError::Lost(_))));
    assert!(next.token().is_err());
}
