//! The programs that the lab runs as processes of their own: all are this program, run again, so
//! that no stale build of them is met.

use std::{env, ffi::OsString, io, process::ExitCode};

use testbed::Program;

const CLIENT: &str = "client";
const LOCK_CLIENT: &str = "lock-client";
const STORAGE_SERVER: &str = "storage-server";

/// The client that scenarios drive.
///
/// # Errors
/// If the system does not know this program's path.
pub fn client() -> io::Result<Program> {
    Program::this(CLIENT)
}

/// The command `lock-client`.
///
/// # Errors
/// If the system does not know this program's path.
pub fn lock_client() -> io::Result<Program> {
    Program::this(LOCK_CLIENT)
}

/// The command `storage-server`.
///
/// # Errors
/// If the system does not know this program's path.
pub fn storage_server() -> io::Result<Program> {
    Program::this(STORAGE_SERVER)
}

/// A command that the lab runs as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guest {
    /// `lock-client`
    LockClient,
    /// `storage-server`
    StorageServer,
}

impl Guest {
    /// The command that this process was started as, by its first argument.
    pub fn from_arguments() -> Option<Self> {
        let first = env::args_os().nth(1)?;
        [(LOCK_CLIENT, Self::LockClient), (STORAGE_SERVER, Self::StorageServer)]
            .into_iter()
            .find_map(|(name, guest)| (first == name).then_some(guest))
    }

    /// Runs the command with the arguments after its name.
    pub async fn run(self) -> ExitCode {
        let arguments = env::args_os().skip(1).collect::<Vec<OsString>>();
        match self {
            Self::LockClient => lock_client_cli::run(arguments).await,
            Self::StorageServer => storage_server::run(arguments).await,
        }
    }
}
