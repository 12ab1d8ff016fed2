//! The `lock-client` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    lock_client_cli::main()
}
