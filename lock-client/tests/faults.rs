//! Each fault really happens, and does to a client what it is meant to; without one, nothing happens.

use std::{
    collections::HashSet,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use redis::{AsyncConnectionConfig, RedisResult, aio::MultiplexedConnection};
use testbed::Redis;

use crate::{
    lock_service::{lasting, locks, waiting},
    names::name,
};
use testbed::faults::{Decisions, Fault, FaultyProxy, Odds};

const PATIENCE: Duration = Duration::from_secs(20);
/// Half of it is longer than a busy machine takes for a request.
const LONGEST: Duration = Duration::from_secs(1);
const NONE: Odds = Odds { longest: LONGEST, ..Odds::NONE };

/// A Redis, and a client of it through a proxy.
struct World {
    redis: Redis,
    proxy: FaultyProxy,
}

impl World {
    /// In which the first script has a fault, which holds back, if at all, for half of the longest
    /// time at least. The second has none.
    async fn with(odds: Odds) -> Self {
        let is_fit = |seed: &u64| {
            let decisions = Decisions { seed: *seed, node: 0, odds };
            let fits = match decisions.fault_of(0) {
                Some(
                    Fault::SlowRequest(wait)
                    | Fault::SlowReply(wait)
                    | Fault::Late(wait)
                    | Fault::AgainLater(wait),
                ) => wait > LONGEST / 2,
                fault => fault.is_some(),
            };
            fits && decisions.fault_of(1).is_none()
        };
        let seed = (0..).find(is_fit).unwrap();
        Self::decided_by(Decisions { seed, node: 0, odds }).await
    }

    async fn decided_by(decisions: Decisions) -> Self {
        let redis = Redis::start().await.unwrap();
        let proxy = FaultyProxy::to(redis.socket(), decisions).await;
        Self { redis, proxy }
    }

    async fn connect(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.proxy.url()).unwrap();
        let patient = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        client.get_multiplexed_async_connection_with_config(&patient).await.unwrap()
    }

    /// What Redis has at a key, asked directly.
    async fn value(&self, key: &str) -> Option<String> {
        self.redis.command(&["GET", key]).await.unwrap()
    }
}

/// Counts, in a script, and answers how often it has.
async fn count(connection: &mut MultiplexedConnection) -> RedisResult<u64> {
    let script = "return redis.call('INCR', 'count')";
    redis::cmd("EVAL").arg(script).arg(0).query_async(connection).await
}

/// Sends three things at once, the second of which is a script that counts.
async fn send_three(
    connection: &MultiplexedConnection,
) -> (RedisResult<String>, RedisResult<u64>, RedisResult<String>) {
    let [mut first, mut second, mut third] = [(); 3].map(|()| connection.clone());
    tokio::join!(
        async { redis::cmd("ECHO").arg("before").query_async(&mut first).await },
        count(&mut second),
        async { redis::cmd("ECHO").arg("after").query_async(&mut third).await },
    )
}

#[tokio::test]
async fn lost_request_ends_the_connection_after_what_came_before_and_is_not_executed() {
    let world = World::with(Odds { lost_request: 0.5, ..NONE }).await;
    let (before, lost, after) = send_three(&world.connect().await).await;
    assert_eq!(before.unwrap(), "before");
    assert!(lost.unwrap_err().is_connection_dropped());
    assert!(after.unwrap_err().is_connection_dropped());
    assert_eq!(world.value("count").await, None);
    assert_eq!(count(&mut world.connect().await).await.unwrap(), 1, "it goes on anew");
    assert_eq!(world.proxy.faults(), [Fault::LostRequest]);
}

#[tokio::test]
async fn lost_reply_ends_the_connection_after_what_came_before_and_its_request_is_executed() {
    let world = World::with(Odds { lost_reply: 0.5, ..NONE }).await;
    let (before, lost, after) = send_three(&world.connect().await).await;
    assert_eq!(before.unwrap(), "before");
    assert!(lost.unwrap_err().is_connection_dropped());
    assert!(after.unwrap_err().is_connection_dropped(), "no reply is taken for another's");
    assert_eq!(world.value("count").await.as_deref(), Some("1"));
    assert_eq!(world.proxy.faults(), [Fault::LostReply]);
}

#[tokio::test]
async fn late_request_is_executed_after_its_connection_has_ended() {
    let world = World::with(Odds { late: 0.5, ..NONE }).await;
    let (before, late, after) = send_three(&world.connect().await).await;
    assert_eq!(before.unwrap(), "before");
    assert!(late.unwrap_err().is_connection_dropped());
    assert!(after.unwrap_err().is_connection_dropped());
    assert_eq!(count(&mut world.connect().await).await.unwrap(), 1, "the other is still under way");
    world.proxy.settled().await;
    assert_eq!(world.value("count").await.as_deref(), Some("2"));
}

#[tokio::test]
async fn request_that_is_executed_twice_is_answered_once() {
    let world = World::with(Odds { twice: 0.5, ..NONE }).await;
    let mut connection = world.connect().await;
    let (before, twice, after) = send_three(&connection).await;
    assert_eq!((before.unwrap().as_str(), after.unwrap().as_str()), ("before", "after"));
    assert_eq!(twice.unwrap(), 1);
    assert_eq!(count(&mut connection).await.unwrap(), 3, "and replies stay with their requests");
}

#[tokio::test]
async fn request_can_be_executed_again_later() {
    let world = World::with(Odds { again_later: 0.5, ..NONE }).await;
    let mut connection = world.connect().await;
    assert_eq!(count(&mut connection).await.unwrap(), 1);
    assert_eq!(count(&mut connection).await.unwrap(), 2, "the other is still under way");
    world.proxy.settled().await;
    assert_eq!(world.value("count").await.as_deref(), Some("3"));
}

/// How long a script took to get to Redis, by the wall clock, and its reply to get back.
async fn journey(connection: &mut MultiplexedConnection) -> [Duration; 2] {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let sent = now();
    let script = "return redis.call('TIME')";
    let time = redis::cmd("EVAL").arg(script).arg(0).query_async(connection).await;
    let (seconds, micros) = time.unwrap();
    let executed = Duration::from_secs(seconds) + Duration::from_micros(micros);
    [executed.saturating_sub(sent), now().saturating_sub(executed)]
}

#[tokio::test]
async fn slow_request_is_executed_late_and_a_slow_reply_comes_late() {
    let journey = async |odds| {
        let world = World::with(odds).await;
        let mut connection = world.connect().await;
        let journey = journey(&mut connection).await;
        assert_eq!(count(&mut connection).await.unwrap(), 1);
        journey.map(|way| way > LONGEST / 2)
    };
    let (slow_request, slow_reply) = tokio::join!(
        journey(Odds { slow_request: 0.5, ..NONE }),
        journey(Odds { slow_reply: 0.5, ..NONE }),
    );
    assert_eq!((slow_request, slow_reply), ([true, false], [false, true]));
}

#[tokio::test]
async fn without_faults_nothing_goes_wrong() {
    let world = World::decided_by(Decisions { seed: 33, node: 0, odds: NONE }).await;
    let mut connection = world.connect().await;
    for expected in 1..=100 {
        assert_eq!(count(&mut connection).await.unwrap(), expected);
    }
    assert_eq!(world.value("count").await.as_deref(), Some("100"));
    assert_eq!(world.proxy.faults(), []);
}

#[tokio::test]
async fn seed_decides_the_same_again_and_something_else_for_another_node() {
    let rough = Odds::rough(Duration::from_millis(5));
    let mut runs = Vec::new();
    for node in [0, 0, 1] {
        let world = World::decided_by(Decisions { seed: 34, node, odds: rough }).await;
        let (mut connection, mut answered) = (world.connect().await, 0);
        for _ in 0..150 {
            match count(&mut connection).await {
                Ok(_) => answered += 1,
                Err(_) => connection = world.connect().await,
            }
        }
        world.proxy.settled().await;
        let faults = world.proxy.faults();
        let number = |is: fn(&Fault) -> bool| faults.iter().filter(|fault| is(fault)).count();
        let unanswered =
            number(|fault| matches!(fault, Fault::LostRequest | Fault::LostReply | Fault::Late(_)));
        let lost = number(|fault| matches!(fault, Fault::LostRequest));
        let doubled = number(|fault| matches!(fault, Fault::Twice | Fault::AgainLater(_)));
        assert_eq!(answered, 150 - unanswered);
        let executed = world.value("count").await.unwrap();
        assert_eq!(executed, (150 - lost + doubled).to_string());
        let kinds: HashSet<_> = faults.iter().map(std::mem::discriminant).collect();
        assert_eq!(kinds.len(), 7, "each of them happens: {faults:?}");
        runs.push(faults);
    }
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
}

#[tokio::test]
async fn many_at_once_over_one_connection_each_get_their_own_reply() {
    let odds = Odds { lost_request: 0.0, lost_reply: 0.0, late: 0.0, ..Odds::rough(LONGEST / 100) };
    let world = World::decided_by(Decisions { seed: 35, node: 0, odds }).await;
    let connection = world.connect().await;
    let echoes = (0..200).map(|number| {
        let mut connection = connection.clone();
        tokio::spawn(async move {
            let mut echo = redis::cmd("EVAL");
            echo.arg("return ARGV[1]").arg(0).arg(number);
            assert_eq!(echo.query_async::<usize>(&mut connection).await.unwrap(), number);
        })
    });
    for echo in echoes.collect::<Vec<_>>() {
        echo.await.unwrap();
    }
    assert!(!world.proxy.faults().is_empty());
}

#[tokio::test]
async fn waiter_is_woken_through_the_proxy() {
    let world = World::decided_by(Decisions { seed: 33, node: 0, odds: NONE }).await;
    let (near, far) = (locks(&world.redis.url()), locks(&world.proxy.url()));
    let lease = near.acquire(&name("r"), lasting()).await.unwrap();
    let waiter = waiting(&world.redis, &far, lasting().wait(PATIENCE)).await;
    lease.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}
