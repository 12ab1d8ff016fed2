//! The command `lab`: its scenarios, its hammer, its power losses and its benches.

mod bench;
mod hammer;
#[cfg(target_os = "linux")]
mod power_loss;
mod replay;
