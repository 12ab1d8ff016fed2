//! Programs of this workspace, and programs that a package installs.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};
use rustix::process::geteuid;
use tempfile::TempDir;

use crate::process::User;

/// A program of this workspace, and the arguments that it always gets.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<String>,
}

impl Program {
    /// The program at a path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), arguments: Vec::new() }
    }

    /// This program itself, run again with a subcommand.
    ///
    /// # Errors
    /// If the operating system does not know this program's path.
    pub fn this(subcommand: &str) -> anyhow::Result<Self> {
        Ok(Self { path: env::current_exe()?, arguments: vec![subcommand.to_owned()] })
    }

    /// The same program with one more argument before all others.
    #[must_use]
    pub fn with_argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// A command that starts the program.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments);
        command
    }
}

/// A folder that is removed with its content when the value is dropped.
pub(crate) fn temporary_folder() -> anyhow::Result<TempDir> {
    TempDir::with_prefix("fenced-").context("can't make a temporary folder")
}

/// Returns the path of a program that a package installs: from `PATH`, or from one of the folders.
///
/// # Errors
/// If the program is in none of them. The error names the package.
pub fn installed(program: &str, folders: &[PathBuf], package: &str) -> anyhow::Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(folders.iter().cloned())
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .with_context(|| format!("{program} is not installed; {package} has it"))
}

/// Returns the user to run a database server as that refuses to run as root: the user that its
/// package makes, or `None` where this process is not root.
pub(crate) fn unprivileged_user(name: &str, package: &str) -> anyhow::Result<Option<User>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let id = |option: &str| -> anyhow::Result<u32> {
        let output = Command::new("id").args([option, name]).output()?;
        if !output.status.success() {
            bail!("it does not run as root, and there is no user {name}; {package} makes it");
        }
        Ok(String::from_utf8(output.stdout)?.trim().parse()?)
    };
    Ok(Some(User { uid: id("-u")?, gid: id("-g")? }))
}

/// Returns the path of a shared library that is built with this crate.
///
/// # Errors
/// If it isn't there.
pub(crate) fn shared_library(file: &str) -> anyhow::Result<PathBuf> {
    let this = env::current_exe()?;
    let folder = this.parent().context("a program is in a folder")?;
    // Cargo puts tests and libraries into the folder `deps`, and programs beside it.
    let deps = if folder.ends_with("deps") { folder.to_owned() } else { folder.join("deps") };
    let file: &Path = &deps.join(file);
    if !file.is_file() {
        bail!("{} is not built", file.display());
    }
    Ok(file.to_owned())
}
