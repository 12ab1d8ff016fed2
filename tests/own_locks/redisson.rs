//! Redisson's `RFencedLock`, by the keys that it writes.

use testbed::Redis;

use super::{
    page::commands,
    reader::{Grant, Reader},
};

const LOCK: &str = "invoice-7";
const COUNTER: &str = "redisson_lock_token:{invoice-7}";
/// What the lock's script does: the owner's field counts re-entries, and every acquire raises the
/// counter. A rejection is 0.
const ACQUIRE: &str = "
    local owned = redis.call('hexists', KEYS[1], ARGV[1]) == 1
    if redis.call('exists', KEYS[1]) == 1 and not owned then return 0 end
    redis.call('hincrby', KEYS[1], ARGV[1], 1)
    redis.call('pexpire', KEYS[1], 30000)
    return redis.call('incr', KEYS[2])";

/// A thread of a Java program, with a holder of its own, as the page advises.
struct Thread<'a> {
    redis: &'a Redis,
    name: &'static str,
}

impl Thread<'_> {
    async fn lock_and_get_token(&self) -> Grant {
        let acquire = ["EVAL", ACQUIRE, "2", LOCK, COUNTER, self.name];
        let token = self.redis.command(&acquire).await.unwrap();
        assert_ne!(token, 0, "it is held");
        self.grant(token)
    }

    async fn get_token(&self) -> Grant {
        self.grant(self.redis.command(&["GET", COUNTER]).await.unwrap())
    }

    fn grant(&self, token: u64) -> Grant {
        Grant { token, holder: format!("holder-of-{}", self.name.replace(':', "-")) }
    }
}

async fn start() -> (Redis, Reader) {
    let redis = Redis::start_on_tcp(&[]).await.unwrap();
    let mut reader = Reader::start().await;
    reader.replace_port(6379, redis.address().unwrap());
    (redis, reader)
}

async fn expire(redis: &Redis) {
    assert_eq!(redis.command::<u64>(&["DEL", LOCK]).await.unwrap(), 1);
}

#[tokio::test]
async fn token_of_redisson_rejects_a_stale_owner_and_goes_back_when_its_key_is_lost() {
    let (redis, reader) = start().await;
    let [one, other] = ["a:1", "b:1"].map(|name| Thread { redis: &redis, name });
    let first = one.lock_and_get_token().await;
    reader.pay_late(&first).await.unwrap();
    expire(&redis).await;
    let second = other.lock_and_get_token().await;
    assert_eq!((first.token, second.token), (1, 2));
    reader.pay_late(&second).await.unwrap();
    assert_eq!(reader.pay_late(&first).await.unwrap_err(), "stale-token");
    // The page shows the keys.
    assert_eq!(reader.succeed(commands("Redisson", 0)).await, "b:1\n1\n2\n");

    let _: u64 = redis.command(&["DEL", LOCK, COUNTER]).await.unwrap();
    let third = one.lock_and_get_token().await;
    assert_eq!(third.token, 1);
    assert_eq!(reader.pay_late(&third).await.unwrap_err(), "stale-token");
}

#[tokio::test]
async fn outer_method_is_rejected_once_a_re_entrant_one_has_written() {
    let (redis, reader) = start().await;
    let thread = Thread { redis: &redis, name: "a:1" };
    let outer = thread.lock_and_get_token().await;
    reader.pay_late(&outer).await.unwrap();
    let inner = thread.lock_and_get_token().await;
    assert_eq!((outer.token, inner.token), (1, 2), "the token grows on re-entry");
    // As the page advises: the inner method gets the token of the outer one.
    reader.pay_late(&outer).await.unwrap();
    reader.pay_late(&inner).await.unwrap();
    assert_eq!(reader.pay_late(&outer).await.unwrap_err(), "stale-token");
}

#[tokio::test]
async fn stale_owner_that_asks_for_the_token_gets_its_successors_and_only_the_holder_tells() {
    let (redis, reader) = start().await;
    let [stale, next] = ["a:1", "b:1"].map(|name| Thread { redis: &redis, name });
    stale.lock_and_get_token().await;
    expire(&redis).await;
    let owner = next.lock_and_get_token().await;
    reader.pay_late(&owner).await.unwrap();

    let asked = stale.get_token().await;
    assert_eq!(asked.token, owner.token);
    assert_eq!(reader.pay_late(&asked).await.unwrap_err(), "holder-conflict");
    // The negative control: with a holder that all clients share, the stale write passes.
    let shared = |token| Grant { token, holder: "shared".to_owned() };
    expire(&redis).await;
    let owner = shared(next.lock_and_get_token().await.token);
    reader.pay_late(&owner).await.unwrap();
    reader.pay_late(&shared(stale.get_token().await.token)).await.unwrap();
}
