//! A reply can be lost on the way from a Redis.

use redis::RedisResult;
use testbed::{LostReply, Redis};

use super::value;

/// Adds one, over a connection of its own.
async fn add_one(url: &str, key: &str) -> RedisResult<u64> {
    let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    redis::cmd("INCR").arg(key).query_async(&mut connection).await
}

#[tokio::test]
async fn reply_about_a_key_is_lost_once_and_what_it_replied_to_is_done() {
    let redis = Redis::start().await.unwrap();
    let way = LostReply::on_the_way_to(redis.socket(), "stock").await.unwrap();
    redis.set("stock", "no number").await.unwrap();
    assert_eq!(add_one(&way.url(), "else").await.unwrap(), 1, "it is about another key");
    assert!(!add_one(&way.url(), "stock").await.unwrap_err().is_io_error(), "it is an error");

    redis.set("stock", "32").await.unwrap();
    assert!(!way.has_been_lost());
    assert!(add_one(&way.url(), "stock").await.unwrap_err().is_io_error());
    assert!(way.has_been_lost());
    assert_eq!(value(&redis, "stock").await.as_deref(), Some("33"));
    assert_eq!(add_one(&way.url(), "stock").await.unwrap(), 34);
}
