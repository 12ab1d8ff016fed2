//! The program under test.

use testbed::Program;

pub(crate) const STORAGE_SERVER: &str = env!("CARGO_BIN_EXE_storage-server");

pub(crate) fn storage_server() -> Program {
    Program::new(STORAGE_SERVER)
}
