//! Programs of this workspace.

use std::{path::PathBuf, process::Command};

/// A program of this workspace, wherever Cargo has put it.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
}

impl Program {
    /// Makes one from the path of the program.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Returns a command that starts the program, still without arguments.
    pub fn command(&self) -> Command {
        Command::new(&self.path)
    }
}
