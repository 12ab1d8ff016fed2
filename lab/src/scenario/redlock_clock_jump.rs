//! The other example by which Redlock was criticised (Kleppmann, "How to do distributed locking", 2016):
//! the clock of one node jumps. A lock that has long to go is over there, and another client gets it,
//! with that node's vote.

use std::time::Duration;

use async_trait::async_trait;

use super::{
    Scenario,
    stage::{
        lock::LONG_TTL,
        nodes::{Nodes, these},
        storage::CHECKED_OR_NOT,
        two_clients::outcome,
        two_holders::{Clients, ENDS, TwoHolders, finish},
        workplace::most_at_once,
    },
};
use crate::record::{Actor, Outcome, Recorder, World};
use testbed::{Databases, NodeKind};

const JUMP: Duration = Duration::from_secs(60);
/// Node B's clock can jump, and node C loses nothing when it is killed.
const KINDS: [NodeKind<'_>; 3] = [NodeKind::FORGETFUL, NodeKind::OwnClock, NodeKind::DURABLE];

#[derive(Debug)]
pub(super) struct RedlockClockJump;

#[async_trait(?Send)]
impl Scenario for RedlockClockJump {
    fn name(&self) -> &'static str {
        "redlock-clock-jump"
    }

    fn claim(&self) -> &'static str {
        "If the clock of one node jumps, and another was away when the lock was given, two clients have \
         it at once, and the first overwrites what the second wrote; a storage that checks tokens refuses it, as the second's is higher all \
         the same."
    }

    fn worlds(&self) -> &'static [World] {
        &CHECKED_OR_NOT
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
        let stage = TwoHolders::start(world.checks, Clients::Put).await?;
        let mut nodes = Nodes::start(&KINDS).await?;
        nodes.hand_out_tokens(LONG_TTL, recorder).await?;
        let urls = nodes.urls();
        // So that it gives the lock to nobody before the clock has jumped.
        nodes.kill(2..3, recorder)?;
        let mut client_1 = stage.about_to_write(Actor::Client1, &urls, recorder).await?;
        nodes.restart(2..3, recorder).await?;

        nodes.node(1).jump(JUMP)?;
        let mut details = these(1..2);
        details.insert("seconds".to_owned(), JUMP.as_secs().into());
        recorder.note_with(Actor::Nodes, "clock-jumped", None, details);
        let client_2 = stage.about_to_write(Actor::Client2, &urls, recorder).await?;
        finish(client_2, recorder).await?;

        client_1.go_on()?;
        let exit_code = client_1.written_or_refused(recorder).await?;
        client_1.finish_with(exit_code, recorder).await?;
        let kept = stage.kept().await?;
        Ok(outcome(recorder.events(), kept.value, kept.token)
            .with("holders_at_once", most_at_once(recorder, &ENDS)))
    }
}
