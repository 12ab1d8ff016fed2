//! `lock-client node`: the nodes of a cluster (Redlock).

mod admit;
mod init;
mod status;

use clap::Subcommand;

use super::Failure;
use lock_client::redlock::operator::Trouble;

#[derive(Debug, Subcommand)]
pub(crate) enum Node {
    /// Starts a cluster
    #[command(after_long_help = init::HELP)]
    Init(init::Init),
    /// Lets a node in that may have lost what it counted
    #[command(after_long_help = admit::HELP)]
    Admit(admit::Admit),
    /// Shows which nodes may vote
    #[command(after_long_help = status::HELP)]
    Status(status::StatusOf),
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

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Wrong(_) => Self::Usage(trouble.to_string()),
            Trouble::Unavailable(_) => Self::Unavailable(trouble.to_string()),
        }
    }
}
