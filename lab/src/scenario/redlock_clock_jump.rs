//! The other example by which Redlock was criticised (Kleppmann, "How to do distributed locking",
//! 2016): the clock of a node jumps. There, a lock with a long time to go expires at once, and
//! another client acquires it with that node's vote.

use std::time::Duration;

use testbed::NodeKind;

use super::{
    definition::Scenario,
    stage::{
        findings::{lease_over, most_holders_at_once},
        nodes::Nodes,
        redis_lock::LONG_TTL,
        scene::Scene,
        stale_writes::{self, VALUE_1, VALUE_2, WITHOUT_AND_WITH_THE_FENCE},
        storage::Storage,
    },
};
use crate::{
    client::setup::Offer,
    record::{Actor, Outcome},
};

const INVOICE: &str = "invoice-7";
const JUMP: Duration = Duration::from_secs(60);
const B: usize = 1;
/// Node B's clock can jump.
const KINDS: [NodeKind<'_>; 3] = [NodeKind::FORGETFUL, NodeKind::OwnClock, NodeKind::FORGETFUL];

pub(super) const SCENARIO: Scenario = Scenario {
    name: "redlock-clock-jump",
    title: "the clock of a node jumps",
    needs: "",
    seconds: 2,
    claim: "If the clock of one node jumps, and another node was away when the lock was granted, \
            two clients hold it at once, and the first overwrites what the second wrote. A storage \
            that checks tokens rejects it, because the second client's token is still the higher \
            one.",
    worlds: &WITHOUT_AND_WITH_THE_FENCE,
    tracks: &[Actor::Client1, Actor::Nodes, Actor::Client2, Actor::Storage],
    story: |scene| Box::pin(story(scene)),
};

async fn story(scene: &mut Scene) -> anyhow::Result<Outcome> {
    let storage = Storage::start(scene).await?;
    let nodes = Nodes::start(INVOICE, &KINDS, scene).await?;
    nodes.start_cluster(LONG_TTL).await?;
    let client = |actor, nodes: &Nodes| {
        scene.client(actor, INVOICE, nodes.setup(), storage.setup(Offer::TokenAndHolder))
    };

    // With C away, A and B grant the lock to client 1.
    nodes.cut_off(2..3).await?;
    let mut client_1 = client(Actor::Client1, &nodes)?;
    client_1.acquire_read_and_check(LONG_TTL).await?;
    nodes.reconnect(2..3)?;

    // B's clock jumps past the lease: B and C grant the lock to client 2.
    nodes.jump(B, JUMP)?;
    let mut client_2 = client(Actor::Client2, &nodes)?;
    client_2.acquire_read_and_check(LONG_TTL).await?;
    client_2.write(VALUE_2).await?;
    client_2.release().await?;

    // Client 1, whose lease is still valid by its own clock, writes too.
    client_1.write(VALUE_1).await?;
    client_1.release().await?;

    let (events, stored) = (scene.recorder.events(), storage.stored(INVOICE).await?);
    Ok(stale_writes::outcome(&events, stored.value, stored.token)
        .with("holders_at_once", most_holders_at_once(&events, lease_over)))
}
