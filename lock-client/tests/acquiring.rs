//! Locks in one Redis: tokens, deadlines, and cleaning up.

use std::time::{Duration, Instant, SystemTime};

use crate::{
    lock_service::{impatient_locks, locks, tried, ttl, unrenewed, with_causes},
    names::{name, token},
};
use fence::Holder;
use lock_client::{
    AcquireError, Lease, Order, Released, RenewError, Terms,
    backend::{Attempt, Backend, BackendError, Ownership},
};
use testbed::Redis;

#[tokio::test]
async fn tokens_grow_with_every_grant() {
    let redis = Redis::start().await.unwrap();
    redis.set("fenced:{invoice-7}:token", "32").await.unwrap();
    let locks = locks(&redis.url());
    let first = locks.acquire(&name("invoice-7"), tried(10_000)).await.unwrap();
    assert_eq!(first.token(), Ok(token(33)));
    let busy = locks.acquire(&name("invoice-7"), tried(10_000)).await;
    assert!(matches!(busy, Err(AcquireError::Contended { remaining: Some(_), .. })), "{busy:?}");
    assert_eq!(first.release().await.unwrap(), Released::Released);
    let second = locks.acquire(&name("invoice-7"), tried(10_000)).await.unwrap();
    assert_eq!(second.token(), Ok(token(34)));
    second.release().await.unwrap();
}

#[tokio::test]
async fn missing_counter_starts_at_the_clock() {
    let redis = Redis::start().await.unwrap();
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    let before = now();
    let lease = locks(&redis.url()).acquire(&name("r"), tried(10_000)).await.unwrap();
    let token = u128::from(lease.token().unwrap().as_u64());
    assert!((before + 1..=now() + 1).contains(&token));
}

#[tokio::test]
async fn names_with_braces_and_percent_signs_are_locks_of_their_own() {
    let redis = Redis::start().await.unwrap();
    let locks = locks(&redis.url());
    let mut leases: Vec<Lease> = Vec::new();
    for odd in ["{x}", "x", "%7Bx%7D", "a}b{c", "a/b", "ż 🐢"] {
        leases.push(locks.acquire(&name(odd), tried(10_000)).await.unwrap());
    }
    let mut keys: Vec<String> = redis.command(&["KEYS", "*:lock"]).await.unwrap();
    keys.sort();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    let expected = [
        "fenced:{%257Bx%257D}:lock",
        "fenced:{%7Bx%7D}:lock",
        "fenced:{a%7Db%7Bc}:lock",
        "fenced:{a/b}:lock",
        "fenced:{x}:lock",
        "fenced:{ż 🐢}:lock",
    ];
    assert_eq!(keys, expected);
}

#[tokio::test]
async fn big_tokens_are_exact_and_the_highest_is_the_last() {
    let redis = Redis::start().await.unwrap();
    let locks = locks(&redis.url());
    redis.set("fenced:{r}:token", "999999999999997").await.unwrap();
    let lease = locks.acquire(&name("r"), tried(10_000)).await.unwrap();
    assert_eq!(lease.token(), Ok(token(999_999_999_999_998)));
    let value: String = redis.command(&["GET", "fenced:{r}:lock"]).await.unwrap();
    let exact = format!("999999999999998 999999999999998 {} ", lease.holder().as_str());
    assert!(value.starts_with(&exact), "{value}");
    lease.renew().await.unwrap();
    lease.release().await.unwrap();
    let last = locks.acquire(&name("r"), tried(10_000)).await.unwrap();
    assert_eq!(last.token(), Ok(token(999_999_999_999_999)));
    last.release().await.unwrap();

    for counter in ["999999999999999", "9223372036854775807", "-1", "-0", "1.5", "1e3", "x"] {
        redis.set("fenced:{r}:token", counter).await.unwrap();
        let rejected = locks.acquire(&name("r"), tried(10_000)).await;
        assert!(matches!(rejected, Err(AcquireError::Rejected { .. })), "{counter}: {rejected:?}");
        let (lock, kept): (Option<String>, String) = (
            redis.command(&["GET", "fenced:{r}:lock"]).await.unwrap(),
            redis.command(&["GET", "fenced:{r}:token"]).await.unwrap(),
        );
        assert_eq!((lock, kept.as_str()), (None, counter), "nothing has changed");
    }
}

/// Somebody has changed the lock's key. The scripts change the owner's time, and then answer with a
/// number that is no token.
#[tokio::test]
async fn unreadable_reply_leaves_the_outcome_unknown() {
    let redis = Redis::start().await.unwrap();
    let backend = lock_client::redis::Redis::open(&redis.url()).unwrap();
    let (backend, holder) = (backend.answer_within(Duration::from_secs(5)), Holder::random());
    let (lock, ownership) = (name("r"), Ownership { holder: holder.clone(), grant: token(33) });
    let value = format!("1000000000000000 33 {} 0 ", holder.as_str());
    let lasts = async || redis.command::<i64>(&["PTTL", "fenced:{r}:lock"]).await.unwrap();
    for renews in [true, false] {
        redis.set("fenced:{r}:lock", &value).await.unwrap();
        assert_eq!(lasts().await, -1);
        let error = match renews {
            true => backend.renew(&lock, &ownership, ttl(60_000)).await.err(),
            false => backend.try_acquire(&lock, &holder, ttl(60_000), Order::Unordered).await.err(),
        };
        let error = error.expect("there is no such token");
        assert!(with_causes(&error).contains("not a token"), "{error:?}");
        assert!(lasts().await > 0, "the script was carried out");
        assert!(matches!(error, BackendError::Unavailable(_)), "{error:?}");
    }
    let read = backend.status(&lock).await;
    assert!(matches!(read, Err(BackendError::Rejected(_))), "a read changes nothing: {read:?}");
}

#[tokio::test]
async fn counter_starts_at_the_clock_unless_it_is_set() {
    let redis = Redis::start().await.unwrap();
    let locks = locks(&redis.url());
    redis.set("fenced:{zero}:token", "0").await.unwrap();
    let lease = locks.acquire(&name("zero"), tried(10_000)).await.unwrap();
    assert_eq!(lease.token(), Ok(token(1)));

    // It vanishes while the lock is held, or while only a waiter is there.
    let lease = locks.acquire(&name("r"), tried(60_000)).await.unwrap();
    let (backend, waiter) =
        (lock_client::redis::Redis::open(&redis.url()).unwrap(), Holder::random());
    let waits = backend.try_acquire(&name("r"), &waiter, ttl(60_000), Order::Fair).await.unwrap();
    assert!(matches!(waits, Attempt::Busy(_)), "{waits:?}");
    for key in ["fenced:{r}:token", "fenced:{r}:lock"] {
        let _: u64 = redis.command(&["DEL", key]).await.unwrap();
        let busy = locks.acquire(&name("r"), tried(60_000)).await;
        assert!(matches!(busy, Err(AcquireError::Contended { .. })), "{busy:?}");
        assert_eq!(locks.status(&name("r")).await.unwrap().last_token, None);
    }
    let next = backend.try_acquire(&name("r"), &waiter, ttl(60_000), Order::Fair).await.unwrap();
    let Attempt::Granted { token: next, .. } = next else { panic!("{next:?}") };
    assert!(next > lease.ownership().grant);
}

#[tokio::test]
async fn lease_past_its_deadline_never_claims_to_be_held() {
    let redis = Redis::start().await.unwrap();
    let locks = locks(&redis.url());
    let lease = locks.acquire(&name("r"), unrenewed(100)).await.unwrap();
    assert!(lease.remaining() <= ttl(100).reliable());
    testbed::wait::until(Duration::from_secs(5), || Ok(lease.token().is_err())).await.unwrap();
    assert!(lease.token().is_err());
    assert_eq!(lease.remaining(), Duration::ZERO);
    assert!(lease.fence().is_err());
    // It is not taken back, even if no other client has acquired it.
    assert!(matches!(lease.renew().await, Err(RenewError::Lost(_))));
}

#[tokio::test]
async fn renewal_extends_only_what_is_still_ours() {
    let redis = Redis::start().await.unwrap();
    let locks = locks(&redis.url());
    let lease = locks.acquire(&name("r"), unrenewed(2_000)).await.unwrap();
    let token_before = lease.token();
    let a_part_has_passed = || Ok(lease.remaining() < Duration::from_millis(1_900));
    testbed::wait::until(Duration::from_secs(5), a_part_has_passed).await.unwrap();
    let before = lease.remaining();
    lease.renew().await.unwrap();
    assert!(lease.remaining() > before);
    assert_eq!(lease.token(), token_before);

    let _: () = redis.command(&["DEL", "fenced:{r}:lock"]).await.unwrap();
    let other = locks.acquire(&name("r"), tried(2_000)).await.unwrap();
    assert!(matches!(lease.renew().await, Err(RenewError::Lost(_))));
    assert!(lease.token().is_err());
    assert_eq!(
        lease.release().await.unwrap(),
        Released::NotHeld,
        "another client's lock is unchanged"
    );
    let held = locks.status(&name("r")).await.unwrap().held.unwrap();
    assert_eq!(Ok(held.token), other.token());
}

#[tokio::test]
async fn acquire_waits_until_the_lock_is_free() {
    let redis = Redis::start().await.unwrap();
    let locks = locks(&redis.url());
    let first = locks.acquire(&name("r"), tried(60_000)).await.unwrap();

    let begun = Instant::now();
    let wait = Duration::from_millis(200);
    let busy = locks.acquire(&name("r"), Terms::new(ttl(1_000)).wait(wait)).await;
    assert!(matches!(busy, Err(AcquireError::Contended { .. })), "{busy:?}");
    assert!(begun.elapsed() >= wait);

    let waiters: Vec<_> = (0..2)
        .map(|limited| {
            let locks = locks.clone();
            tokio::spawn(async move {
                let name = name("r");
                let wait = Duration::from_secs(30);
                let lease = match limited {
                    0 => locks.acquire(&name, ttl(10_000)).await,
                    _ => locks.acquire(&name, Terms::new(ttl(10_000)).wait(wait)).await,
                };
                let lease = lease.unwrap();
                let token = lease.token().unwrap();
                lease.release().await.unwrap();
                token
            })
        })
        .collect();
    let first_token = first.token().unwrap();
    first.release().await.unwrap();
    let mut tokens = vec![first_token];
    for waiter in waiters {
        tokens.push(waiter.await.unwrap());
    }
    tokens.sort_unstable();
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "{tokens:?}");
}

#[tokio::test]
async fn scripts_that_redis_has_forgotten_are_sent_again() {
    let redis = Redis::start().await.unwrap();
    let locks = locks(&redis.url());
    for _ in 0..2 {
        let lease = locks.acquire(&name("r"), tried(10_000)).await.unwrap();
        let _: () = redis.command(&["SCRIPT", "FLUSH"]).await.unwrap();
        lease.renew().await.unwrap();
        let _: () = redis.command(&["SCRIPT", "FLUSH"]).await.unwrap();
        assert_eq!(lease.release().await.unwrap(), Released::Released);
        let _: () = redis.command(&["SCRIPT", "FLUSH"]).await.unwrap();
    }
}

#[tokio::test]
async fn same_holder_receives_the_same_grant_again_and_the_full_ttl() {
    let redis = Redis::start().await.unwrap();
    let backend = lock_client::redis::Redis::open(&redis.url()).unwrap();
    let (name, holder) = (name("r"), fence::Holder::random());
    let first = backend.try_acquire(&name, &holder, ttl(30_000), Order::Unordered).await.unwrap();
    let again = backend.try_acquire(&name, &holder, ttl(60_000), Order::Unordered).await.unwrap();

    let granted = |attempt| match attempt {
        Attempt::Granted { token, ownership, .. } => (token, ownership),
        Attempt::Busy(contention) => panic!("{contention:?}"),
    };
    assert_eq!(granted(first), granted(again));
    let remaining = backend.status(&name).await.unwrap().held.unwrap().remaining.unwrap();
    assert!(remaining > Duration::from_secs(50), "{remaining:?}");
}

#[tokio::test]
async fn redis_that_is_down_is_a_clear_error_in_time() {
    let mut redis = Redis::start().await.unwrap();
    let locks = impatient_locks(&redis.url());
    redis.process().kill().unwrap();
    let begun = Instant::now();
    let tried = locks.acquire(&name("r"), tried(10_000)).await;
    assert!(matches!(tried, Err(AcquireError::Unavailable { .. })), "{tried:?}");
    assert!(begun.elapsed() < Duration::from_secs(8), "it has 2 seconds");
    let begun = Instant::now();
    let limited =
        locks.acquire(&name("r"), Terms::new(ttl(10_000)).wait(Duration::from_millis(100))).await;
    assert!(matches!(limited, Err(AcquireError::Unavailable { .. })), "{limited:?}");
    assert!(begun.elapsed() < Duration::from_secs(6), "it has a tenth of a second");
    redis.restart().await.unwrap();
    let _lease = locks.acquire(&name("r"), Terms::new(ttl(10_000)).no_wait()).await.unwrap();
}

#[tokio::test]
async fn acquire_that_gave_up_on_a_hung_redis_leaves_no_lock_behind() {
    let mut redis = Redis::start().await.unwrap();
    let locks = locks(&redis.url());
    locks.status(&name("r")).await.unwrap();
    redis.process().pause().await.unwrap();
    let tried = locks.acquire(&name("r"), tried(600_000)).await;
    assert!(matches!(tried, Err(AcquireError::Unavailable { .. })), "{tried:?}");
    redis.process().resume().unwrap();
    // Redis now reads the tries, and the release that followed them.
    let lease = locks
        .acquire(&name("r"), Terms::new(ttl(1_000)).wait(Duration::from_secs(30)))
        .await
        .unwrap();
    lease.release().await.unwrap();
}

#[tokio::test]
async fn wait_for_the_background_ends_when_what_was_dropped_is_undone() {
    let redis = Redis::start().await.unwrap();
    let owner = locks(&redis.url());
    let locks = locks(&redis.url());
    let lease = owner.acquire(&name("r"), tried(60_000)).await.unwrap();

    let r = name("r");
    let stands = || async { Ok(owner.status(&r).await?.queued == 1) };
    tokio::select! {
        had = locks.acquire(&r, Terms::new(ttl(60_000)).fair()) => panic!("it is taken: {had:?}"),
        stands = testbed::wait::until_async(Duration::from_secs(10), stands) => stands.unwrap(),
    }
    locks.wait_for_background().await;
    assert_eq!(owner.status(&name("r")).await.unwrap().queued, 0);

    drop(lease);
    owner.wait_for_background().await;
    assert_eq!(owner.status(&name("r")).await.unwrap().held, None);
}
