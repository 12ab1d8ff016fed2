//! Each fault that a seed decides does what its verdict says; without faults, everything passes.

use std::{
    collections::HashSet,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use redis::{RedisResult, aio::MultiplexedConnection};
use testbed::{
    Redis,
    proxy::{Framing, Odds, Proxy, SeededFaults, Verdict, rough_odds},
};

use super::connect;
use crate::value;

/// Half of it is longer than a busy machine takes for a request.
const LONGEST: Duration = Duration::from_secs(10);

/// A Redis behind a proxy with seeded faults.
struct World {
    redis: Redis,
    proxy: Proxy,
    faults: SeededFaults,
}

impl World {
    /// Returns one in which this fault strikes the first script, and none strikes the second. A
    /// time in the fault is at least half of the longest.
    async fn with(fault: Verdict) -> Self {
        let is_fit = |faults: &SeededFaults| {
            let is_long = match faults.verdict(0) {
                Verdict::Delay(wait)
                | Verdict::DelayReply(wait)
                | Verdict::Late(wait)
                | Verdict::Repeat(wait) => wait > LONGEST / 2,
                verdict => verdict != Verdict::Pass,
            };
            is_long && faults.verdict(1) == Verdict::Pass
        };
        let faults = (0..).map(|seed| SeededFaults::new(seed, 0, vec![(0.5, fault)]));
        Self::behind(faults.into_iter().find(is_fit).expect("seeds don't end")).await
    }

    async fn behind(faults: SeededFaults) -> Self {
        let redis = Redis::start().await.unwrap();
        let proxy = Proxy::start_framed(redis.socket(), Framing::Resp).await.unwrap();
        proxy.add(faults.clone());
        Self { redis, proxy, faults }
    }

    async fn connect(&self) -> MultiplexedConnection {
        connect(&self.proxy).await.unwrap()
    }

    /// Returns the count of Redis, without the proxy.
    async fn counted(&self) -> Option<String> {
        value(&self.redis, "count").await
    }
}

/// Counts in a script, and returns the new count.
async fn count(connection: &mut MultiplexedConnection) -> RedisResult<u64> {
    let script = "return redis.call('INCR', 'count')";
    redis::cmd("EVAL").arg(script).arg(0).query_async(connection).await
}

/// Sends three commands at once. The second is a script that counts.
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
    let world = World::with(Verdict::Drop).await;
    let (before, lost, after) = send_three(&world.connect().await).await;
    assert_eq!(before.unwrap(), "before");
    assert!(lost.unwrap_err().is_connection_dropped());
    assert!(after.unwrap_err().is_connection_dropped());
    assert_eq!(world.counted().await, None);
    assert_eq!(count(&mut world.connect().await).await.unwrap(), 1, "a new connection works");
    assert_eq!(world.faults.faults(), [Verdict::Drop]);
}

#[tokio::test]
async fn lost_reply_ends_the_connection_after_what_came_before_and_its_request_is_executed() {
    let world = World::with(Verdict::DropReply).await;
    let (before, lost, after) = send_three(&world.connect().await).await;
    assert_eq!(before.unwrap(), "before");
    assert!(lost.unwrap_err().is_connection_dropped());
    assert!(after.unwrap_err().is_connection_dropped(), "no reply goes to another request");
    assert_eq!(world.counted().await.as_deref(), Some("1"));
    assert_eq!(world.faults.faults(), [Verdict::DropReply]);
}

#[tokio::test]
async fn late_request_is_executed_after_its_connection_has_ended() {
    let world = World::with(Verdict::Late(LONGEST)).await;
    let (before, late, after) = send_three(&world.connect().await).await;
    assert_eq!(before.unwrap(), "before");
    assert!(late.unwrap_err().is_connection_dropped());
    assert!(after.unwrap_err().is_connection_dropped());
    assert_eq!(
        count(&mut world.connect().await).await.unwrap(),
        1,
        "the other has not been executed"
    );
    world.proxy.all_executed().await.unwrap();
    assert_eq!(world.counted().await.as_deref(), Some("2"));
}

#[tokio::test]
async fn request_that_is_executed_twice_is_answered_once() {
    let world = World::with(Verdict::Duplicate).await;
    let mut connection = world.connect().await;
    let (before, twice, after) = send_three(&connection).await;
    assert_eq!((before.unwrap().as_str(), after.unwrap().as_str()), ("before", "after"));
    assert_eq!(twice.unwrap(), 1);
    assert_eq!(count(&mut connection).await.unwrap(), 3, "replies stay with their requests");
}

#[tokio::test]
async fn request_can_be_executed_again_later() {
    let world = World::with(Verdict::Repeat(LONGEST)).await;
    let mut connection = world.connect().await;
    assert_eq!(count(&mut connection).await.unwrap(), 1);
    assert_eq!(count(&mut connection).await.unwrap(), 2, "the other has not been executed");
    world.proxy.all_executed().await.unwrap();
    assert_eq!(world.counted().await.as_deref(), Some("3"));
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
    let journey = async |fault| {
        let world = World::with(fault).await;
        let mut connection = world.connect().await;
        let journey = journey(&mut connection).await;
        assert_eq!(count(&mut connection).await.unwrap(), 1);
        journey.map(|way| way > LONGEST / 2)
    };
    let (slow_request, slow_reply) =
        tokio::join!(journey(Verdict::Delay(LONGEST)), journey(Verdict::DelayReply(LONGEST)),);
    assert_eq!((slow_request, slow_reply), ([true, false], [false, true]));
}

#[tokio::test]
async fn without_faults_nothing_goes_wrong() {
    let world = World::behind(SeededFaults::new(33, 0, Odds::new())).await;
    let mut connection = world.connect().await;
    for expected in 1..=100 {
        assert_eq!(count(&mut connection).await.unwrap(), expected);
    }
    assert_eq!(world.counted().await.as_deref(), Some("100"));
    assert_eq!(world.faults.faults(), []);
}

#[tokio::test]
async fn seed_decides_the_same_again_and_something_else_for_another_node() {
    let rough = rough_odds(Duration::from_millis(5));
    let mut runs = Vec::new();
    for node in [0, 0, 1] {
        let world = World::behind(SeededFaults::new(34, node, rough.clone())).await;
        let (mut connection, mut answered) = (world.connect().await, 0);
        for _ in 0..150 {
            match count(&mut connection).await {
                Ok(_) => answered += 1,
                Err(_) => connection = world.connect().await,
            }
        }
        world.proxy.all_executed().await.unwrap();
        let faults = world.faults.faults();
        let number = |is: fn(&Verdict) -> bool| faults.iter().filter(|fault| is(fault)).count();
        let unanswered =
            number(|fault| matches!(fault, Verdict::Drop | Verdict::DropReply | Verdict::Late(_)));
        let lost = number(|fault| matches!(fault, Verdict::Drop));
        let doubled = number(|fault| matches!(fault, Verdict::Duplicate | Verdict::Repeat(_)));
        assert_eq!(answered, 150 - unanswered);
        let executed = world.counted().await.unwrap();
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
    let mut odds = rough_odds(Duration::from_millis(10));
    odds.retain(|(_, fault)| {
        !matches!(fault, Verdict::Drop | Verdict::DropReply | Verdict::Late(_))
    });
    let world = World::behind(SeededFaults::new(35, 0, odds)).await;
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
    assert!(!world.faults.faults().is_empty());
}
