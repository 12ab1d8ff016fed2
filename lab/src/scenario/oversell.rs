//! A stock of 10, and orders of 5 and 8. The client with the first order is paused between reading
//! the stock and writing what is left.

use super::{
    definition::Scenario,
    stage::{
        redis_lock::{LONG_TTL, RedisLock, SHORT_TTL},
        scene::Scene,
        stale_writes::{self, ending_with},
        table::{Table, last_token},
    },
};
use crate::{
    client::{command::Command, setup::Guard},
    record::{Actor, Checks, Danger, Outcome, World},
};

const STOCK: &str = "stock";

pub(super) const SCENARIO: Scenario = Scenario {
    name: "oversell",
    title: "13 of 10 items are sold",
    needs: "postgresql",
    seconds: 10,
    claim: "Of a stock of 10, client 1 sells 5 and client 2 sells 8, because client 1 is paused \
            between reading and writing: 13 are sold, and 5 seem to be left. If each client claims \
            before it reads, only client 2 can sell.",
    worlds: &[
        World {
            name: "unfenced",
            title: "WITHOUT the fence: the table accepts every write",
            danger: Danger::Strikes,
            checks: Checks::Nothing,
            end: &ending_with("5", 33, [1, 0, 1]),
        },
        World {
            name: "fenced",
            title: "WITH the fence: the clients claim before they read, and the table is protected",
            danger: Danger::Averted,
            checks: Checks::Tokens,
            end: &ending_with("2", 34, [0, 1, 0]),
        },
    ],
    tracks: &[Actor::Client1, Actor::Redis, Actor::Client2, Actor::Storage],
    story: |scene| Box::pin(story(scene)),
};

async fn story(scene: &mut Scene) -> anyhow::Result<Outcome> {
    let guard = match scene.world.danger {
        Danger::Strikes => Guard::None,
        Danger::Averted => Guard::Claim,
    };
    let lock = RedisLock::start(STOCK, scene).await?;
    let mut table = Table::create(STOCK, "10", scene).await?;
    let client = |actor| scene.client(actor, STOCK, lock.setup(), table.setup(guard));

    // Client 1 has read 10, and is paused before it writes that 5 are left.
    let mut client_1 = client(Actor::Client1)?;
    let token_33 = client_1.acquire_token(33, scene.ttl(SHORT_TTL)).await?;
    client_1.read().await?;
    client_1.check_lease().await?;
    client_1.pause().await?;
    client_1.send(&Command::Sell { count: 5 })?;
    lock.expires(Actor::Client1, token_33).await?;

    // Client 2 has read 10 too, and writes that 2 are left.
    let mut client_2 = client(Actor::Client2)?;
    client_2.acquire_token(34, LONG_TTL).await?;
    client_2.read().await?;
    client_2.check_lease().await?;
    client_2.sell(8).await?;
    client_2.release().await?;

    // Client 1 wakes up and writes that 5 are left. The table accepts or rejects that.
    client_1.resume()?;
    client_1.finish_write().await?;
    client_1.release().await?;

    let events = scene.recorder.events();
    Ok(stale_writes::outcome(&events, table.value().await?, last_token(&events)))
}
