//! Private servers: each run has its own, on sockets or free ports, in temporary folders.

mod mariadb;
pub(crate) mod postgres;
pub mod redis;
mod shared;
mod storage;

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};
use rustix::process::geteuid;
use tempfile::TempDir;

pub use self::{
    mariadb::MariaDb,
    postgres::Postgres,
    redis::{LostReply, NodeKind, Redis, RedisCluster, RedlockNodes, Replica, Sentinels},
    shared::Shared,
    storage::StorageServer,
};
use crate::process::User;

/// A folder that is removed with what is in it when this is dropped.
fn temporary_folder() -> anyhow::Result<TempDir> {
    TempDir::with_prefix("fenced-").context("can't make a temporary folder")
}

/// The path of a program that a package installs.
pub(crate) fn installed(
    program: &str,
    folders: &[PathBuf],
    package: &str,
) -> anyhow::Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(folders.iter().cloned())
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .with_context(|| format!("{program} is not installed; {package} has it"))
}

/// Whom to run a database server as that refuses to run as root: the user that its package makes, or
/// `None` where this is not root.
fn unprivileged_user(name: &str, package: &str) -> anyhow::Result<Option<User>> {
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

/// The path of one of this workspace's own programs, or libraries, which is built beside this one.
///
/// # Errors
/// If it isn't there.
pub fn built(program: &str) -> anyhow::Result<PathBuf> {
    let this = env::current_exe()?;
    let folder = this.parent().context("a program is in a folder")?;
    // Tests are built in a folder of their own, `deps`.
    let folder = if folder.ends_with("deps") { folder.parent().unwrap_or(folder) } else { folder };
    let file: &Path = &folder.join(program);
    if !file.is_file() {
        bail!("{} is not built; `cargo build` builds it", file.display());
    }
    Ok(file.to_owned())
}
