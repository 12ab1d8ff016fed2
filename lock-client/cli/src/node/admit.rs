//! `lock-client node admit`.

use clap::Args;
use serde::Serialize;

use crate::{
    Failure, LockService,
    events::print,
    signals::{Signals, ended_by},
    voice::Voice,
};
use lock_client::redlock::operator::{Admission, State};

pub(super) const HELP: &str = "\
A node that was started anew may have lost what it counted, and has no vote. This waits until nothing \
is under way any more that it had voted for, which takes as long as the longest ttl, and no clock but \
this machine's counts; then it copies the counters from a majority of nodes, all of them others that may \
vote, and gives it its vote. SIGINT and SIGTERM end it: then the node has none.

A server that takes another's place is let in likewise. The other must not come back: delete its key \
fenced:node, if it still runs. All clients have to name the new one instead of it.";

#[derive(Args, Debug)]
pub(crate) struct Admit {
    #[command(flatten)]
    nodes: LockService,

    /// The node to let in, one of those that --redis names; its password may be left out
    #[arg(long, value_name = "URL")]
    node: String,
}

/// What the command prints.
#[derive(Serialize)]
struct Admitted {
    state: State,
    /// How many counters were behind.
    counters_raised: u64,
}

impl Admit {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let mut signals = Signals::to_end()?;
        let counters_raised = tokio::select! {
            admitted = self.admit() => admitted?,
            signal = signals.next() => return Err(ended_by(signal)),
        };
        print(&Admitted { state: State::Voting, counters_raised })
    }

    /// Answers how many counters were behind.
    async fn admit(&self) -> Result<u64, Failure> {
        let operator = self.nodes.operator()?;
        let voice = Voice::new();
        match operator.request_admission(&self.node).await? {
            Admission::AlreadyVoting => {
                voice.say("it may vote already");
                Ok(0)
            }
            Admission::Pending(admission) => {
                voice.say(format!(
                    "it is admitted in {:.1?}: until then, something may be under way that it had voted \
                     for before it was started anew",
                    admission.remaining()
                ));
                Ok(admission.finish().await?)
            }
        }
    }
}
