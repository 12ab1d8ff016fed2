//! An example by which Redlock was criticised (Kleppmann, "How to do distributed locking", 2016),
//! and which its documentation has too: A, B and C of five nodes have granted the lock, C restarts
//! and has forgotten it, and C, D and E grant it again.

use std::time::Duration;

use anyhow::ensure;
use testbed::NodeKind;

use super::{
    definition::Scenario,
    stage::{
        issued_twice::{self, OVERWRITTEN, REISSUED},
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
const PLAIN: &str = "plain";
const BY_HAND: &str = "by-hand";
const BY_HAND_WITH_HOLDERS: &str = "by-hand-with-holders";
const NO_VOTE: &str = "no-vote";
const NODE_ADMIT: &str = "node-admit";

/// The longest ttl of a cluster that admits C, which takes as long.
const MAX_TTL: Duration = Duration::from_millis(1_500);
const C: usize = 2;
/// C forgets. D and E are cut off so that they don't vote at first.
const KINDS: [NodeKind<'_>; 5] = [NodeKind::FORGETFUL; 5];

pub(super) const SCENARIO: Scenario = Scenario {
    name: "redlock-restart",
    title: "a node forgets what it granted",
    needs: "",
    seconds: 10,
    claim: "A node that granted the lock, restarts without it and votes again grants it to a \
            second client, with the same token if an older snapshot brought its counter back, and \
            an update is lost. If the node has no vote until it has the counters of the others, \
            one client at a time holds the lock, and the tokens go on growing.",
    worlds: &[
        World {
            name: PLAIN,
            title: "PLAIN Redlock, the crate rslock: no tokens, and a node that restarts votes",
            danger: Danger::Strikes,
            checks: Checks::Nothing,
            end: &[
                ("value", Expected::Text(VALUE_2)),
                ("version", Expected::Number(2)),
                ("updates_lost", Expected::Number(1)),
            ],
        },
        World {
            name: BY_HAND,
            title: "ADMITTED BY HAND, tokens alone: C votes with its old counter, and the storage \
                    does not know whose a token is",
            danger: Danger::Strikes,
            checks: Checks::Tokens,
            end: &OVERWRITTEN,
        },
        World {
            name: BY_HAND_WITH_HOLDERS,
            title: "ADMITTED BY HAND, with holders: the storage binds each token to its holder",
            danger: Danger::Averted,
            checks: Checks::Tokens,
            end: &REISSUED,
        },
        World {
            name: NO_VOTE,
            title: "NOT ADMITTED: C has no vote, and client 1 keeps the lock until it releases it",
            danger: Danger::Averted,
            checks: Checks::Tokens,
            end: &one_after_the_other(2),
        },
        World {
            name: NODE_ADMIT,
            title: "ADMITTED by `lock-client node admit`: C votes when client 1's lease has \
                    expired, and with the counters of the others",
            danger: Danger::Averted,
            checks: Checks::Tokens,
            end: &one_after_the_other(1),
        },
    ],
    tracks: &[Actor::Client1, Actor::Nodes, Actor::Client2, Actor::Storage],
    story: |scene| Box::pin(story(scene)),
};

/// No token was issued twice, and this many writes were accepted.
const fn one_after_the_other(version: u64) -> [(&'static str, Expected); 5] {
    [
        ("value", Expected::Text(VALUE_2)),
        ("version", Expected::Number(version)),
        ("tokens_given_twice", Expected::Number(0)),
        ("holder_conflicts", Expected::Number(0)),
        ("updates_lost", Expected::Number(0)),
    ]
}

async fn story(scene: &mut Scene) -> anyhow::Result<Outcome> {
    let world = scene.world.name;
    let ttl = if world == NODE_ADMIT { scene.ttl(MAX_TTL) } else { LONG_TTL };
    let storage = Storage::start(scene).await?;
    let mut nodes = Nodes::start(INVOICE, &KINDS, scene).await?;
    let (lock, offer) = match world {
        PLAIN => {
            let kind = RedlockKind::Rslock;
            (LockSetup::NaiveRedlock { nodes: nodes.urls(), kind }, Offer::Nothing)
        }
        BY_HAND => (nodes.setup(), Offer::Token),
        BY_HAND_WITH_HOLDERS => (nodes.setup(), Offer::Reissued),
        _ => (nodes.setup(), Offer::TokenAndHolder),
    };
    let client = |actor| scene.client(actor, INVOICE, lock.clone(), storage.setup(offer));
    if world != PLAIN {
        nodes.start_cluster(ttl).await?;
    }
    // A node that is admitted by hand votes with what an older snapshot brings back. In the other
    // worlds it comes up empty.
    if let BY_HAND | BY_HAND_WITH_HOLDERS = world {
        nodes.save_snapshot(C).await?;
    }

    // With D and E away, A, B and C grant the lock to client 1. Then C forgets it.
    nodes.cut_off(3..5).await?;
    let mut client_1 = client(Actor::Client1)?;
    client_1.acquire_read_and_check(ttl).await?;
    nodes.restart_forgetful(C).await?;
    nodes.reconnect(3..5)?;

    let mut client_2 = client(Actor::Client2)?;
    if world == NO_VOTE {
        // Without C's vote, D and E are no majority: client 2 waits until client 1 is done.
        let acquired = client_2.try_acquire(Terms::new(ttl)).await?;
        ensure!(!acquired, "client 2 acquired the lock beside client 1");
        client_1.write(VALUE_1).await?;
        client_1.release().await?;
        client_2.acquire_read_and_check(ttl).await?;
    } else {
        // C votes again: C, D and E grant the lock to client 2.
        match world {
            BY_HAND | BY_HAND_WITH_HOLDERS => nodes.admit_by_hand(C).await?,
            NODE_ADMIT => nodes.admit(C, Actor::Client1).await?,
            _ => {}
        }
        client_2.acquire_read_and_check(ttl).await?;
        client_1.write(VALUE_1).await?;
        client_1.release().await?;
    }
    client_2.write(VALUE_2).await?;
    client_2.release().await?;
    Ok(issued_twice::outcome(&scene.recorder.events(), storage.stored(INVOICE).await?))
}
