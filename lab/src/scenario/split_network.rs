//! The network splits. On one side are the old primary of the storage's PostgreSQL, client 1 and its
//! storage server, and on the other side all others.

use std::time::Duration;

use super::{
    definition::Scenario,
    stage::{
        client::write,
        cluster::Cluster,
        findings::count,
        redis_lock::{LONG_TTL, RedisLock},
        scene::Scene,
        stale_writes::{VALUE_1, VALUE_2},
    },
};
use crate::{
    client::{command::Command, setup::Offer},
    record::{Actor, Checks, Danger, Event, EventKind, Expected, Outcome, World},
};

const INVOICE: &str = "invoice-7";
/// The ttl of the lease that will expire.
const SHORT: Duration = Duration::from_secs(3);

pub(super) const SCENARIO: Scenario = Scenario {
    name: "split-network",
    title: "both sides of a network go on",
    needs: "patroni",
    seconds: 85,
    claim: "The network cuts the old primary of PostgreSQL off, with a client and a storage server \
            of its own. If a commit waits for the primary alone, writes are acknowledged on both \
            sides: 33 on the old one after 34 on the new one. If a standby is required, the old \
            side acknowledges no claim and no write.",
    worlds: &[
        World {
            name: "asynchronous",
            title: "ASYNCHRONOUS: a claim or a write is acknowledged once the primary has it",
            danger: Danger::Strikes,
            checks: Checks::Tokens,
            end: &ending_with([1, 1, 0]),
        },
        World {
            name: "synchronous",
            title: "SYNCHRONOUS: it is acknowledged once a standby has it, too",
            danger: Danger::Averted,
            checks: Checks::Tokens,
            end: &ending_with([0, 0, 2]),
        },
    ],
    tracks: &[Actor::Client1, Actor::Redis, Actor::Client2, Actor::Database, Actor::Storage],
    story: |scene| Box::pin(story(scene)),
};

/// The counts are those of claims and of writes that the old primary acknowledged, and of its
/// requests that it did not decide.
const fn ending_with([claims, writes, undecided]: [u64; 3]) -> [(&'static str, Expected); 6] {
    [
        ("value", Expected::Text(VALUE_2)),
        ("token", Expected::Number(34)),
        ("writes_by_the_new_primary", Expected::Number(1)),
        ("claims_by_the_old_primary", Expected::Number(claims)),
        ("writes_by_the_old_primary", Expected::Number(writes)),
        ("undecided_by_the_old_primary", Expected::Number(undecided)),
    ]
}

async fn story(scene: &mut Scene) -> anyhow::Result<Outcome> {
    let lock = RedisLock::start(INVOICE, scene).await?;
    let mut cluster = Cluster::start_in_world(INVOICE, scene).await?;
    let (old_side, new_side) =
        (cluster.storage_beside_the_primary().await?, cluster.storage().await?);

    // Client 1 holds the lock with token 33, and has claimed.
    let setup = old_side.setup(Offer::TokenAndHolder);
    let mut client_1 = scene.client(Actor::Client1, INVOICE, lock.setup(), setup)?;
    let token_33 = client_1.acquire_token(33, scene.ttl(SHORT)).await?;
    client_1.read().await?;
    client_1.check_lease().await?;

    // The network splits. On the other side, a standby is promoted.
    cluster.cut_off_primary().await?;
    client_1.stay_with_the_old_primary();
    lock.expires(Actor::Client1, token_33).await?;
    cluster.standby_promoted().await?;
    new_side.writes_again().await?;

    // Client 2 acquires the lock with token 34, and writes there.
    let setup = new_side.setup(Offer::TokenAndHolder);
    let mut client_2 = scene.client(Actor::Client2, INVOICE, lock.setup(), setup)?;
    client_2.acquire_token(34, LONG_TTL).await?;
    client_2.read().await?;
    client_2.check_lease().await?;
    client_2.write(VALUE_2).await?;
    client_2.release().await?;

    // Client 1 has not noticed anything. It claims again, reads, and writes with token 33.
    for command in [Command::Read, write(VALUE_1)] {
        client_1.send(&command)?;
        client_1.next().await?;
    }

    let stored = new_side.stored(INVOICE).await?;
    let events = scene.recorder.events();
    let requests = |of_kind: fn(&EventKind) -> bool| {
        let cut_off = events.iter().position(|event| event.kind == EventKind::PrimaryCutOff);
        count(&events[cut_off.unwrap_or_default()..], |event: &Event| {
            event.actor == Actor::Client1 && of_kind(&event.kind)
        })
    };
    let by_the_new = count(&events, |event| matches!(event.kind, EventKind::AcceptedWrite(_)));
    Ok(Outcome::default()
        .with("value", stored.value)
        .with("token", stored.token)
        .with("writes_by_the_new_primary", by_the_new)
        .with("claims_by_the_old_primary", requests(|kind| matches!(kind, EventKind::Read(_))))
        .with(
            "writes_by_the_old_primary",
            requests(|kind| matches!(kind, EventKind::Written { .. })),
        )
        .with(
            "undecided_by_the_old_primary",
            requests(|kind| matches!(kind, EventKind::Unavailable)),
        ))
}
