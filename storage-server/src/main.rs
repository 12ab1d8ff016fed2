//! The command `storage-server`.

use std::process::ExitCode;

use mimalloc::MiMalloc;
use tokio::runtime::Runtime;

/// A fifth of the server's processor time was the system's allocator.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let runtime = Runtime::new().expect("the operating system has threads for it");
    let code = runtime.block_on(storage_server::run(std::env::args_os()));
    // A lookup of a name can't be cancelled, and the process ends without waiting for it.
    runtime.shutdown_background();
    code
}
