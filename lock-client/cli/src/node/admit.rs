//! `lock-client node admit`.

use clap::Args;
use lock_client::redlock::operator::{CopiedCounters, State, WatchEvent};
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
A node that restarted may have lost its counters, and has no vote: its process is another. So is that \
of an empty server at the same address, and of one at another address (--instead-of). First the other \
members agree that it takes the seat: from then on, the process before has no vote, whatever it does. \
After the longest ttl, on the clock of this machine, every lock has expired that the process before has \
voted for. Then the command copies the highest counters from a majority of the members, and lets the node \
vote. A key that has the name of a counter and is none is skipped, and named. If the command is \
interrupted, the node stays without a vote: run it again, or let the watcher go on.

With --watch it runs as a service, and does this for every node that restarts. If no majority votes, it \
reports that a person must decide, and goes on. It reports each reason once. Each admission is a line on \
stdout, all else on stderr. Of several on different machines, one works. SIGTERM ends it with exit code 0.

Name a server at another address to clients and to the watcher, too. They find it by themselves while a \
majority of the addresses is left that they have.";

#[derive(Args, Debug)]
pub(crate) struct Admit {
    /// The node to admit; its password may be left out
    #[arg(long, value_name = "URL", conflicts_with = "watch")]
    node: Option<String>,

    /// The member in whose place it votes; its password may be left out
    #[arg(long, value_name = "URL", requires = "node")]
    instead_of: Option<String>,

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
    #[serde(flatten)]
    copied: CopiedCounters,
}

impl Admit {
    pub(crate) async fn run(self, lock_service: &LockService) -> Result<(), Failure> {
        if self.node.is_none() && !self.watch {
            return Err(Failure::usage("give --node URL or --watch"));
        }
        let mut signals = Signals::listen(ENDING)?;
        tokio::select! {
            ended = self.work(lock_service) => ended,
            // A service manager stops a service so: that is no failure.
            received = signals.next() => match received.signal {
                Signal::TERM if self.watch => Ok(()),
                _ => Err(received.into()),
            },
        }
    }

    async fn work(&self, lock_service: &LockService) -> Result<(), Failure> {
        let operator = lock_service.operator()?;
        if let Some(node) = &self.node {
            let report = |event: WatchEvent| stderr::print(event.to_string());
            let copied = operator.admit(node, self.instead_of.as_deref(), report).await?;
            return print(&Admitted { node: None, state: State::Voting, copied });
        }
        let mut watcher = operator.watch();
        loop {
            match watcher.next().await {
                WatchEvent::Admitted { node, copied } => {
                    let admitted = Admitted { node: Some(node), state: State::Voting, copied };
                    print_unblocked(&admitted).await.map_err(Failure::cannot_print)?;
                }
                event => stderr::print(event.to_string()),
            }
        }
    }
}
