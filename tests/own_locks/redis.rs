//! A lock in Redis with a counter beside it, as bsm/redislock keeps it.

use testbed::Redis;

use super::{
    page::commands,
    reader::{Grant, Reader},
};

const COUNTER: &str = "{invoice-7}:fence";

async fn start() -> (Redis, Reader) {
    let redis = Redis::start_on_tcp(&[]).await.unwrap();
    let mut reader = Reader::start().await;
    reader.replace_port(6379, redis.address().unwrap());
    (redis, reader)
}

async fn lose_the_counter(redis: &Redis) {
    assert_eq!(redis.command::<u64>(&["DEL", COUNTER]).await.unwrap(), 1);
}

/// The negative control of all tests here: the same late write, to a storage that checks nothing.
#[tokio::test]
async fn stale_token_overwrites_a_storage_that_checks_nothing() {
    let (redis, _) = start().await;
    let mut reader = Reader::start_with(&["--enforcement", "off"]).await;
    reader.replace_port(6379, redis.address().unwrap());
    let lock = commands("Redis", 0);
    let first = reader.pay(lock).await.unwrap();
    reader.pay(lock).await.unwrap();
    reader.pay_late(&first).await.unwrap();
    assert_eq!(reader.value().await, "late");
}

#[tokio::test]
async fn counter_in_redis_starts_again_at_1_when_its_key_is_lost_until_it_is_raised() {
    let (redis, reader) = start().await;
    let lock = commands("Redis", 0);
    reader.stale_token_is_rejected(lock).await;

    lose_the_counter(&redis).await;
    assert_eq!(reader.pay(lock).await.unwrap_err(), "stale-token");
    // A rejected client of the page has not released: its lock expires.
    let _: u64 = redis.command(&["DEL", "{invoice-7}:lock"]).await.unwrap();
    assert_eq!(reader.pay(lock).await.unwrap_err(), "holder-conflict", "2 was issued twice");
    let _: u64 = redis.command(&["DEL", "{invoice-7}:lock"]).await.unwrap();
    assert_eq!(reader.value().await, "by client 2");

    reader.succeed(commands("When a token went back", 0)).await;
    assert_eq!(reader.pay(lock).await.unwrap().token, 35);
}

/// Why the page says to claim at once: the storage can't reject what it can't know.
#[tokio::test]
async fn paused_client_from_before_the_loss_overwrites_a_storage_that_has_not_seen_its_token() {
    let (redis, reader) = start().await;
    redis.set(COUNTER, "33").await.unwrap();
    let token = redis.command(&["INCR", COUNTER]).await.unwrap();
    let paused = Grant { token, holder: "paused".to_owned() };

    lose_the_counter(&redis).await;
    assert_eq!(reader.pay(commands("Redis", 0)).await.unwrap().token, 1);
    reader.pay_late(&paused).await.unwrap();
    assert_eq!(reader.value().await, "late");
}

/// The replica had not received the second grant, and issues its token again.
#[tokio::test]
async fn counter_in_redis_goes_back_when_a_replica_that_lags_is_promoted() {
    let (redis, mut reader) = start().await;
    let replica = Redis::replica_of(&redis).await.unwrap();
    let lock = commands("Redis", 0);
    let first = reader.pay(lock).await.unwrap();
    replica.catch_up(&redis).await.unwrap();
    replica.cut();
    let second = reader.pay(lock).await.unwrap();
    assert_eq!((first.token, second.token), (1, 2));

    replica.promote().await.unwrap();
    reader.replace_port(6379, replica.redis().address().unwrap());
    assert_eq!(reader.pay(lock).await.unwrap_err(), "holder-conflict");
    assert_eq!(reader.value().await, "by client 2");
}
