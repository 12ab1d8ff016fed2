//! `lock-client node admit`.

use clap::Args;
use lock_client::redlock::operator::{Admission, State};
use serde::Serialize;

use crate::{
    failure::Failure,
    lock_service::LockService,
    signals::{ENDING, Signals, failure_of_signal},
    stderr::Messages,
    stdout::print,
};

pub(super) const HELP: &str = "\
A node that restarted may have lost its counters, and has no vote. This command first waits for \
the longest ttl, so that every lock the node voted for before it restarted has expired; only the \
clock of this machine counts. Then it copies the highest counters from a majority of nodes, all of \
them others that may vote, and lets the node vote. SIGINT and SIGTERM end it, and the node stays \
without a vote.

A server that replaces another is admitted in the same way. The other must not come back: delete \
its key fenced:node, if it still runs. All clients must then name the new server instead.";

#[derive(Args, Debug)]
pub(crate) struct Admit {
    #[command(flatten)]
    nodes: LockService,

    /// The node to admit: one of those that --redis names; its password may be left out
    #[arg(long, value_name = "URL")]
    node: String,
}

/// The result of an admission.
#[derive(Serialize)]
struct Admitted {
    state: State,
    /// How many counters of the node were too low.
    counters_raised: u64,
}

impl Admit {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let mut signals = Signals::listen(ENDING)?;
        let counters_raised = tokio::select! {
            admitted = self.admit() => admitted?,
            signal = signals.next() => return Err(failure_of_signal(signal)),
        };
        print(&Admitted { state: State::Voting, counters_raised })
    }

    /// Admits the node, and returns how many of its counters were too low.
    async fn admit(&self) -> Result<u64, Failure> {
        let operator = self.nodes.operator()?;
        let messages = Messages::new();
        match operator.request_admission(&self.node).await? {
            Admission::AlreadyVoting => {
                messages.print("the node may vote already");
                Ok(0)
            }
            Admission::Pending(admission) => {
                messages.print(format!(
                    "waiting {:.1?}, so that every lock this node voted for before it restarted \
                     has expired",
                    admission.remaining()
                ));
                Ok(admission.finish().await?)
            }
        }
    }
}
