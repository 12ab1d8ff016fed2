//! An etcd is restored from a snapshot that is older than the last grant. It counts its revisions
//! again, so that it issues a token twice.

use super::{
    definition::Scenario,
    stage::{
        etcd_lock::EtcdLock,
        issued_twice::{self, OVERWRITTEN, REISSUED},
        redis_lock::LONG_TTL,
        scene::Scene,
        stale_writes::{VALUE_1, VALUE_2},
        storage::Storage,
    },
};
use crate::{
    client::setup::Offer,
    record::{Actor, Checks, Danger, Outcome, World},
};

const INVOICE: &str = "invoice-7";

pub(super) const SCENARIO: Scenario = Scenario {
    name: "etcd-restored",
    title: "an etcd restored from a snapshot",
    needs: "etcd",
    seconds: 3,
    claim: "An etcd that was restored from a snapshot counts its revisions again and issues one \
            token to two clients, and one overwrites what the other wrote. A storage that binds \
            tokens to holders rejects the second client, which takes a higher token because it \
            has read nothing yet, and the first client loses its lease.",
    worlds: &[
        World {
            name: "token-alone",
            title: "TOKENS ALONE: the storage checks tokens, and does not know whose they are",
            danger: Danger::Strikes,
            checks: Checks::Tokens,
            end: &OVERWRITTEN,
        },
        World {
            name: "token-and-holder",
            title: "TOKENS AND HOLDERS: the storage binds each token to its holder",
            danger: Danger::Averted,
            checks: Checks::Tokens,
            end: &REISSUED,
        },
    ],
    tracks: &[Actor::Client1, Actor::Etcd, Actor::Client2, Actor::Storage],
    story: |scene| Box::pin(story(scene)),
};

async fn story(scene: &mut Scene) -> anyhow::Result<Outcome> {
    let offer = match scene.world.danger {
        Danger::Strikes => Offer::Token,
        Danger::Averted => Offer::Reissued,
    };
    let storage = Storage::start(scene).await?;
    let mut lock = EtcdLock::start(INVOICE, scene).await?;
    let snapshot = lock.save_snapshot().await?;

    // Client 1 holds the lock, and is about to write.
    let mut client_1 = scene.client(Actor::Client1, INVOICE, lock.setup(), storage.setup(offer))?;
    client_1.acquire_read_and_check(LONG_TTL).await?;

    // The snapshot knows neither its lock nor the revision that it got.
    lock.restore(&snapshot).await?;

    // Client 2 acquires the lock too, and is about to write.
    let mut client_2 = scene.client(Actor::Client2, INVOICE, lock.setup(), storage.setup(offer))?;
    client_2.acquire_read_and_check(LONG_TTL).await?;

    client_1.write(VALUE_1).await?;
    client_1.release().await?;
    client_2.write(VALUE_2).await?;
    client_2.release().await?;
    Ok(issued_twice::outcome(&scene.recorder.events(), storage.stored(INVOICE).await?))
}
