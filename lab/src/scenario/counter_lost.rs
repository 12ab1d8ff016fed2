//! The lock service is killed and started again, and has kept nothing: no lock, and no counter.

use super::{
    definition::Scenario,
    stage::{
        issued_twice::{self, KEPT_GROWING, OVERWRITTEN, REISSUED},
        redis_lock::{Counter, LONG_TTL, RedisLock},
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
const FROM_0: &str = "from-0";
const FROM_0_REISSUED: &str = "from-0-reissued";

pub(super) const SCENARIO: Scenario = Scenario {
    name: "counter-lost",
    title: "a counter that starts again",
    needs: "",
    seconds: 2,
    claim: "A Redis that restarts without its data issues a token again if its counter starts at \
            0, and an update is lost; binding tokens to holders averts it, and so does a counter \
            that starts at the clock.",
    worlds: &[
        World {
            name: FROM_0,
            title: "FROM 0, tokens alone: the counter starts at 0, and the storage does not know \
                    whose a token is",
            danger: Danger::Strikes,
            checks: Checks::Tokens,
            end: &OVERWRITTEN,
        },
        World {
            name: FROM_0_REISSUED,
            title: "FROM 0, with holders: the storage binds each token to its holder, and a client \
                    whose first claim is rejected takes a higher token",
            danger: Danger::Averted,
            checks: Checks::Tokens,
            end: &REISSUED,
        },
        World {
            name: "from-the-clock",
            title: "FROM THE CLOCK: a missing counter starts at the time in milliseconds",
            danger: Danger::Averted,
            checks: Checks::Tokens,
            end: &KEPT_GROWING,
        },
    ],
    tracks: &[Actor::Client1, Actor::Redis, Actor::Client2, Actor::Storage],
    story: |scene| Box::pin(story(scene)),
};

async fn story(scene: &mut Scene) -> anyhow::Result<Outcome> {
    let (offer, counter) = match scene.world.name {
        FROM_0 => (Offer::Token, Counter::At(0)),
        FROM_0_REISSUED => (Offer::Reissued, Counter::At(0)),
        _ => (Offer::Reissued, Counter::AtTheClock),
    };
    let storage = Storage::start(scene).await?;
    let mut lock = RedisLock::start_counting(INVOICE, counter, scene).await?;

    // Client 1 holds the lock, and is about to write.
    let mut client_1 = scene.client(Actor::Client1, INVOICE, lock.setup(), storage.setup(offer))?;
    client_1.acquire_read_and_check(LONG_TTL).await?;

    // Redis forgets the lock and the counter.
    lock.restart().await?;
    lock.start_counter(counter).await?;

    // Client 2 acquires the lock too, and is about to write.
    let mut client_2 = scene.client(Actor::Client2, INVOICE, lock.setup(), storage.setup(offer))?;
    client_2.acquire_read_and_check(LONG_TTL).await?;

    client_1.write(VALUE_1).await?;
    client_1.release().await?;
    client_2.write(VALUE_2).await?;
    client_2.release().await?;
    Ok(issued_twice::outcome(&scene.recorder.events(), storage.stored(INVOICE).await?))
}
