//! A wall clock for one Redis, which can jump.

use std::{
    env,
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, ensure};

/// The library that shifts the clock of a process: the package `clock-jump`, on which this one
/// depends, so that Cargo builds it for every program that is built with this one.
const LIBRARY: &str = "libclock_jump.so";
/// The file, in the folder of a Redis with such a clock, that has the milliseconds by which the
/// clock is ahead of the machine's.
const OFFSET: &str = "clock-offset";

/// The clock of a Redis that has one of its own.
#[derive(Debug)]
pub(super) struct Clock {
    offset: PathBuf,
}

impl Clock {
    /// Makes a clock for the Redis that will start in a folder. It is not ahead.
    ///
    /// # Errors
    /// If this is not Linux.
    pub(super) fn new(folder: &Path) -> anyhow::Result<Self> {
        ensure!(cfg!(target_os = "linux"), "only on Linux can a process have a clock of its own");
        let offset = folder.join(OFFSET);
        fs::write(&offset, 0_i64.to_ne_bytes())?;
        Ok(Self { offset })
    }

    /// Returns the clock of the Redis in a folder, or `None` if it has the machine's.
    pub(super) fn find(folder: &Path) -> Option<Self> {
        let offset = folder.join(OFFSET);
        offset.is_file().then_some(Self { offset })
    }

    /// Gives the clock to a Redis that is about to start.
    ///
    /// # Errors
    /// If the library isn't built.
    pub(super) fn preload(&self, command: &mut Command) -> anyhow::Result<()> {
        command.env("LD_PRELOAD", library()?).env("FENCED_CLOCK_OFFSET_FILE", &self.offset);
        Ok(())
    }

    /// Sets the clock forward.
    ///
    /// # Errors
    /// If its file can't be written.
    pub(super) fn jump(&self, by: Duration) -> anyhow::Result<()> {
        let file = File::options().read(true).write(true).open(&self.offset)?;
        let mut offset = [0; size_of::<i64>()];
        file.read_exact_at(&mut offset, 0)?;
        let offset = i64::from_ne_bytes(offset) + i64::try_from(by.as_millis())?;
        // Redis reads it at any time, so the eight bytes are written at once.
        Ok(file.write_all_at(&offset.to_ne_bytes(), 0)?)
    }
}

/// Returns the path of the library. Cargo builds it into the folder `deps`, which also has the
/// tests; programs are beside that folder, and examples in another beside it.
fn library() -> anyhow::Result<PathBuf> {
    let program = env::current_exe()?;
    let mut libraries = program.ancestors().map(|folder| folder.join("deps").join(LIBRARY));
    libraries
        .find(|library| library.is_file())
        .with_context(|| format!("{LIBRARY} is not in the folder deps of {}", program.display()))
}
