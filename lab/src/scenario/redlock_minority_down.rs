//! Of five nodes, two are cut off, and then, while a client holds the lock, the other three.

use testbed::NodeKind;

use super::{
    definition::Scenario,
    stage::{
        findings::{lease_over, most_holders_at_once, updates_lost},
        nodes::Nodes,
        redis_lock::LONG_TTL,
        scene::Scene,
        stale_writes::{VALUE_1, VALUE_2},
        storage::Storage,
    },
};
use crate::{
    client::{
        command::Terms,
        setup::{LockSetup, Offer, RedlockKind},
    },
    record::{Actor, Checks, Danger, Expected, Outcome, World},
};

const INVOICE: &str = "invoice-7";

pub(super) const SCENARIO: Scenario = Scenario {
    name: "redlock-minority-down",
    title: "two of five are cut off, then three",
    needs: "",
    seconds: 4,
    claim: "With two nodes of five cut off, Redlock goes on. With three cut off, a client that counts \
            only the nodes that answer takes a lock that another client holds, and overwrites what \
            it has not read; a client that counts all nodes gets no lock, and leaves nothing \
            behind.",
    worlds: &[
        World {
            name: "majority-of-answers",
            title: "OF THE ANSWERS: a client has the lock if most nodes that answer grant it",
            danger: Danger::Strikes,
            checks: Checks::Nothing,
            end: &ending_with([2, 2, 1]),
        },
        World {
            name: "majority-of-all",
            title: "OF ALL: the lock client has the lock if most of all nodes grant it",
            danger: Danger::Averted,
            checks: Checks::Tokens,
            end: &ending_with([1, 0, 0]),
        },
    ],
    tracks: &[Actor::Client1, Actor::Nodes, Actor::Client2, Actor::Storage],
    story: |scene| Box::pin(story(scene)),
};

const fn ending_with([holders, taken, lost]: [u64; 3]) -> [(&'static str, Expected); 4] {
    [
        ("value", Expected::Text(VALUE_2)),
        ("holders_at_once", Expected::Number(holders)),
        ("taken_by_a_minority", Expected::Number(taken)),
        ("updates_lost", Expected::Number(lost)),
    ]
}

async fn story(scene: &mut Scene) -> anyhow::Result<Outcome> {
    let storage = Storage::start(scene).await?;
    let nodes = Nodes::start(INVOICE, &[NodeKind::FORGETFUL; 5], scene).await?;
    let (lock, offer) = match scene.world.danger {
        Danger::Strikes => {
            let kind = RedlockKind::MajorityOfAnswers;
            (LockSetup::NaiveRedlock { nodes: nodes.urls(), kind }, Offer::Nothing)
        }
        Danger::Averted => {
            nodes.start_cluster(LONG_TTL).await?;
            (nodes.setup(), Offer::TokenAndHolder)
        }
    };
    let client = |actor| scene.client(actor, INVOICE, lock.clone(), storage.setup(offer));

    // With D and E cut off, client 1 acquires the lock on A, B and C.
    nodes.cut_off(3..5).await?;
    let mut client_1 = client(Actor::Client1)?;
    client_1.acquire_read_and_check(LONG_TTL).await?;

    // With A, B and C cut off, D and E know nothing of client 1.
    nodes.reconnect(3..5)?;
    nodes.cut_off(0..3).await?;
    let mut client_2 = client(Actor::Client2)?;
    let beside = client_2.try_acquire(Terms::new(LONG_TTL)).await?;
    if beside {
        client_2.read().await?;
        client_2.check_lease().await?;
    }
    let taken = nodes.check_taken(3..5).await?;

    // When all nodes are back, client 1 writes, and then client 2.
    nodes.reconnect(0..3)?;
    client_1.write(VALUE_1).await?;
    client_1.release().await?;
    if !beside {
        client_2.acquire_read_and_check(LONG_TTL).await?;
    }
    client_2.write(VALUE_2).await?;
    client_2.release().await?;

    let events = scene.recorder.events();
    Ok(Outcome::default()
        .with("value", storage.stored(INVOICE).await?.value)
        .with("holders_at_once", most_holders_at_once(&events, lease_over))
        .with("taken_by_a_minority", taken)
        .with("updates_lost", updates_lost(&events)))
}
