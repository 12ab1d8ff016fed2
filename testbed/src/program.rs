//! Programs of this workspace.

use std::{env, io, path::PathBuf, process::Command};

/// A program of this workspace, wherever Cargo has put it.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    subcommand: Option<String>,
    variables: Vec<(&'static str, &'static str)>,
}

impl Program {
    /// Makes one from the path of the program.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), subcommand: None, variables: Vec::new() }
    }

    /// This program itself, run again with a subcommand. No other build of it can be met.
    ///
    /// # Errors
    /// If the system does not know this program's path.
    pub fn this(subcommand: &str) -> io::Result<Self> {
        Ok(Self::new(env::current_exe()?).with_subcommand(subcommand))
    }

    /// Runs the program with a subcommand.
    #[must_use]
    pub fn with_subcommand(self, subcommand: &str) -> Self {
        Self { subcommand: Some(subcommand.to_owned()), ..self }
    }

    /// Adds variables to its environment.
    #[must_use]
    pub fn with_variables(
        mut self,
        variables: impl IntoIterator<Item = (&'static str, &'static str)>,
    ) -> Self {
        self.variables.extend(variables);
        self
    }

    /// Returns a command that starts the program, still without further arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.subcommand).envs(self.variables.iter().copied());
        command
    }
}
