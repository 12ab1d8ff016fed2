//! An example by which Redlock was criticised (Kleppmann, "How to do distributed locking", 2016), which
//! its documentation has too: A, B and C of five nodes have given the lock, C is restarted and knows
//! nothing of it any more, and C, D and E give it again.

use std::time::Duration;

use async_trait::async_trait;

use super::{
    Scenario,
    stage::{
        driver::Client,
        lock::LONG_TTL,
        nodes::Nodes,
        two_clients::VALUE_2,
        two_holders::{Clients, HEALED, OVERWRITTEN, TwoHolders, finish},
    },
};
use crate::{
    client::{BUSY, naive_redlock::Way, writer::Offer},
    record::{Actor, Checks, Danger, Expected, Outcome, Recorder, World},
};
use testbed::{Databases, NodeKind};

const WORLDS: [World; 5] = [
    World {
        name: "plain",
        title: "PLAIN Redlock, the crate rslock: no tokens, and who starts again votes",
        danger: Danger::Strikes,
        checks: Checks::Nothing,
        end: &[
            ("value", Expected::Text(VALUE_2)),
            ("version", Expected::Number(2)),
            ("updates_lost", Expected::Number(1)),
        ],
    },
    World {
        name: "by-hand",
        title: "ADMITTED BY HAND, tokens alone: C votes with its old counter, and the storage is not \
                told whose a token is",
        danger: Danger::Strikes,
        checks: Checks::Tokens,
        end: &OVERWRITTEN,
    },
    World {
        name: "by-hand-with-holders",
        title: "ADMITTED BY HAND, with holders: the storage binds each token to its holder",
        danger: Danger::Averted,
        checks: Checks::Tokens,
        end: &HEALED,
    },
    World {
        name: "no-vote",
        title: "NOT ADMITTED: C has no vote, and the lock stays with client 1 until it is released",
        danger: Danger::Averted,
        checks: Checks::Tokens,
        end: &one_after_the_other(2),
    },
    World {
        name: "node-admit",
        title: "ADMITTED by `lock-client node admit`: C votes when the lock of client 1 has run out, and \
                with the others' counters",
        danger: Danger::Averted,
        checks: Checks::Tokens,
        end: &one_after_the_other(1),
    },
];

/// No token was given twice, and so many writes were accepted.
const fn one_after_the_other(version: u64) -> [(&'static str, Expected); 5] {
    [
        ("value", Expected::Text(VALUE_2)),
        ("version", Expected::Number(version)),
        ("tokens_given_twice", Expected::Number(0)),
        ("holder_conflicts", Expected::Number(0)),
        ("updates_lost", Expected::Number(0)),
    ]
}

/// The longest ttl where C is admitted, which takes as long.
const MAX_TTL: Duration = Duration::from_millis(1_500);

const C: usize = 2;
/// Only C forgets. D and E are killed and started again so that they aren't asked at first.
const KINDS: [NodeKind<'_>; 5] = [
    NodeKind::FORGETFUL,
    NodeKind::FORGETFUL,
    NodeKind::FORGETFUL,
    NodeKind::DURABLE,
    NodeKind::DURABLE,
];

#[derive(Debug)]
pub(super) struct RedlockRestart;

#[async_trait(?Send)]
impl Scenario for RedlockRestart {
    fn name(&self) -> &'static str {
        "redlock-restart"
    }

    fn claim(&self) -> &'static str {
        "A node that has given the lock, is restarted without it and votes again gives it to two clients, \
         with one token if an older snapshot brought its counter back, and an update is lost; if it has no vote until it \
         has the counters of the others, the lock stays with one, and goes on with higher tokens."
    }

    fn worlds(&self) -> &'static [World] {
        &WORLDS
    }

    fn lanes(&self) -> &'static [Actor] {
        &[Actor::Client1, Actor::Nodes, Actor::Client2, Actor::Storage]
    }

    async fn play(
        &self,
        world: &World,
        _: &mut Databases,
        recorder: &mut Recorder,
    ) -> anyhow::Result<Outcome> {
        let (clients, ttl) = match world.name {
            "plain" => (Clients::Naive(Way::Rslock), LONG_TTL),
            "by-hand" => (Clients::Offering(Offer::Token), LONG_TTL),
            "by-hand-with-holders" => (Clients::Offering(Offer::TokenAndHolder), LONG_TTL),
            "no-vote" => (Clients::Put, LONG_TTL),
            _ => (Clients::Put, MAX_TTL),
        };
        let stage = TwoHolders::start(world.checks, clients).await?.for_a_ttl_of(ttl);
        let mut nodes = Nodes::start(&KINDS).await?;
        if world.checks == Checks::Tokens {
            nodes.hand_out_tokens(ttl, recorder).await?;
        }
        // Elsewhere it comes up empty. By hand, it is a vote for what an older snapshot brings back.
        if world.name.starts_with("by-hand") {
            nodes.make_snapshot(C).await?;
        }
        nodes.kill(3..5, recorder)?;
        let client_1 = stage.about_to_write(Actor::Client1, &nodes.urls(), recorder).await?;
        nodes.restart_forgetful(C, recorder).await?;
        nodes.restart(3..5, recorder).await?;

        match world.name {
            "plain" => {}
            "no-vote" => return turned_away(&stage, &nodes, client_1, recorder).await,
            "node-admit" => nodes.admit(C, Actor::Client1, recorder).await?,
            _ => nodes.admit_by_hand(C, recorder).await?,
        }
        let client_2 = stage.about_to_write(Actor::Client2, &nodes.urls(), recorder).await?;
        stage.write([client_1, client_2], recorder).await
    }
}

/// Client 2 comes too early, and again when client 1 is done.
async fn turned_away(
    stage: &TwoHolders,
    nodes: &Nodes,
    client_1: Client,
    recorder: &mut Recorder,
) -> anyhow::Result<Outcome> {
    let mut client_2 = stage.client(Actor::Client2, &nodes.urls())?;
    client_2.goes_away(BUSY, "somebody else holds the lock", "gave-up", recorder).await?;
    finish(client_1, recorder).await?;
    let client_2 = stage.about_to_write(Actor::Client2, &nodes.urls(), recorder).await?;
    finish(client_2, recorder).await?;
    stage.outcome(recorder).await
}
