//! The testbed does what it says: its servers keep, lose, refuse and promote, and its proxy strikes
//! the messages that it was told to strike, and no others.

mod proxy;
mod servers;

use testbed::Redis;

/// Returns the value at a key, which Redis is asked directly.
async fn value(redis: &Redis, key: &str) -> Option<String> {
    redis.command(&["GET", key]).await.unwrap()
}
