//! Lock and storage are in one PostgreSQL, whose standby is promoted without the last grant, and
//! without the fence of its token.

use std::time::Duration;

use super::{
    definition::Scenario,
    stage::{
        client::write,
        cluster::Cluster,
        findings::count,
        issued_twice,
        redis_lock::LONG_TTL,
        scene::Scene,
        stale_writes::{VALUE_1, VALUE_2},
        table_lock::TableLock,
    },
};
use crate::{
    client::setup::{LockSetup, Offer},
    record::{Actor, Checks, Danger, EventKind, Expected, Outcome, World},
};

const INVOICE: &str = "invoice-7";
const VALUE_3: &str = "by client 3";
/// The ttl of the lease that will expire.
const SHORT: Duration = Duration::from_secs(3);
/// The ttl of the lease that the failover forgets.
const LONG: Duration = Duration::from_secs(300);

const STALE: &str = "33-first";
const TOKEN_ALONE: &str = "token-alone";

pub(super) const SCENARIO: Scenario = Scenario {
    name: "failover-async",
    title: "lock and data fail over together",
    needs: "patroni",
    seconds: 85,
    claim: "A failover of PostgreSQL to an asynchronous standby loses acknowledged writes with their \
            fences. If 33 comes next, it is accepted after 34, and nothing notices. If the grant of \
            34 was lost, too, 34 comes again with another holder: a storage that knows no holders \
            loses an update, and one that does rejects the holder whose claim was lost.",
    worlds: &[
        World {
            name: STALE,
            title: "33 FIRST: nobody claims before the client that was paused writes. Not noticed",
            danger: Danger::Strikes,
            checks: Checks::Tokens,
            end: &ending_with(VALUE_1, [1, 0, 0, 1]),
        },
        World {
            name: TOKEN_ALONE,
            title: "34 AGAIN, tokens alone: the storage does not know whose a token is",
            danger: Danger::Strikes,
            checks: Checks::Tokens,
            end: &ending_with(VALUE_3, [0, 1, 0, 1]),
        },
        World {
            name: "token-and-holder",
            title: "34 AGAIN, with holders: the storage binds each token to its holder",
            danger: Danger::Averted,
            checks: Checks::Tokens,
            end: &ending_with(VALUE_3, [0, 1, 1, 0]),
        },
    ],
    tracks: &[Actor::Client1, Actor::Database, Actor::Client2, Actor::Client3, Actor::Storage],
    story: |scene| Box::pin(story(scene)),
};

/// The counts are those of stale writes accepted, tokens issued twice, holder conflicts, and updates
/// lost.
const fn ending_with(
    value: &'static str,
    [stale, twice, conflicts, lost]: [u64; 4],
) -> [(&'static str, Expected); 5] {
    [
        ("value", Expected::Text(value)),
        ("stale_writes_accepted", Expected::Number(stale)),
        ("tokens_given_twice", Expected::Number(twice)),
        ("holder_conflicts", Expected::Number(conflicts)),
        ("updates_lost", Expected::Number(lost)),
    ]
}

async fn story(scene: &mut Scene) -> anyhow::Result<Outcome> {
    let comes_33_first = scene.world.name == STALE;
    let offer = if scene.world.name == TOKEN_ALONE { Offer::Token } else { Offer::TokenAndHolder };
    let mut cluster = Cluster::start_asynchronous(INVOICE, scene).await?;
    let lock =
        TableLock::install_at(cluster.primary_url(), INVOICE, Actor::Database, scene).await?;
    let (storage_1, storage_2) = (cluster.storage().await?, cluster.storage().await?);

    // Client 1 is paused just before it writes with token 33.
    let setup = storage_1.setup(offer);
    let mut client_1 = scene.client(Actor::Client1, INVOICE, lock.setup(), setup)?;
    let token_33 = client_1.acquire_token(33, scene.ttl(SHORT)).await?;
    client_1.read().await?;
    client_1.check_lease().await?;
    client_1.pause().await?;
    client_1.send(&write(VALUE_1))?;
    lock.expires(Actor::Client1, token_33).await?;

    // No standby receives that client 2 acquires the lock with token 34, and claims.
    cluster.cut_off_standbys().await?;
    let setup = storage_2.setup(offer);
    let mut client_2 = scene.client(Actor::Client2, INVOICE, lock.setup(), setup)?;
    client_2.acquire_token(34, LONG).await?;
    client_2.read().await?;
    client_2.check_lease().await?;
    if comes_33_first {
        client_2.write(VALUE_2).await?;
    }

    // The primary dies, and a standby is promoted that knows neither.
    cluster.kill_primary().await?;
    cluster.standby_promoted().await?;
    tokio::try_join!(storage_1.writes_again(), storage_2.writes_again())?;

    if comes_33_first {
        // Client 1 wakes up, and writes with token 33.
        client_1.resume()?;
        client_1.finish_write().await?;
    } else {
        // Client 3 acquires the lock with token 34, and claims. So 33 comes too late now.
        let promoted = LockSetup::Postgres(cluster.primary_url());
        let setup = storage_1.setup(offer);
        let mut client_3 = scene.client(Actor::Client3, INVOICE, promoted, setup)?;
        client_3.acquire_token(34, LONG_TTL).await?;
        client_3.read().await?;
        client_3.check_lease().await?;
        client_1.resume()?;
        client_1.finish_write().await?;

        // Client 2 writes with the same token, and then client 3 does.
        client_2.write(VALUE_2).await?;
        client_3.write(VALUE_3).await?;
        client_3.release().await?;
    }

    let events = scene.recorder.events();
    let stale = count(&events, |event| matches!(event.kind, EventKind::AcceptedStaleWrite(_)));
    let outcome = issued_twice::outcome(&events, storage_1.stored(INVOICE).await?);
    Ok(outcome.with("stale_writes_accepted", stale))
}
