//! Programs of this workspace.

use std::{env, io, path::PathBuf, process::Command};

/// A program of this workspace, wherever Cargo has put it.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    subcommand: Option<String>,
}

impl Program {
    /// Makes one from the path of the program.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), subcommand: None }
    }

    /// Makes one from the path of a program that has it as a subcommand.
    pub fn with_subcommand(path: impl Into<PathBuf>, subcommand: &str) -> Self {
        Self { path: path.into(), subcommand: Some(subcommand.to_owned()) }
    }

    /// This program itself, run again with a subcommand. No other build of it can be met.
    ///
    /// # Errors
    /// If the system does not know this program's path.
    pub fn this(subcommand: &str) -> io::Result<Self> {
        Ok(Self::with_subcommand(env::current_exe()?, subcommand))
    }

    /// Returns a command that starts the program, still without further arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.subcommand);
        command
    }
}
