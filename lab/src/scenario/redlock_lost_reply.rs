//! Two of three nodes give a client the lock, and it never hears of it: their replies are lost.

use std::time::Duration;

use async_trait::async_trait;

use super::{
    Scenario,
    stage::{
        lock::LONG_TTL,
        nodes::{Nodes, these},
        two_holders::{Clients, TwoHolders, finish},
    },
};
use crate::{
    client::{
        BUSY,
        naive_redlock::{NO_MAJORITY, Way},
    },
    record::{Actor, Checks, Danger, Expected, Outcome, Recorder, World},
};
use testbed::{Databases, NodeKind, Proxy, wait::until};

const WORLDS: [World; 2] = [
    World {
        name: "where-granted",
        title: "WHERE IT WAS GRANTED: without a majority, a client releases where it heard of a grant",
        danger: Danger::Strikes,
        checks: Checks::Nothing,
        end: &[("taken_by_nobody", Expected::Number(2)), ("writes", Expected::Number(0))],
    },
    World {
        name: "everywhere",
        title: "EVERYWHERE: the lock client releases on all nodes, and tries again",
        danger: Danger::Averted,
        checks: Checks::Tokens,
        end: &[("taken_by_nobody", Expected::Number(0)), ("writes", Expected::Number(2))],
    },
];

const LOST_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct RedlockLostReply;

#[async_trait(?Send)]
impl Scenario for RedlockLostReply {
    fn name(&self) -> &'static str {
        "redlock-lost-reply"
    }

    fn claim(&self) -> &'static str {
        "If the replies of two nodes of three are lost, a client that releases only where it heard of a \
         grant leaves a lock that nobody has and nobody gets; one that releases everywhere leaves none."
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
        let clients = match world.danger {
            Danger::Strikes => Clients::Naive(Way::ReleaseWhereGranted),
            Danger::Averted => Clients::Put,
        };
        let stage = TwoHolders::start(world.checks, clients).await?;
        let nodes = Nodes::start(&[NodeKind::FORGETFUL; 3]).await?;
        if world.checks == Checks::Tokens {
            nodes.hand_out_tokens(LONG_TTL, recorder).await?;
        }
        let urls = nodes.urls();
        let lossy = [nodes.lossy_way_to(1).await?, nodes.lossy_way_to(2).await?];
        let [b, c] = [0, 1].map(|way: usize| lossy[way].url("redis"));

        let mut taken = 0;
        let lossy_urls = [urls[0].clone(), b, c];
        for (actor, urls) in [(Actor::Client1, &lossy_urls[..]), (Actor::Client2, &urls)] {
            let mut client = stage.client(actor, urls)?;
            if actor == Actor::Client1 {
                until(LOST_WITHIN, || Ok(lossy.iter().all(Proxy::has_struck))).await?;
                recorder.note_with(Actor::Nodes, "replies-lost", None, these(1..3));
            }
            if client.next(recorder).await? == NO_MAJORITY {
                client.ends_with(BUSY).await?;
            } else {
                client.go_on_to("lease-checked", recorder).await?;
                finish(client, recorder).await?;
            }
            taken = nodes.taken_at(0..3, recorder).await?;
        }
        let writes = recorder.events().filter(|event| event.event == "written").count();
        Ok(Outcome::default().with("taken_by_nobody", taken).with("writes", u64::try_from(writes)?))
    }
}
