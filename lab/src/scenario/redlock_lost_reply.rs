//! Two of three nodes grant the lock to a client, and their replies are lost.

use std::time::Duration;

use testbed::{NodeKind, Proxy, wait::until};

use super::{
    definition::Scenario,
    stage::{
        client::Client,
        findings::count,
        nodes::Nodes,
        redis_lock::LONG_TTL,
        scene::Scene,
        stale_writes::{VALUE_1, VALUE_2},
        storage::Storage,
    },
};
use crate::{
    client::{
        command::{Command, Terms},
        setup::{LockSetup, Offer, RedlockKind},
    },
    record::{Actor, Checks, Danger, EventKind, Expected, Outcome, World},
};

const INVOICE: &str = "invoice-7";
const LOST_WITHIN: Duration = Duration::from_secs(10);

pub(super) const SCENARIO: Scenario = Scenario {
    name: "redlock-lost-reply",
    title: "the reply to a grant is lost",
    needs: "",
    seconds: 1,
    claim: "If the replies of two nodes of three are lost, a client that releases only the nodes \
            whose grant it received leaves a lock that nobody holds and nobody acquires; a client \
            that releases all nodes leaves none.",
    worlds: &[
        World {
            name: "where-granted",
            title: "WHERE IT WAS GRANTED: without a majority, a client releases the nodes whose \
                    grant it received",
            danger: Danger::Strikes,
            checks: Checks::Nothing,
            end: &[("taken_by_nobody", Expected::Number(2)), ("writes", Expected::Number(0))],
        },
        World {
            name: "everywhere",
            title: "EVERYWHERE: the lock client releases all nodes, and tries again",
            danger: Danger::Averted,
            checks: Checks::Tokens,
            end: &[("taken_by_nobody", Expected::Number(0)), ("writes", Expected::Number(2))],
        },
    ],
    tracks: &[Actor::Client1, Actor::Nodes, Actor::Client2, Actor::Storage],
    story: |scene| Box::pin(story(scene)),
};

async fn story(scene: &mut Scene) -> anyhow::Result<Outcome> {
    let storage = Storage::start(scene).await?;
    let nodes = Nodes::start(INVOICE, &[NodeKind::FORGETFUL; 3], scene).await?;
    let danger = scene.world.danger;
    if danger == Danger::Averted {
        nodes.start_cluster(LONG_TTL).await?;
    }
    let client = |actor, nodes| match danger {
        Danger::Strikes => {
            let lock = LockSetup::NaiveRedlock { nodes, kind: RedlockKind::ReleaseWhereGranted };
            scene.client(actor, INVOICE, lock, storage.setup(Offer::Nothing))
        }
        Danger::Averted => {
            let lock = LockSetup::Redlock(nodes);
            scene.client(actor, INVOICE, lock, storage.setup(Offer::TokenAndHolder))
        }
    };

    // B and C grant the lock to client 1, and their replies are lost.
    let lossy = [nodes.lossy_proxy(1).await?, nodes.lossy_proxy(2).await?];
    let [b, c] = [lossy[0].url("redis"), lossy[1].url("redis")];
    let mut client_1 = client(Actor::Client1, vec![nodes.urls().remove(0), b, c])?;
    client_1.send(&Command::Acquire(Terms::new(LONG_TTL)))?;
    until(LOST_WITHIN, || Ok(lossy.iter().all(Proxy::has_struck))).await?;
    nodes.record_lost_replies(1..3);
    write_if_acquired(&mut client_1, VALUE_1).await?;
    nodes.check_taken(0..3).await?;

    // No reply to client 2 is lost.
    let mut client_2 = client(Actor::Client2, nodes.urls())?;
    client_2.send(&Command::Acquire(Terms::new(LONG_TTL)))?;
    write_if_acquired(&mut client_2, VALUE_2).await?;
    let taken = nodes.check_taken(0..3).await?;

    let events = scene.recorder.events();
    let writes = count(&events, |event| matches!(event.kind, EventKind::Written { .. }));
    Ok(Outcome::default().with("taken_by_nobody", taken).with("writes", writes))
}

/// Waits until a client has acquired the lock or given up. If it has acquired the lock, it writes.
async fn write_if_acquired(client: &mut Client, value: &str) -> anyhow::Result<()> {
    if let EventKind::Acquired { .. } = client.finish_try().await?.kind {
        client.read().await?;
        client.check_lease().await?;
        client.write(value).await?;
        client.release().await?;
    }
    Ok(())
}
