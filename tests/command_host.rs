//! Another program that has the command `lock-client` as a hidden subcommand.

use std::{env, process::ExitCode};

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    assert_eq!(arguments.next().as_deref(), Some("hidden".as_ref()));
    lock_client_cli::run(arguments).await
}
