//! A lock that several private nodes keep together, and what happens to the nodes.

use std::{fs, ops::Range, path::PathBuf, time::Duration};

use anyhow::Context;
use fence::{ResourceName, Token};
use lock_client::{Ttl, redlock::operator::Operator};
use testbed::{NodeKind, Proxy, Redis, RedlockNodes, wait::until_async};

use super::{
    findings::{holders, lease_over, titles},
    redis_lock::{EXPIRES_WITHIN, LAST_TOKEN, counter_key, lock_key},
    scene::Scene,
};
use crate::{
    client::{key_lock, setup::LockSetup},
    record::{Actor, EventKind, Recorder},
};

/// Has a process vote for a roster, whatever it has lost.
const VOTE: &str = "local longest = string.match(ARGV[1], '^%S+ %d+ (%d+)')
    local vote = longest .. ' ' .. ARGV[2] .. ' ' .. redis.sha1hex(ARGV[1])
    redis.call('HSET', KEYS[1], 'roster', ARGV[1], 'vote', vote)";

pub(crate) struct Nodes {
    nodes: RedlockNodes,
    resource: ResourceName,
    recorder: Recorder,
}

impl Nodes {
    /// Starts nodes of these kinds, which are enough for a Redlock without tokens.
    pub(crate) async fn start(
        resource: &str,
        kinds: &[NodeKind<'_>],
        scene: &Scene,
    ) -> anyhow::Result<Self> {
        let (nodes, resource) = (RedlockNodes::start(kinds).await?, resource.parse()?);
        Ok(Self { nodes, resource, recorder: scene.recorder.clone() })
    }

    /// Makes them a cluster that hands out tokens, from 33 on, for no longer than this ttl.
    pub(crate) async fn start_cluster(&self, max_ttl: Duration) -> anyhow::Result<()> {
        self.operator()?.start_cluster(Ttl::new(max_ttl)?).await?;
        for node in self.nodes.nodes() {
            node.set(&counter_key(&self.resource), &LAST_TOKEN.to_string()).await?;
        }
        self.record(Token::new(LAST_TOKEN).ok(), EventKind::CounterPreset);
        Ok(())
    }

    /// What a client of the lock client needs.
    pub(crate) fn setup(&self) -> LockSetup {
        LockSetup::Redlock(self.urls())
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.nodes.urls()
    }

    /// Starts a proxy before a node that loses the node's first reply about the lock.
    pub(crate) async fn lossy_proxy(&self, node: usize) -> anyhow::Result<Proxy> {
        let proxy = Proxy::start(self.node(node).socket()).await?;
        proxy.lose_reply_to(self.resource.as_str());
        Ok(proxy)
    }

    /// Records that the replies of these nodes were lost.
    pub(crate) fn record_lost_replies(&self, nodes: Range<usize>) {
        self.record(None, EventKind::RepliesLost { nodes: letters(nodes) });
    }

    /// Cuts nodes off from all clients, as a network does: their sockets are moved away, and their
    /// connections are closed. A node that were killed would have no vote when it is back.
    pub(crate) async fn cut_off(&self, nodes: Range<usize>) -> anyhow::Result<()> {
        for node in &self.nodes.nodes()[nodes.clone()] {
            let () = node.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await?;
            // The connections of other clients; this one is skipped.
            let () = node.command(&["CLIENT", "KILL", "TYPE", "normal"]).await?;
            fs::rename(node.socket(), away(node))?;
        }
        self.record(None, EventKind::Unreachable { nodes: letters(nodes) });
        Ok(())
    }

    /// Lets clients reach nodes again that were cut off. They have kept everything.
    pub(crate) fn reconnect(&self, nodes: Range<usize>) -> anyhow::Result<()> {
        for node in &self.nodes.nodes()[nodes.clone()] {
            fs::rename(away(node), node.socket())?;
        }
        self.record(None, EventKind::ReachableAgain { nodes: letters(nodes) });
        Ok(())
    }

    /// Puts on disk what a node has now, as Redis does every now and then by default.
    pub(crate) async fn save_snapshot(&self, node: usize) -> anyhow::Result<()> {
        self.node(node).command(&["SAVE"]).await
    }

    /// Kills a node (SIGKILL) and starts it again: empty, or with its last snapshot.
    pub(crate) async fn restart_forgetful(&mut self, node: usize) -> anyhow::Result<()> {
        self.nodes.nodes_mut()[node].restart().await?;
        let keys = self.node(node).command(&["DBSIZE"]).await?;
        self.record(None, EventKind::Forgot { nodes: letter(node), keys });
        Ok(())
    }

    /// Moves the clock of a node forward.
    pub(crate) fn jump(&self, node: usize, by: Duration) -> anyhow::Result<()> {
        self.node(node).jump(by)?;
        self.record(None, EventKind::ClockJumped { nodes: letter(node), seconds: by.as_secs() });
        Ok(())
    }

    /// Admits a node that has lost its counter, as an operator does. Meanwhile the lease of this
    /// client expires.
    pub(crate) async fn admit(&self, node: usize, whose: Actor) -> anyhow::Result<()> {
        self.record(None, EventKind::Admitting { nodes: letter(node) });
        let all = 0..self.nodes.nodes().len();
        let expire = async {
            let free = async || Ok(self.count_taken(all.clone()).await? == 0);
            until_async(EXPIRES_WITHIN, free).await.context("the lease did not expire")?;
            self.record(None, EventKind::LeaseExpired { whose });
            anyhow::Ok(())
        };
        let (operator, url) = (self.operator()?, self.node(node).url());
        let admit = async { anyhow::Ok(operator.admit(&url, None, drop).await?) };
        tokio::try_join!(admit, expire)?;
        self.record(None, EventKind::Admitted { nodes: letter(node) });
        Ok(())
    }

    /// Lets a node vote again that has lost its counter, and that counts on from there: all nodes get a
    /// roster that names its new process.
    pub(crate) async fn admit_by_hand(&self, node: usize) -> anyhow::Result<()> {
        let run_id = self.node(node).info("run_id").await?;
        let roster: String = self.node(0).command(&["HGET", "fenced:node", "roster"]).await?;
        let seat = roster.lines().nth(node + 1).context("it has a seat")?;
        let old = seat.split(' ').nth(1).context("a process has the seat")?;
        let roster = roster.replace(old, &run_id);
        for other in self.nodes.nodes() {
            let run_id = other.info("run_id").await?;
            let () = other.command(&["EVAL", VOTE, "1", "fenced:node", &roster, &run_id]).await?;
        }
        self.record(None, EventKind::AdmittedByHand { nodes: letter(node) });
        Ok(())
    }

    /// Counts the nodes on which the lock is taken.
    pub(crate) async fn check_taken(&self, nodes: Range<usize>) -> anyhow::Result<u64> {
        let taken = self.count_taken(nodes.clone()).await?;
        let held_by = titles(&holders(&self.recorder.events(), lease_over));
        self.record(None, EventKind::Taken { nodes: letters(nodes), taken, held_by });
        Ok(taken)
    }

    async fn count_taken(&self, nodes: Range<usize>) -> anyhow::Result<u64> {
        let keys = [lock_key(&self.resource), key_lock::key(&self.resource)];
        let mut taken = 0;
        for node in &self.nodes.nodes()[nodes] {
            taken += node.command::<u64>(&["EXISTS", &keys[0], &keys[1]]).await?;
        }
        Ok(taken)
    }

    pub(crate) fn node(&self, node: usize) -> &Redis {
        &self.nodes.nodes()[node]
    }

    /// A node, to kill or restart it.
    pub(crate) fn node_mut(&mut self, node: usize) -> &mut Redis {
        &mut self.nodes.nodes_mut()[node]
    }

    fn operator(&self) -> anyhow::Result<Operator> {
        Ok(Operator::new(&self.nodes.urls())?)
    }

    fn record(&self, token: Option<Token>, kind: EventKind) {
        self.recorder.record(Actor::Nodes, token, kind);
    }
}

/// Where the socket of a node is while no client can reach it.
fn away(node: &Redis) -> PathBuf {
    node.socket().with_extension("away")
}

/// The letters of nodes, as in `A, B and C`.
fn letters(nodes: Range<usize>) -> String {
    let letters: Vec<_> = nodes.map(letter).collect();
    match &letters[..] {
        [] => String::new(),
        [one] => one.clone(),
        [others @ .., last] => format!("{} and {last}", others.join(", ")),
    }
}

fn letter(node: usize) -> String {
    "ABCDE"[node..=node].to_owned()
}
