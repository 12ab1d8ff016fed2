//! `lock-client node admit`.

use std::collections::BTreeSet;

use clap::Args;
use lock_client::redlock::operator::{Admission, CopiedCounters, State, WatchEvent};
use rustix::process::Signal;
use serde::Serialize;

use crate::{
    failure::Failure,
    lock_service::LockService,
    signals::{ENDING, Signals},
    stderr,
    stdout::{print, print_unblocked},
};

pub(super) const HELP: &str = "\
A node that restarted may have lost its counters, and has no vote. This command first waits for \
the longest ttl, so that every lock the node voted for before it restarted has expired; only the \
clock of this machine counts. Then it copies the highest counters from a majority of nodes, all of \
them others that may vote, and lets the node vote. SIGHUP, SIGINT, SIGQUIT and SIGTERM \
end it, and the node stays without a vote.

With --watch it runs as a service, and does this for every node that restarts. A node that restarts \
again while it waits starts a new wait. With fewer voters than a majority, it reports that a person \
must decide, and continues to watch. A node that does not answer, or that belongs to another \
cluster, is reported once and left alone. Each admission is a line on stdout; all else is on stderr. \
Several may run at once, on different machines. SIGTERM ends it with exit code 0.

A server that is to replace a member is no member yet: see node change.";

#[derive(Args, Debug)]
pub(crate) struct Admit {
    #[command(flatten)]
    nodes: LockService,

    /// The node to admit: one of those that --locks names; its password may be left out
    #[arg(long, value_name = "URL", conflicts_with = "watch")]
    node: Option<String>,

    /// Run as a service that admits every node that restarts
    #[arg(long)]
    watch: bool,
}

/// The result of an admission.
#[derive(Serialize)]
struct Admitted {
    /// The node, if none was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    state: State,
    /// How many counters of the node were too low.
    counters_raised: u64,
    /// The keys that are named like counters and have none.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    skipped: BTreeSet<String>,
}

impl Admitted {
    fn new(node: Option<String>, copied: CopiedCounters) -> Self {
        let CopiedCounters { raised: counters_raised, skipped } = copied;
        Self { node, state: State::Voting, counters_raised, skipped }
    }
}

impl Admit {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        if self.node.is_none() && !self.watch {
            return Err(Failure::Usage("give --node URL or --watch".to_owned()));
        }
        let mut signals = Signals::listen(ENDING)?;
        tokio::select! {
            ended = self.work() => ended,
            // A service manager stops a service so: that is no failure.
            received = signals.next() => match received.signal {
                Signal::TERM if self.watch => Ok(()),
                _ => Err(received.into()),
            },
        }
    }

    async fn work(&self) -> Result<(), Failure> {
        match &self.node {
            Some(node) => print(&Admitted::new(None, self.admit(node).await?)),
            None => self.watch().await,
        }
    }

    /// Admits a node.
    async fn admit(&self, node: &str) -> Result<CopiedCounters, Failure> {
        let operator = self.nodes.operator()?;
        match operator.request_admission(node).await? {
            Admission::AlreadyVoting => {
                stderr::print("the node may vote already");
                Ok(CopiedCounters::default())
            }
            Admission::Pending(admission) => {
                stderr::print(format!(
                    "waiting {:.1?}, so that every lock this node voted for before it restarted \
                     has expired",
                    admission.remaining()
                ));
                Ok(admission.finish().await?)
            }
        }
    }

    /// Admits every node that restarts, and reports each step. It ends only by an error.
    async fn watch(&self) -> Result<(), Failure> {
        let operator = self.nodes.operator()?;
        let mut watcher = operator.watch();
        loop {
            match watcher.next().await? {
                WatchEvent::Admitted { node, copied } => {
                    let admitted = Admitted::new(Some(node), copied);
                    print_unblocked(&admitted).await.map_err(Failure::CannotPrint)?;
                }
                event => stderr::print(event.to_string()),
            }
        }
    }
}
