//! `lock-client node change`.

use std::time::Duration;

use clap::Args;
use lock_client::{
    redis::Server,
    redlock::operator::{Cluster, Operator, State, View, WatchEvent},
};
use tokio::time::sleep;

use crate::{
    failure::Failure,
    lock_service::LockService,
    signals::{ENDING, Signals},
    stderr,
    stdout::print,
};

/// The time between two looks whether the added nodes vote.
const INTERVAL: Duration = Duration::from_secs(1);

pub(super) const HELP: &str = "\
Replaces members (--remove OLD --add NEW), or makes three nodes five (--add NEW --add NEW). There \
can't be fewer members than before, and their number is odd. --locks names the present members; a \
majority of them must answer. An added node is one Redis with nothing of another cluster.

First, the old members decide on the change; each that accepts it rejects votes in the old epoch. \
The members that stay vote on. Then the command waits for the longest ttl, copies the counters to \
each added node, and lets it vote. Until the added nodes vote, a majority of the new members must be \
old ones that answer and do not restart: when three nodes become five, all three. SIGHUP, \
SIGINT, SIGQUIT and SIGTERM end the command. If it was interrupted, run it again, or let node admit --watch finish it.

A lease continues if it stands on a majority of the new members. One that stands on two of three \
nodes may end when three become five.

Clients follow the change by themselves. Change their --locks, too, before so many of the old \
members are gone that a new client finds no majority.

A removed node that was down may come back: the others reject what it votes for. If two operators \
change the members at once, one change is decided; the other command fails, and says so.";

#[derive(Args, Debug)]
pub(crate) struct Change {
    #[command(flatten)]
    nodes: LockService,

    /// A node to add
    #[arg(long, value_name = "URL", required_unless_present = "remove")]
    add: Vec<String>,

    /// A member to remove; its password may be left out
    #[arg(long, value_name = "URL")]
    remove: Vec<String>,
}

impl Change {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let mut signals = Signals::listen(ENDING)?;
        tokio::select! {
            changed = self.change() => changed,
            signal = signals.next() => Err(signal.into()),
        }
    }

    /// Changes the members, and waits until those that were added may vote.
    async fn change(&self) -> Result<(), Failure> {
        if self.add.len() < self.remove.len() {
            let shrinks = "a cluster can't shrink: give one --add for each --remove";
            return Err(Failure::Usage(shrinks.to_owned()));
        }
        let mut operator = self.nodes.operator()?;
        let members = operator.change_members(&self.add, &self.remove).await?;
        stderr::print(format!("the members are now {}", members.join(", ")));
        // A watcher elsewhere may admit the added nodes first. So both are awaited: an admission by
        // this one, which is never interrupted, and the votes.
        tokio::select! {
            failed = self.admit_all(&operator) => failed,
            cluster = self.until_added_vote(&operator) => print(&cluster?),
        }
    }

    /// Waits until the nodes that were added vote.
    async fn until_added_vote(&self, operator: &Operator) -> Result<Cluster, Failure> {
        let added = self.added()?;
        let mut waiting = None;
        loop {
            let seen = operator.inspect().await;
            let is_member = |node: &&String| {
                seen.members.as_ref().is_none_or(|members| members.contains(*node))
            };
            if let Some(removed) = added.iter().find(|node| !is_member(node)) {
                return Err(Failure::Unavailable(format!(
                    "another operator has removed {removed} again; the members are now {}",
                    seen.members.unwrap_or_default().join(", ")
                )));
            }
            let has_no_vote = |node: &&String| {
                let is_voting = |view: &View| view.node == **node && view.state == State::Voting;
                !seen.nodes.iter().any(is_voting)
            };
            let still: Vec<_> = added.iter().filter(has_no_vote).collect();
            for node in waiting.replace(still.clone()).unwrap_or_default() {
                if !still.contains(&node) {
                    stderr::print(format!("{node} votes"));
                }
            }
            if still.is_empty() {
                return Ok(seen.cluster);
            }
            sleep(INTERVAL).await;
        }
    }

    /// Admits the nodes without a vote, and reports each step. It ends only by an error.
    async fn admit_all(&self, operator: &Operator) -> Result<(), Failure> {
        let added = self.added()?;
        let mut watcher = operator.watch();
        loop {
            match watcher.next().await? {
                // It is reported when it votes. Another watcher may have admitted it.
                WatchEvent::Admitted { node, .. } if added.contains(&node) => {}
                event => stderr::print(event.to_string()),
            }
        }
    }

    /// The addresses of the nodes that are added.
    fn added(&self) -> Result<Vec<String>, Failure> {
        let added = self.add.iter().map(|url| Ok(Server::open(url)?.to_string()));
        added.collect()
    }
}
