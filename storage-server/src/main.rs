//! The command `storage-server`.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    storage_server::run(std::env::args_os()).await
}
