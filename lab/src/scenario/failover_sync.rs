//! The primary of the storage's PostgreSQL dies, and a standby is promoted that lacks the last write.

use std::time::{Duration, Instant};

use super::{
    definition::Scenario,
    stage::{
        client::write,
        cluster::Cluster,
        redis_lock::RedisLock,
        scene::Scene,
        stale_writes::{self, VALUE_1, VALUE_2},
    },
};
use crate::{
    client::{command::millis, setup::Offer},
    record::{Actor, Checks, Danger, Expected, Outcome, World},
};

const INVOICE: &str = "invoice-7";
/// The ttl of the lease that will expire.
const SHORT: Duration = Duration::from_secs(3);
/// The ttl of the lease that outlasts the failover.
const LONG: Duration = Duration::from_secs(300);
/// How soon after a promotion writes must go through again.
const SOON_MS: u64 = 30_000;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "failover-sync",
    title: "a standby that lags is promoted",
    needs: "patroni",
    seconds: 65,
    claim: "A failover of PostgreSQL to a standby that lags loses a write that was acknowledged, \
            with its fence, and then 33 is accepted after 34. If a commit waits for a standby, and \
            the storage requires one, nothing that was acknowledged is lost; the write goes through \
            within 30 s of the promotion, and 33 is rejected.",
    worlds: &[
        World {
            name: "asynchronous",
            title: "ASYNCHRONOUS: a write is acknowledged once the primary has it",
            danger: Danger::Strikes,
            checks: Checks::Tokens,
            end: &ending_with(VALUE_1, 33, [1, 0, 1]),
        },
        World {
            name: "synchronous",
            title: "SYNCHRONOUS: a write is acknowledged once a standby has it, too",
            danger: Danger::Averted,
            checks: Checks::Tokens,
            end: &ending_with(VALUE_2, 34, [0, 1, 0]),
        },
    ],
    tracks: &[Actor::Client1, Actor::Redis, Actor::Client2, Actor::Database, Actor::Storage],
    story: |scene| Box::pin(story(scene)),
};

const fn ending_with(
    value: &'static str,
    token: u64,
    counts: [u64; 3],
) -> [(&'static str, Expected); 6] {
    let [value, token, accepted, rejected, lost] = stale_writes::ending_with(value, token, counts);
    let soon = ("ms_from_promotion_to_write", Expected::AtMost(SOON_MS));
    [value, token, accepted, rejected, lost, soon]
}

async fn story(scene: &mut Scene) -> anyhow::Result<Outcome> {
    let lock = RedisLock::start(INVOICE, scene).await?;
    let mut cluster = Cluster::start_in_world(INVOICE, scene).await?;
    // Each client has a storage server of its own, over one PostgreSQL.
    let (storage_1, storage_2) = (cluster.storage().await?, cluster.storage().await?);

    // Client 1 is paused just before it writes with token 33.
    let setup = storage_1.setup(Offer::TokenAndHolder);
    let mut client_1 = scene.client(Actor::Client1, INVOICE, lock.setup(), setup)?;
    let token_33 = client_1.acquire_token(33, scene.ttl(SHORT)).await?;
    client_1.read().await?;
    client_1.check_lease().await?;
    client_1.pause().await?;
    client_1.send(&write(VALUE_1))?;
    lock.expires(Actor::Client1, token_33).await?;

    // Client 2 writes with token 34, which no standby receives.
    cluster.cut_off_standbys().await?;
    let setup = storage_2.setup(Offer::Numbered);
    let mut client_2 = scene.client(Actor::Client2, INVOICE, lock.setup(), setup)?;
    client_2.acquire_token(34, LONG).await?;
    let mut last_write = Instant::now();
    client_2.send(&write(VALUE_2))?;
    match scene.world.danger {
        Danger::Strikes => {
            client_2.finish_write().await?;
            last_write = Instant::now();
        }
        // From the cut on, nothing is acknowledged.
        Danger::Averted => cluster.commit_waits().await?,
    }

    // The primary dies. Until a standby is promoted, and both servers follow it, nothing is acknowledged.
    cluster.kill_primary().await?;
    cluster.standby_promoted().await?;
    let promoted = Instant::now();
    tokio::try_join!(storage_1.writes_again(), storage_2.writes_again())?;
    let [without_a_write, after_the_promotion] =
        [last_write, promoted].map(|since| millis(since.elapsed()));

    // Client 2 has sent its write again, as long as it was not acknowledged.
    if scene.world.danger == Danger::Averted {
        client_2.finish_write().await?;
    }
    client_2.release().await?;

    // Client 1 wakes up, and writes with token 33.
    client_1.resume()?;
    client_1.finish_write().await?;
    client_1.release().await?;

    let stored = storage_1.stored(INVOICE).await?;
    let outcome = stale_writes::outcome(&scene.recorder.events(), stored.value, stored.token);
    Ok(outcome
        .with("ms_without_a_write", without_a_write)
        .with("ms_from_promotion_to_write", after_the_promotion))
}
