//! `lock-client node`: the nodes of a Redlock cluster.

mod admit;
mod init;
mod status;

use clap::Subcommand;

use crate::{failure::Failure, lock_service::On};

#[derive(Debug, Subcommand)]
pub(crate) enum Node {
    /// Starts a cluster
    #[command(after_long_help = init::HELP)]
    Init(On<init::Init>),
    /// Lets another process vote for a member: after a restart, or in its place
    #[command(after_long_help = admit::HELP)]
    Admit(On<admit::Admit>),
    /// Shows which nodes may vote
    #[command(after_long_help = status::HELP)]
    Status(On<status::Status>),
}

impl Node {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Init(on) => on.command.run(&on.lock_service).await,
            Self::Admit(on) => on.command.run(&on.lock_service).await,
            Self::Status(on) => on.command.run(&on.lock_service).await,
        }
    }
}
