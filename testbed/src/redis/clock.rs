//! A wall clock of its own for a Redis, which can jump.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
    process::Command,
    time::Duration,
};

use anyhow::{Context, ensure};

use super::{Redis, listener::Door};
use crate::program::{shared_library, temporary_folder};

/// The file, in the folder of a Redis that has a clock of its own, that tells by how many milliseconds
/// it is ahead of the machine's.
const OFFSET: &str = "clock-offset";

impl Redis {
    /// Starts one with further arguments whose wall clock is its own, and can [`jump`](Self::jump).
    /// Other clocks, by which Redis measures how long something took, are the machine's.
    ///
    /// # Errors
    /// If this is not Linux, the library `clock-jump` isn't built, or `redis-server` isn't installed
    /// or doesn't start.
    pub async fn start_with_own_clock(arguments: &[&str]) -> anyhow::Result<Self> {
        ensure!(cfg!(target_os = "linux"), "only on Linux can a process have a clock of its own");
        let folder = temporary_folder()?;
        fs::write(folder.path().join(OFFSET), 0_i64.to_ne_bytes())?;
        Self::start_in(folder, Door::Socket, arguments).await
    }

    /// Sets its clock forward, at once. It stays so through restarts.
    ///
    /// # Errors
    /// If it was not started with a clock of its own.
    pub fn jump(&self, by: Duration) -> anyhow::Result<()> {
        let path = self.folder.path().join(OFFSET);
        let file = File::options().read(true).write(true).open(path);
        let file = file.context("this Redis has the machine's clock")?;
        let mut offset = [0; size_of::<i64>()];
        file.read_exact_at(&mut offset, 0)?;
        let offset = i64::from_ne_bytes(offset) + i64::try_from(by.as_millis())?;
        // Redis reads it at any time, so the eight bytes are written at once.
        Ok(file.write_all_at(&offset.to_ne_bytes(), 0)?)
    }
}

/// Gives a Redis that is about to be started in a folder the clock that is there, if any.
pub(super) fn preload(folder: &Path, command: &mut Command) -> anyhow::Result<()> {
    let offset = folder.join(OFFSET);
    if offset.is_file() {
        command.env("LD_PRELOAD", shared_library("libclock_jump.so")?);
        command.env("FENCED_CLOCK_OFFSET_FILE", offset);
    }
    Ok(())
}
