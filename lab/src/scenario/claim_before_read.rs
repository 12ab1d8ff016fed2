//! Checking the tokens of writes is not enough. Client 2 has the higher token, but the storage
//! first sees it with client 2's write, and client 1 writes between client 2's read and its write.

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
    name: "claim-before-read",
    title: "checked writes, unclaimed reads",
    needs: "postgresql",
    seconds: 15,
    claim: "A storage that checks the token of every write still loses an update if clients read \
            without claiming; if they claim before they read, it loses none.",
    worlds: &[
        World {
            name: "writes-only",
            title: "WITHOUT fenced reads: the table checks each write's token, and reads claim \
                    nothing",
            danger: Danger::Strikes,
            checks: Checks::Tokens,
            end: &ending_with("2", 34, [0, 0, 1]),
        },
        World {
            name: "fenced-reads",
            title: "WITH fenced reads: the clients claim before they read",
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
        Danger::Strikes => Guard::Present,
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

    // Client 2 has read 10 too, and has not written yet.
    let mut client_2 = client(Actor::Client2)?;
    client_2.acquire_token(34, LONG_TTL).await?;
    client_2.read().await?;
    client_2.check_lease().await?;

    // Client 1 wakes up and writes that 5 are left: rejected only if client 2's read has claimed.
    client_1.resume()?;
    client_1.finish_write().await?;
    client_1.release().await?;

    // Client 2 writes that 2 are left of the 10 that it has read.
    client_2.sell(8).await?;
    client_2.release().await?;

    let events = scene.recorder.events();
    Ok(stale_writes::outcome(&events, table.value().await?, last_token(&events)))
}
