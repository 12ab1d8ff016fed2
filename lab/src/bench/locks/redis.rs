//! Locks on one Redis.

use std::{
    num::{NonZeroU64, NonZeroUsize},
    slice,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use fence::ResourceName;
use lock_client::{
    Order::{Fair, Unordered},
    backend::Backend,
};
use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};
use tokio::time::sleep;

#[cfg(target_os = "linux")]
use super::processors::{self, Separation};
use super::{
    Amounts, FEW, HOLD,
    handover::{Handover, Manner, Rest},
    held_leases::HeldLeases,
    ours::Ours,
    python::{Package, Python},
    service::Service,
};
use crate::bench::{
    goal::Goal,
    peer::{self, RsLock, TTL, name, new_name},
    report::{Report, Rows},
    subject::{self, Subject, Times},
    work::{Meter, Work},
};

/// The time of a holder if every release makes all clients ask the server again.
const CROWDED_HOLD: Duration = Duration::from_millis(10);
/// The time of an idle holder: long enough for this process and the server to go to sleep.
const PAUSE: Duration = Duration::from_millis(5);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

// The numbers of some subjects.
const PING: usize = 0;
const PING_AFTER_PAUSE: usize = 1;
const OURS: usize = 2;
const OURS_NEW: usize = 3;
const RSLOCK: usize = 4;
const RSLOCK_NEW: usize = 5;
/// How many come before the handovers.
const UNCONTENDED: usize = 8;

pub(super) async fn measure(amounts: Amounts, rounds: usize) -> anyhow::Result<Report> {
    let redis = Arc::new(Redis::start().await?);
    let ours = Ours::new(redis.clone(), 1)?;
    let apart = Ours::new(redis.clone(), amounts.waiters.get() + 1)?;
    let rslock = RsLock::open(slice::from_ref(&redis.url()))?;
    let python = Python::start(Package::Redis, &redis.url())?;
    let mut subjects = uncontended(amounts, &redis, &ours, &rslock, &python);
    subjects.extend(handovers(amounts, &redis, &ours, &apart, &rslock, &python));
    subject::measure("Redis", &mut subjects, rounds).await?;
    let held_for = Duration::from_secs(amounts.seconds.map_or(10, NonZeroU64::get));
    let (leases, ttl) = (amounts.leases.get(), held_for * 2 / 5);
    let evalshas = |work: &Work| work.calls_of("evalsha");
    let leases = HeldLeases::measure(&*redis, leases, ttl, held_for, evalshas).await?;

    let mut report = Report::default();
    report.value("service", "redis");
    report.value("rounds", rounds);
    report.line(format_args!(
        "Locks on one Redis, over TCP on this machine; each kind in one thread; {rounds} rounds\n"
    ));
    let (uncontended, handovers) = subjects.split_at(UNCONTENDED);
    let ping = &subjects[PING];
    let title = "uncontended, one after the other";
    report.table(with_columns(Rows::new("uncontended", uncontended).times(title), ping));
    let title = "handover (busy for 1 ms unless noted)";
    report.table(with_columns(Rows::new("handovers", handovers).times(title), ping));
    report.value("leases", &leases);
    report.line(&leases);

    let ratio = |part: usize, whole: usize| subjects[part].ratio(&subjects[whole]);
    let mean = |subject: &Subject<'_, Times>, count: fn(&Work) -> u64| {
        subject.mean(count).unwrap_or(f64::NAN)
    };
    let mut goals = vec![
        Goal::at_most("acquire, token, release of rslock's", 1.15, ratio(OURS, RSLOCK)),
        Goal::at_most("the same, new names", 1.15, ratio(OURS_NEW, RSLOCK_NEW)),
        // One to acquire, and one to release.
        Goal::at_most("EVALSHAs to acquire and release", 2.0, mean(&subjects[OURS], evalshas)),
    ];
    goals.extend(handovers[..6].iter().flat_map(|subject| handover_goals(subject, "PINGs", ping)));
    let after_pause = &subjects[PING_AFTER_PAUSE];
    goals.extend(
        handovers[6..8]
            .iter()
            .flat_map(|subject| handover_goals(subject, "PINGs after a pause", after_pause)),
    );
    let [few_fair, many_fair] =
        [1, 3].map(|number: usize| mean(&handovers[number], Work::all_calls));
    let many_of_few = many_fair / few_fair;
    let subject = format!("commands per fair handover, {} wait of {FEW}", amounts.waiters);
    goals.push(Goal::at_most(subject, 1.1, many_of_few));
    goals.push(Goal::at_least("leases held in the end", 1.0, leases.part_held()));
    let peak = leases.held.peak_rss_mib;
    goals.extend(peak.map(|peak| Goal::at_most("peak memory in MiB", 100.0, peak)));
    report.goals(&goals);
    Ok(report)
}

fn uncontended<'a>(
    amounts: Amounts,
    redis: &'a Redis,
    ours: &'a Ours,
    rslock: &'a RsLock,
    python: &'a Python,
) -> Vec<Subject<'a, Times>> {
    let acquires = amounts.acquires.map_or(5000, NonZeroUsize::get);
    let pings = |title: &'static str, pause, amount| {
        Subject::new(title, amount, move |count| ours.metered(redis.pings(pause, count)))
    };
    let of_rslock = |title: &'static str, names: fn(usize) -> Vec<ResourceName>| {
        Subject::new(title, acquires, move |count| async move {
            ours.metered(peer::cycles(rslock, &names(count))).await
        })
    };
    let of_python = |title: &'static str, request: fn(usize) -> Value| {
        Subject::new(title, acquires, move |count| async move {
            ours.metered(python.measure(&request(count))).await
        })
    };
    vec![
        pings("PING", Duration::ZERO, acquires),
        pings("PING after a pause of 5 ms", PAUSE, amount_of_handovers(amounts)).once_a_round(),
        ours.cycles("acquire, token, release", acquires),
        ours.cycles_of_new("the same, a new name each time", acquires),
        of_rslock("rslock: acquire, release", |count| vec![name("same"); count]),
        of_rslock("the same, a new name each time", |count| {
            (0..count).map(|_| new_name()).collect()
        }),
        of_python("Python: PING", |count| json!({ "what": "pings", "count": count })),
        of_python(
            "Python: acquire, release",
            |count| json!({ "what": "cycles", "count": count, "name": "python", "ttl": TTL.as_secs() }),
        ),
    ]
}

fn handovers<'a>(
    amounts: Amounts,
    redis: &'a Arc<Redis>,
    ours: &'a Ours,
    apart: &'a Ours,
    rslock: &'a RsLock,
    python: &'a Python,
) -> Vec<Subject<'a, Times>> {
    let (amount, polled) = (amount_of_handovers(amounts), amounts.polled_handovers.get());
    let many = amounts.waiters.get();
    let (busy, crowded, idle) = (Rest::Busy(HOLD), Rest::Busy(CROWDED_HOLD), Rest::Idle(PAUSE));
    let of_rslock = move |count| async move {
        let manner = Arc::new(Polling { redis: redis.clone(), before: redis.work_now().await? });
        let handover = Handover { peers: slice::from_ref(rslock), waiters: FEW, manner };
        handover.measure(count, async || redis.work_now().await).await
    };
    // The work includes the threads' first and last tries.
    let of_python = move |count| async move {
        let request = json!({
            "what": "handovers", "count": count, "name": "python", "ttl": TTL.as_secs(),
            "waiters": FEW, "hold": HOLD.as_secs_f64(),
        });
        let Times { times, work } = ours.metered(python.measure(&request)).await?;
        Ok(Times { times, work: work.into_iter().map(|work| work.without("ping")).collect() })
    };
    vec![
        ours.handovers("2 wait", amount, FEW, Unordered, busy),
        ours.handovers("2 wait, fair", amount, FEW, Fair, busy),
        ours.handovers(format!("{many} wait"), amount, many, Unordered, busy),
        ours.handovers(format!("{many} wait, fair"), amount, many, Fair, busy),
        apart.handovers(
            format!("{many} clients wait, busy for 10 ms"),
            amount,
            many,
            Unordered,
            crowded,
        ),
        apart.handovers(format!("{many} clients wait, fair"), amount, many, Fair, busy),
        ours.handovers("2 wait, idle for 5 ms", amount, FEW, Unordered, idle),
        ours.handovers("2 wait, idle for 5 ms, fair", amount, FEW, Fair, idle),
        Subject::new("rslock: 2 wait", polled, of_rslock).once_a_round(),
        Subject::new("Python: 2 wait", polled, of_python).once_a_round(),
    ]
}

fn amount_of_handovers(amounts: Amounts) -> usize {
    amounts.handovers.map_or(500, NonZeroUsize::get)
}

/// Times as multiples of the median PING, and what Redis did, in the mean.
fn with_columns<'a, 's>(
    rows: Rows<'a, Subject<'s, Times>>,
    ping: &Subject<'s, Times>,
) -> Rows<'a, Subject<'s, Times>> {
    rows.figure("p50 PINGs", "p50_pings", 1, |subject| Some(subject.ratio(ping)))
        .figure("p99 PINGs", "p99_pings", 1, |subject| {
            Some(subject.quantile_us(0.99) / ping.quantile_us(0.5))
        })
        .figure("commands", "commands", 2, |subject| subject.mean(Work::all_calls))
        .figure("EVALSHAs", "evalshas", 2, |subject| subject.mean(|work| work.calls_of("evalsha")))
        .figure("reads", "reads", 2, |subject| subject.mean(|work| work.reads))
        .only_json("calls", |subject| {
            let mean = |calls: &u64| *calls as f64 / subject.count() as f64;
            let work = subject.work();
            work.calls.iter().map(|(command, calls)| (command.clone(), mean(calls))).collect()
        })
}

/// The goals for a handover, in multiples of the median PING.
fn handover_goals<'a>(
    subject: &Subject<'a, Times>,
    pings: &str,
    ping: &Subject<'a, Times>,
) -> [Goal; 2] {
    let p99 = subject.quantile_us(0.99) / ping.quantile_us(0.5);
    [("p50", subject.ratio(ping), 5.0), ("p99", p99, 100.0)].map(|(quantile, measured, bound)| {
        let goal = format!("handover, {}: {quantile} in {pings}", subject.name());
        Goal::at_most(goal, bound, measured)
    })
}

/// A Redis that runs on a processor of its own, and the same kind of connection as ours and rslock's.
struct Redis {
    redis: testbed::Redis,
    meter: Meter,
    connection: MultiplexedConnection,
    #[cfg(target_os = "linux")]
    _separation: Separation,
}

impl Redis {
    async fn start() -> anyhow::Result<Self> {
        #[cfg_attr(not(target_os = "linux"), expect(unused_mut, reason = "nothing moves it"))]
        let mut redis = testbed::Redis::start_on_tcp(&[]).await?;
        Ok(Self {
            #[cfg(target_os = "linux")]
            _separation: processors::separate(redis.process().pid())?,
            meter: Meter::connect(&redis).await?,
            connection: testbed::redis::connect(redis.url()).await?,
            redis,
        })
    }

    /// Sends PINGs, each after a pause. A pause like that of an idle holder lets this process and Redis
    /// go to sleep, so that both have to wake up.
    async fn pings(&self, pause: Duration, count: usize) -> anyhow::Result<Vec<Duration>> {
        let mut times = Vec::new();
        for _ in 0..count {
            if !pause.is_zero() {
                sleep(pause).await;
            }
            let begun = Instant::now();
            self.round_trip().await?;
            times.push(begun.elapsed());
        }
        Ok(times)
    }

    async fn work_now(&self) -> anyhow::Result<Work> {
        self.meter.read().await
    }
}

#[async_trait]
impl Service for Redis {
    fn url(&self) -> String {
        self.redis.url()
    }

    fn backend(&self) -> anyhow::Result<Arc<dyn Backend>> {
        Ok(Arc::new(lock_client::redis::Redis::open(&self.url())?))
    }

    async fn round_trip(&self) -> anyhow::Result<()> {
        Ok(redis::cmd("PING").exec_async(&mut self.connection.clone()).await?)
    }

    async fn work(&self) -> anyhow::Result<Option<Work>> {
        self.work_now().await.map(Some)
    }
}

/// How rslock's clients wait: each of them has tried once.
struct Polling {
    redis: Arc<Redis>,
    before: Work,
}

#[async_trait]
impl Manner for Polling {
    async fn all_wait(&self) -> anyhow::Result<()> {
        // The first holder tried, too.
        while self.redis.work_now().await?.since(&self.before).calls_of("set") < 1 + FEW as u64 {
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    async fn hold(&self) -> anyhow::Result<()> {
        Rest::Busy(HOLD).pass(&*self.redis).await
    }
}
