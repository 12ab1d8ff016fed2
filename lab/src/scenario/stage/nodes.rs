//! The lock of a scenario that several nodes keep together, and what is done to them.

use std::{ops::Range, time::Duration};

use fence::{ResourceName, Token};
use futures_util::future::try_join_all;
use serde_json::{Map, Value};

use super::{
    lock::{LAST_TOKEN, key},
    two_holders::{ENDS, RESOURCE},
    workplace::holders,
};
use crate::{
    client::worker,
    record::{Actor, Recorder},
    servers::{LostReply, NodeKind, Redis, RedlockNodes},
};

pub(crate) struct Nodes {
    nodes: RedlockNodes,
    resource: ResourceName,
}

impl Nodes {
    /// Starts nodes of these kinds, which are enough for a Redlock without tokens.
    pub(crate) async fn start(kinds: &[NodeKind<'_>]) -> anyhow::Result<Self> {
        Ok(Self { nodes: RedlockNodes::start(kinds).await?, resource: RESOURCE.parse()? })
    }

    /// Has them hand out tokens, from 33 on, to those who want the lock for no longer than this.
    pub(crate) async fn hand_out_tokens(
        &self,
        max_ttl: Duration,
        recorder: &mut Recorder,
    ) -> anyhow::Result<()> {
        self.nodes.init(max_ttl).await?;
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

    /// At how many of them the lock is taken.
    pub(crate) async fn taken_at(
        &self,
        which: Range<usize>,
        recorder: &mut Recorder,
    ) -> anyhow::Result<u64> {
        let keys = [key(&self.resource), worker::key(&self.resource)];
        let mut taken: u64 = 0;
        for node in &self.nodes.nodes()[which.clone()] {
            taken += node.command::<u64>(&["EXISTS", &keys[0], &keys[1]]).await?;
        }
        let mut details = these(which);
        details.insert("taken".to_owned(), taken.into());
        let holders = holders(recorder.events(), &ENDS);
        if !holders.is_empty() {
            details.insert("held_by".to_owned(), holders.join(" and ").into());
        }
        recorder.note_with(Actor::Nodes, "taken", None, details);
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
