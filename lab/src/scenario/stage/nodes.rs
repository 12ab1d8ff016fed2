//! The lock of a scenario that several nodes keep together, and what is done to them.

use std::{ops::Range, time::Duration};

use anyhow::Context;
use fence::{ResourceName, Token};
use futures_util::future::try_join_all;
use lock_client::{
    Ttl,
    redlock::operator::{Admission, Operator},
};
use serde_json::{Map, Value};

use super::{
    lock::{self, LAST_TOKEN, RUNS_OUT_WITHIN},
    two_holders::{ENDS, RESOURCE},
    workplace::holders,
};
use crate::{
    client::worker,
    record::{Actor, Recorder},
};
use testbed::{LostReply, NodeKind, Redis, RedlockNodes, wait::until_async};

pub(crate) struct Nodes {
    nodes: RedlockNodes,
    resource: ResourceName,
}

impl Nodes {
    /// Starts nodes of these kinds, which are enough for a Redlock without tokens.
    pub(crate) async fn start(kinds: &[NodeKind<'_>]) -> anyhow::Result<Self> {
        Ok(Self { nodes: RedlockNodes::start(kinds).await?, resource: RESOURCE.parse()? })
    }

    fn operator(&self) -> anyhow::Result<Operator> {
        Ok(Operator::new(&self.nodes.urls())?)
    }

    /// Has them hand out tokens, from 33 on, to those who want the lock for no longer than this.
    pub(crate) async fn hand_out_tokens(
        &self,
        max_ttl: Duration,
        recorder: &mut Recorder,
    ) -> anyhow::Result<()> {
        self.operator()?.start_cluster(Ttl::new(max_ttl)?).await?;
        let counter = format!("fenced:{{{}}}:token", self.resource);
        for node in self.nodes.nodes() {
            node.set(&counter, &LAST_TOKEN.to_string()).await?;
        }
        recorder.note(Actor::Nodes, "counter-preset", Token::new(LAST_TOKEN).ok());
        Ok(())
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.nodes.urls()
    }

    pub(crate) fn node(&self, node: usize) -> &Redis {
        &self.nodes.nodes()[node]
    }

    /// A way to one of them on which its first reply about the lock is lost.
    pub(crate) async fn lossy_way_to(&self, node: usize) -> anyhow::Result<LostReply> {
        LostReply::on_the_way_to(self.node(node).socket(), self.resource.as_str()).await
    }

    /// Kills some of them (SIGKILL).
    pub(crate) fn kill(
        &mut self,
        which: Range<usize>,
        recorder: &mut Recorder,
    ) -> anyhow::Result<()> {
        for node in &mut self.nodes.nodes_mut()[which.clone()] {
            node.process().kill()?;
        }
        recorder.note_with(Actor::Nodes, "killed", None, these(which));
        Ok(())
    }

    /// Starts some of them again that had every write on disk.
    pub(crate) async fn restart(
        &mut self,
        which: Range<usize>,
        recorder: &mut Recorder,
    ) -> anyhow::Result<()> {
        let nodes = &mut self.nodes.nodes_mut()[which.clone()];
        try_join_all(nodes.iter_mut().map(Redis::restart)).await?;
        recorder.note_with(Actor::Nodes, "started-again", None, these(which));
        Ok(())
    }

    /// Has one of them put on disk what it has now, as a Redis does every now and then unless it is told
    /// otherwise.
    pub(crate) async fn make_snapshot(&self, node: usize) -> anyhow::Result<()> {
        self.node(node).command(&["SAVE"]).await
    }

    /// Kills one of them (SIGKILL), and starts it again: empty, or with what its snapshot has.
    pub(crate) async fn restart_forgetful(
        &mut self,
        node: usize,
        recorder: &mut Recorder,
    ) -> anyhow::Result<()> {
        self.nodes.nodes_mut()[node].restart().await?;
        let keys: u64 = self.node(node).command(&["DBSIZE"]).await?;
        let mut details = these(node..node + 1);
        details.insert("keys".to_owned(), keys.into());
        recorder.note_with(Actor::Nodes, "forgot", None, details);
        Ok(())
    }

    /// Has one of them vote again that has lost what it counted, as it is to be done. Meanwhile a lock runs
    /// out, which is this client's.
    pub(crate) async fn admit(
        &self,
        node: usize,
        whose: Actor,
        recorder: &mut Recorder,
    ) -> anyhow::Result<()> {
        recorder.note_with(Actor::Nodes, "admitting", None, these(node..node + 1));
        let url = self.node(node).url();
        let all = 0..self.nodes.nodes().len();
        let run_out = async {
            let free = async || Ok(self.count_taken(all.clone()).await? == 0);
            until_async(RUNS_OUT_WITHIN, free).await.context("the lease did not end")?;
            recorder.note_with(Actor::Nodes, "lease-expired", None, lock::of(whose));
            anyhow::Ok(())
        };
        let operator = self.operator()?;
        let admit = async {
            if let Admission::Pending(admission) = operator.request_admission(&url).await? {
                admission.finish().await?;
            }
            anyhow::Ok(())
        };
        tokio::try_join!(admit, run_out)?;
        recorder.note_with(Actor::Nodes, "admitted", None, these(node..node + 1));
        Ok(())
    }

    /// Has one of them vote again that has lost what it counted, and still counts from there.
    pub(crate) async fn admit_by_hand(
        &self,
        node: usize,
        recorder: &mut Recorder,
    ) -> anyhow::Result<()> {
        let run_id = self.node(node).info("run_id").await?;
        let () = self.node(node).command(&["HSET", "fenced:node", "run_id", &run_id]).await?;
        recorder.note_with(Actor::Nodes, "admitted-by-hand", None, these(node..node + 1));
        Ok(())
    }

    /// At how many of them the lock is taken.
    pub(crate) async fn taken_at(
        &self,
        which: Range<usize>,
        recorder: &mut Recorder,
    ) -> anyhow::Result<u64> {
        let taken = self.count_taken(which.clone()).await?;
        let mut details = these(which);
        details.insert("taken".to_owned(), taken.into());
        let holders = holders(recorder.events(), &ENDS);
        if !holders.is_empty() {
            details.insert("held_by".to_owned(), holders.join(" and ").into());
        }
        recorder.note_with(Actor::Nodes, "taken", None, details);
        Ok(taken)
    }

    async fn count_taken(&self, which: Range<usize>) -> anyhow::Result<u64> {
        let keys = [lock::key(&self.resource), worker::key(&self.resource)];
        let mut taken = 0;
        for node in &self.nodes.nodes()[which] {
            taken += node.command::<u64>(&["EXISTS", &keys[0], &keys[1]]).await?;
        }
        Ok(taken)
    }
}

/// The detail of an event that says which nodes it happened to.
pub(crate) fn these(which: Range<usize>) -> Map<String, Value> {
    let letters: Vec<_> = "ABCDE"[which].chars().map(String::from).collect();
    let [first @ .., last] = &letters[..] else { return Map::new() };
    let nodes =
        if first.is_empty() { last.clone() } else { format!("{} and {last}", first.join(", ")) };
    Map::from_iter([("nodes".to_owned(), nodes.into())])
}
