//! Redis as it is run in production: with users and passwords, encrypted, behind Sentinels, as a
//! Cluster.

use std::time::Duration;

use fence::Holder;
use lock_client::{
    AcquireError, Locks, Order, Terms,
    backend::{Backend, BackendError},
};
use testbed::{Redis, RedisCluster, Sentinels, wait::until_async};
use tokio::time::{sleep, timeout};

use crate::{
    lock_service::{channels, impatient_locks, locks, tried, ttl, unrenewed, with_causes},
    names::name,
};

const SOON: Duration = Duration::from_secs(30);

/// The rights of a user, as `lock-client/README.md` lists them.
pub(crate) const ACL: &str = "resetchannels &fenced:* ~fenced:* -@all +eval +evalsha +ping +publish \
                   +subscribe +unsubscribe +exists +get +set +incr +del +pexpire +pttl +time \
                   +zadd +zrem +zrange +zrank +zmscore +zcard";

/// Locks, renews, waits in both orders, and releases. The waiter subscribes on one of these
/// servers.
async fn assert_locks(locks: &Locks, servers: &[&Redis], lock: &str) {
    let listening = async |count| {
        let subscribed = async || {
            let mut sum = 0;
            for redis in servers {
                sum += channels(redis).await?;
            }
            Ok(sum == count)
        };
        until_async(SOON, subscribed).await.unwrap();
    };
    let name = name(lock);
    let mut last = None;
    for terms in [Terms::new(ttl(60_000)), Terms::new(ttl(60_000)).fair()] {
        let lease = locks.acquire(&name, tried(60_000)).await.unwrap();
        lease.renew().await.unwrap();
        lease.reissue(lease.token().unwrap()).await.unwrap();
        let (waiting, waited_for) = (locks.clone(), name.clone());
        let waiter = tokio::spawn(async move {
            let lease = waiting.acquire(&waited_for, terms).await.unwrap();
            let token = lease.token().unwrap();
            lease.release().await.unwrap();
            token
        });
        listening(1).await;
        assert!(!waiter.is_finished(), "the lock is not acquired before it is released");
        let token = lease.token().unwrap();
        lease.release().await.unwrap();
        let next = timeout(SOON, waiter).await.expect("it is acquired soon").unwrap();
        assert!(token < next && Some(token) > last);
        last = Some(next);
        listening(0).await;
    }
}

/// Makes a user `locker` that has the documented rights, and further ones.
async fn make_user(redis: &Redis, further: &[&str]) {
    let user = ["ACL", "SETUSER", "locker", "on", ">secret"];
    let rights: Vec<_> = ACL.split_whitespace().chain(further.iter().copied()).collect();
    let _: String = redis.command(&[&user[..], &rights].concat()).await.unwrap();
}

/// Acquires a lock that another holder then waits for in the queue, and releases it.
async fn hand_over(url: &str) -> Result<(), BackendError> {
    let backend = lock_client::redis::Redis::open(url).unwrap();
    let (r, owner, next) = (name("r"), Holder::random(), Holder::random());
    backend.try_acquire(&r, &owner, ttl(60_000), Order::Fair).await?;
    backend.try_acquire(&r, &next, ttl(60_000), Order::Fair).await?;
    let wakeups = backend.subscribe(&r, &next, Order::Fair).await?;
    backend.status(&r).await?;
    backend.release(&r, &owner, None).await?;
    timeout(SOON, wakeups.next()).await.expect("it is woken");
    backend.try_acquire(&r, &next, ttl(60_000), Order::Fair).await?;
    backend.release(&r, &next, None).await?;
    Ok(())
}

#[tokio::test]
async fn user_with_no_more_than_the_documented_rights_can_lock() {
    let redis = Redis::start_on_tcp(&[]).await.unwrap();
    make_user(&redis, &[]).await;
    let url = redis.url_as("locker", "secret");
    assert_locks(&locks(&url), &[&redis], "r").await;
    let at_socket = format!("redis+unix://{}?user=locker&pass=secret", redis.socket().display());
    assert_locks(&locks(&at_socket), &[&redis], "r").await;
    hand_over(&url).await.unwrap();

    // The negative control: without one of these rights, it is rejected.
    // Without INCR, an acquire does by other commands what INCR does.
    let not_needed_here = ["+ping", "+unsubscribe", "+incr"];
    let needed = |right: &&str| right.starts_with('+') && !not_needed_here.contains(right);
    for right in ACL.split_whitespace().filter(needed) {
        let _: () = redis.command(&["SCRIPT", "FLUSH"]).await.unwrap();
        let revoked = right.replace('+', "-");
        let _: String = redis.command(&["ACL", "SETUSER", "locker", &revoked]).await.unwrap();
        let rejected = hand_over(&url).await;
        let _: String = redis.command(&["ACL", "SETUSER", "locker", right]).await.unwrap();
        let _: () = redis.command(&["FLUSHALL"]).await.unwrap();
        assert!(matches!(rejected, Err(BackendError::Rejected(_))), "{right}: {rejected:?}");
    }
}

#[tokio::test]
async fn user_of_another_database_needs_select() {
    let redis = Redis::start_on_tcp(&[]).await.unwrap();
    make_user(&redis, &[]).await;
    let url = format!("{}/3", redis.url_as("locker", "secret"));
    let rejected = locks(&url).acquire(&name("r"), tried(1_000)).await;
    assert!(matches!(rejected, Err(AcquireError::Rejected { .. })), "{rejected:?}");
    make_user(&redis, &["+select"]).await;
    assert_locks(&locks(&url), &[&redis], "r").await;
}

#[tokio::test]
async fn user_of_a_cluster_needs_its_slots() {
    let mut cluster = RedisCluster::start().await.unwrap();
    let url = cluster.url().replace("://", "://locker:secret@");
    for (further, enough) in [(&[][..], false), (&["+cluster|slots"], true)] {
        for node in cluster.nodes() {
            make_user(node, further).await;
        }
        if enough {
            let nodes: Vec<_> = cluster.nodes().iter().collect();
            assert_locks(&locks(&url), &nodes, "r").await;
        } else {
            let rejected = locks(&url).acquire(&name("r"), tried(1_000)).await;
            assert!(matches!(rejected, Err(AcquireError::Rejected { .. })), "{rejected:?}");
        }
    }
}

#[tokio::test]
async fn wrong_password_is_a_clear_error_at_once() {
    let redis = Redis::start_on_tcp(&["--requirepass", "secret"]).await.unwrap();
    assert_locks(&locks(&redis.url_as("default", "secret")), &[&redis], "r").await;
    for url in [redis.url_as("default", "wrong"), redis.url()] {
        let rejected = locks(&url).acquire(&name("r"), ttl(1_000)).await;
        assert!(matches!(rejected, Err(AcquireError::Rejected { .. })), "{rejected:?}");
    }
}

#[tokio::test]
async fn database_of_the_url_is_used() {
    let redis = Redis::start_on_tcp(&[]).await.unwrap();
    let (zero, three) = (locks(&redis.url()), locks(&format!("{}/3", redis.url())));
    let _in_zero = zero.acquire(&name("r"), tried(60_000)).await.unwrap();
    let _in_three = three.acquire(&name("r"), tried(60_000)).await.unwrap();
    let keyspace: String = redis.command(&["INFO", "keyspace"]).await.unwrap();
    assert!(keyspace.contains("db3:keys=2"), "{keyspace}");

    // Only there.
    let _held = three.acquire(&name("s"), tried(60_000)).await.unwrap();
    let settings = ["db=3", "d%62=3", "db=5&db=3", "protocol=resp3&db=3"];
    let [upper, socket] = [
        redis.url().replace("redis://", "REDIS://"),
        format!("redis+unix://{}", redis.socket().display()),
    ];
    for url in [redis.url(), upper, socket] {
        for setting in settings {
            let url = format!("{url}?{setting}");
            let held = locks(&url).acquire(&name("s"), tried(60_000)).await;
            assert!(matches!(held, Err(AcquireError::Contended { .. })), "{url}: {held:?}");
        }
    }
}

#[tokio::test]
async fn protocol_of_the_url_is_used() {
    let redis = Redis::start_on_tcp(&[]).await.unwrap();
    assert_locks(&locks(&format!("{}?protocol=resp3", redis.url())), &[&redis], "r").await;
}

/// Begins to move the slot of a lock away from the node that has it, and moves nothing. Returns that
/// node, and the slot.
async fn open_slot(cluster: &mut RedisCluster, lock: &str) -> (usize, String) {
    let source = cluster.node_of(&format!("{{{lock}}}")).await.unwrap();
    let target = (source + 1) % 3;
    let nodes = cluster.nodes();
    let key = ["CLUSTER", "KEYSLOT", lock];
    let slot = nodes[0].command::<u64>(&key).await.unwrap().to_string();
    for (node, state, other) in [(target, "IMPORTING", source), (source, "MIGRATING", target)] {
        let id: String = nodes[other].command(&["CLUSTER", "MYID"]).await.unwrap();
        let set = ["CLUSTER", "SETSLOT", &slot, state, &id];
        let _: () = nodes[node].command(&set).await.unwrap();
    }
    (source, slot)
}

#[tokio::test]
async fn slot_that_is_moved_is_named() {
    let mut cluster = RedisCluster::start().await.unwrap();
    let locks = impatient_locks(&cluster.url());
    // Its counter stays, so that a part of its keys exists.
    locks.acquire(&name("r"), tried(60_000)).await.unwrap().release().await.unwrap();
    open_slot(&mut cluster, "r").await;
    let terms = Terms::new(ttl(60_000)).wait(Duration::from_millis(500));
    let error = locks.acquire(&name("r"), terms).await.unwrap_err();
    let text = with_causes(&error);
    assert!(matches!(error, AcquireError::Unavailable { .. }), "{text}");
    assert!(text.contains("slot moves to another node") && text.contains("TRYAGAIN"), "{text}");
}

#[tokio::test]
async fn release_is_repeated_until_the_slot_is_moved() {
    let mut cluster = RedisCluster::start().await.unwrap();
    let locks = impatient_locks(&cluster.url());
    let lease = locks.acquire(&name("r"), unrenewed(600_000)).await.unwrap();
    let (source, slot) = open_slot(&mut cluster, "r").await;
    let error = lease.release().await.unwrap_err();
    assert!(with_causes(&error).contains("TRYAGAIN"), "{}", with_causes(&error));
    // Longer than an answer is waited for.
    sleep(Duration::from_secs(4)).await;
    for node in cluster.nodes() {
        let _: () = node.command(&["CLUSTER", "SETSLOT", &slot, "STABLE"]).await.unwrap();
    }
    let node = &cluster.nodes()[source];
    let lock = ["GET", "fenced:{r}:lock"];
    let is_free = async || Ok(node.command::<Option<String>>(&lock).await?.is_none());
    until_async(SOON, is_free).await.expect("it is released");
}

/// A failover looks the same, so the wait goes on.
#[tokio::test]
async fn replica_is_named_until_it_is_the_primary() {
    let redis = Redis::start_on_tcp(&["--replicaof", "127.0.0.1", "1"]).await.unwrap();
    assert_waits(&redis, "it is a replica, which takes no writes", &["REPLICAOF", "NO", "ONE"])
        .await;
}

#[tokio::test]
async fn missing_replicas_are_named_until_they_are_there() {
    let redis = Redis::start_on_tcp(&["--min-replicas-to-write", "1"]).await.unwrap();
    let cure = ["CONFIG", "SET", "min-replicas-to-write", "0"];
    assert_waits(&redis, "fewer replicas are connected than min-replicas-to-write", &cure).await;
}

/// A limited wait ends with this reason. Another wait goes on, until a command has removed it.
async fn assert_waits(redis: &Redis, reason: &str, cure: &[&str]) {
    let locks = impatient_locks(&redis.url());
    let terms = Terms::new(ttl(60_000));
    let waited = locks.acquire(&name("r"), terms.wait(Duration::from_millis(100))).await;
    let error = waited.expect_err("it takes no writes");
    assert!(matches!(error, AcquireError::Unavailable { .. }), "{error:?}");
    let text = with_causes(&error);
    assert!(text.contains(reason) && !text.contains("no answer"), "{text}");

    let waiting = tokio::spawn(async move { locks.acquire(&name("r"), terms.wait(SOON)).await });
    sleep(Duration::from_secs(3)).await;
    assert!(!waiting.is_finished());
    let _: () = redis.command(cure).await.unwrap();
    waiting.await.unwrap().expect("it is acquired").release().await.unwrap();
}

#[tokio::test]
async fn connection_is_made_again_when_redis_comes_back() {
    let mut redis =
        Redis::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await.unwrap();
    let locks = locks(&redis.url());
    let before = locks.acquire(&name("r"), tried(60_000)).await.unwrap();
    redis.restart().await.unwrap();
    before.renew().await.unwrap_err();
    before.renew().await.expect("the lock has survived, and the next request connects");
    before.release().await.unwrap();
    assert_locks(&locks, &[&redis], "r").await;
}

#[tokio::test]
async fn primary_behind_sentinels_is_followed_through_a_failover() {
    let mut world = Sentinels::start().await.unwrap();
    let locks = locks(&world.url());
    assert_locks(&locks, &[world.primary()], "r").await;
    let lease = locks.acquire(&name("r"), tried(60_000)).await.unwrap();
    let token = lease.token().unwrap();
    // Otherwise the failover may lose the lock, because replication is asynchronous.
    let lock = ["GET", "fenced:{r}:lock"];
    let held: Option<String> = world.primary().command(&lock).await.unwrap();
    let replica = world.replica();
    let has_it = async || Ok(replica.command::<Option<String>>(&lock).await? == held);
    until_async(SOON, has_it).await.unwrap();
    // A waiter waits meanwhile.
    let waiting = locks.clone();
    let waiter = tokio::spawn(async move {
        let lease = waiting.acquire(&name("r"), ttl(60_000)).await.unwrap();
        lease.token().unwrap()
    });
    world.primary().process().kill().unwrap();
    world.fail_over().await.unwrap();
    until_async(SOON, async || Ok(lease.renew().await.is_ok())).await.expect("it is renewed there");
    lease.release().await.unwrap();
    let next = timeout(SOON, waiter).await.expect("the waiter is notified").unwrap();
    assert!(next > token);
}

#[tokio::test]
async fn keys_of_a_lock_share_a_slot_of_a_cluster() {
    let mut cluster = RedisCluster::start().await.unwrap();
    let locks = locks(&cluster.url());
    let mut nodes = Vec::new();
    for lock in ["a", "b", "c", "invoice-7", "x{y}z"] {
        assert_locks(&locks, &cluster.nodes().iter().collect::<Vec<_>>(), lock).await;
        nodes.push(
            cluster
                .node_of(&format!("{{{}}}", lock.replace('{', "%7B").replace('}', "%7D")))
                .await
                .unwrap(),
        );
    }
    nodes.sort_unstable();
    nodes.dedup();
    assert_eq!(nodes, [0, 1, 2], "the locks are on all three nodes");

    // A node that has forgotten its scripts, and one that was down.
    for node in cluster.nodes() {
        let _: () = node.command(&["SCRIPT", "FLUSH"]).await.unwrap();
    }
    let nodes: Vec<_> = cluster.nodes().iter().collect();
    assert_locks(&locks, &nodes, "a").await;
    cluster.nodes()[0].restart().await.unwrap();
    cluster.ready().await.unwrap();
    for lock in ["a", "b", "c", "invoice-7"] {
        assert_locks(&locks, &cluster.nodes().iter().collect::<Vec<_>>(), lock).await;
    }
}
