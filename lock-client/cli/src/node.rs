//! `lock-client node`: the nodes of a Redlock cluster.

mod admit;
mod change;
mod init;
mod status;

use clap::Subcommand;

use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Node {
    /// Starts a cluster
    #[command(after_long_help = init::HELP)]
    Init(init::Init),
    /// Lets a node vote again that may have lost its counters
    #[command(after_long_help = admit::HELP)]
    Admit(admit::Admit),
    /// Replaces members, or adds some
    #[command(after_long_help = change::HELP)]
    Change(change::Change),
    /// Shows which nodes may vote
    #[command(after_long_help = status::HELP)]
    Status(status::Status),
}

impl Node {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Init(init) => init.run().await,
            Self::Admit(admit) => admit.run().await,
            Self::Change(change) => change.run().await,
            Self::Status(status) => status.run().await,
        }
    }
}
