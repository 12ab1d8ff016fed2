//! The programs under test, which Cargo builds for these tests.

use testbed::Program;

pub(crate) const LOCK_CLIENT: &str = env!("CARGO_BIN_EXE_lock-client-under-test");

pub(crate) const STORAGE_SERVER: &str = env!("CARGO_BIN_EXE_storage-server-under-test");

pub(crate) const COMMAND_HOST: &str = env!("CARGO_BIN_EXE_command-host");

pub(crate) fn storage_server() -> Program {
    Program::new(STORAGE_SERVER)
}
