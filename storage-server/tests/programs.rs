//! The program under test.

use testbed::{ObjectStorage, Program};

pub(crate) const STORAGE_SERVER: &str = env!("CARGO_BIN_EXE_storage-server");

pub(crate) fn storage_server() -> Program {
    Program::new(STORAGE_SERVER)
}

/// The program, which may use object storage.
pub(crate) fn storage_server_with_keys() -> Program {
    storage_server().with_variables(ObjectStorage::VARIABLES)
}
