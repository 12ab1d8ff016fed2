//! A wall clock for one process, which can jump.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::ensure;

use crate::preload::library;

/// The library that shifts the clock of a process: the package `clock-jump`.
const LIBRARY: &str = "libclock_jump.so";
/// The file, in the folder of a process with such a clock, that has the milliseconds by which the
/// clock is ahead of the machine's.
const OFFSET: &str = "clock-offset";

/// The wall clock of a process that has one of its own. Its other clocks are the machine's.
#[derive(Debug)]
pub struct Clock {
    folder: PathBuf,
}

impl Clock {
    /// Makes a clock for the process that will start in a folder. It is not ahead.
    ///
    /// # Errors
    /// If this is not Linux, or the library isn't built.
    pub fn new(folder: &Path) -> anyhow::Result<Self> {
        ensure!(cfg!(target_os = "linux"), "only on Linux can a process have a clock of its own");
        let clock = Self { folder: folder.to_owned() };
        // The process may run as a user that can't read the folder of the build.
        fs::copy(library(LIBRARY)?, folder.join(LIBRARY))?;
        fs::write(clock.offset(), 0_i64.to_ne_bytes())?;
        Ok(clock)
    }

    /// Returns the clock of the process in a folder, or `None` if it has the machine's.
    pub(crate) fn find(folder: &Path) -> Option<Self> {
        let clock = Self { folder: folder.to_owned() };
        clock.offset().is_file().then_some(clock)
    }

    /// Gives the clock to a process that is about to start.
    pub fn preload(&self, command: &mut Command) {
        command.env("LD_PRELOAD", self.folder.join(LIBRARY));
        command.env("FENCED_CLOCK_OFFSET_FILE", self.offset());
    }

    /// Sets the clock forward, at once and also for later starts.
    ///
    /// # Errors
    /// If its file can't be written.
    pub fn jump(&self, by: Duration) -> anyhow::Result<()> {
        self.shift(by.as_millis().try_into()?)
    }

    /// Sets the clock back, at once and also for later starts.
    ///
    /// # Errors
    /// If its file can't be written.
    pub fn jump_back(&self, by: Duration) -> anyhow::Result<()> {
        self.shift(-i64::try_from(by.as_millis())?)
    }

    fn shift(&self, millis: i64) -> anyhow::Result<()> {
        let file = File::options().read(true).write(true).open(self.offset())?;
        let mut offset = [0; size_of::<i64>()];
        file.read_exact_at(&mut offset, 0)?;
        let offset = i64::from_ne_bytes(offset) + millis;
        // The process reads it at any time, so the eight bytes are written at once.
        Ok(file.write_all_at(&offset.to_ne_bytes(), 0)?)
    }

    fn offset(&self) -> PathBuf {
        self.folder.join(OFFSET)
    }
}
