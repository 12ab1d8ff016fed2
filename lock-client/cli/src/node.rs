//! `lock-client node`: the nodes of a cluster (Redlock).

mod admit;
mod init;
mod status;

use clap::Subcommand;

use super::Failure;
use lock_client::redlock::operator::OperatorError;

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

impl From<OperatorError> for Failure {
    fn from(error: OperatorError) -> Self {
        match error {
            OperatorError::Invalid(_) => Self::Usage(error.to_string()),
            _ => Self::Unavailable(error.to_string()),
        }
    }
}
