//! `lock-client node`: the nodes of a cluster (Redlock).

mod init;

use clap::Subcommand;

use super::Failure;

#[derive(Debug, Subcommand)]
pub(super) enum Node {
    /// Starts a cluster
    Init(init::Init),
}

impl Node {
    pub(super) async fn run(self) -> Result<(), Failure> {
        match self {
            Self::Init(init) => init.run().await,
        }
    }
}
