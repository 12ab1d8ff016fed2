//! Token 33 against token 34 without a storage server: the clients write straight into a table of
//! PostgreSQL, which checks the tokens itself.

use super::{
    definition::Scenario,
    stage::{
        client::write,
        redis_lock::{LONG_TTL, RedisLock, SHORT_TTL},
        scene::Scene,
        stale_writes::{self, VALUE_1, VALUE_2, ending_with},
        table::{Table, last_token},
    },
};
use crate::{
    client::setup::Guard,
    record::{Actor, Checks, Danger, Outcome, World},
};

const INVOICE: &str = "invoice-7";

pub(super) const SCENARIO: Scenario = Scenario {
    name: "embedded-postgres",
    title: "a table that checks tokens by itself",
    needs: "postgresql",
    seconds: 10,
    claim: "Your own PostgreSQL does it without a storage server: a protected table rejects the \
            client that was paused past its lease, and that would overwrite newer data.",
    worlds: &[
        World {
            name: "unfenced",
            title: "WITHOUT the fence: the table accepts every write",
            danger: Danger::Strikes,
            checks: Checks::Nothing,
            end: &ending_with(VALUE_1, 33, [1, 0, 1]),
        },
        World {
            name: "fenced",
            title: "WITH the fence: the table is protected, and the clients present their tokens",
            danger: Danger::Averted,
            checks: Checks::Tokens,
            end: &ending_with(VALUE_2, 34, [0, 1, 0]),
        },
    ],
    tracks: &[Actor::Client1, Actor::Redis, Actor::Client2, Actor::Storage],
    story: |scene| Box::pin(story(scene)),
};

async fn story(scene: &mut Scene) -> anyhow::Result<Outcome> {
    let guard = match scene.world.danger {
        Danger::Strikes => Guard::None,
        Danger::Averted => Guard::Present,
    };
    let lock = RedisLock::start(INVOICE, scene).await?;
    let mut table = Table::create(INVOICE, "empty", scene).await?;
    let client = |actor| scene.client(actor, INVOICE, lock.setup(), table.setup(guard));

    // Client 1 is paused just before it writes with token 33.
    let mut client_1 = client(Actor::Client1)?;
    let token_33 = client_1.acquire_token(33, scene.ttl(SHORT_TTL)).await?;
    client_1.read().await?;
    client_1.check_lease().await?;
    client_1.pause().await?;
    client_1.send(&write(VALUE_1))?;
    lock.expires(Actor::Client1, token_33).await?;

    // Client 2 acquires the lock with token 34, and writes.
    let mut client_2 = client(Actor::Client2)?;
    client_2.acquire_token(34, LONG_TTL).await?;
    client_2.read().await?;
    client_2.check_lease().await?;
    client_2.write(VALUE_2).await?;
    client_2.release().await?;

    // Client 1 wakes up and writes. The table accepts or rejects that.
    client_1.resume()?;
    client_1.finish_write().await?;
    client_1.release().await?;

    let events = scene.recorder.events();
    Ok(stale_writes::outcome(&events, table.value().await?, last_token(&events)))
}
