//! The `lock-client` command.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    lock_client_cli::main().await
}
