//! `lock-client node`: the nodes of a Redlock cluster.

mod admit;
mod init;
mod status;

use clap::Subcommand;

use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Node {
    /// Starts a cluster
    #[command(after_long_help = init::HELP)]
    Init(init::Init),
    /// Lets another process vote for a member: after a restart, or in its place
    #[command(after_long_help = admit::HELP)]
    Admit(admit::Admit),
    /// Shows which nodes may vote
    #[command(after_long_help = status::HELP)]
    Status(status::Status),
}

impl Node {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Init(init) => init.run().await,
            Self::Admit(admit) => admit.run().await,
            Self::Status(status) => status.run().await,
        }
    }
}
