//! The program under test.

pub(crate) const LOCK_CLIENT: &str = env!("CARGO_BIN_EXE_lock-client");
