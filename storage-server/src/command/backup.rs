//! `backup`: a copy of an SQLite database.

use std::{
    fs::{self, File},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail, ensure};
use clap::Args;
use rustix::io::Errno;
use sqlx::Connection;
use tempfile::NamedTempFile;

use super::{
    audited::Action,
    print,
    restore::{TemporaryCopy, check_backup, folder_of},
};
use crate::store::{
    open::DatabaseKind,
    sqlite::integrity::{copy_into, foreign_log, parse_url, path},
};

#[derive(Debug, Args)]
pub(super) struct Backup {
    /// The file to write, which must not exist.
    file: PathBuf,
}

impl Backup {
    pub(super) fn action(&self) -> Action {
        let target = Some(self.file.display().to_string());
        Action { command: "backup", target, token: None }
    }

    /// Copies the database as of one moment into a file, which appears whole or not at all.
    pub(super) async fn run(self, database_url: &str) -> anyhow::Result<()> {
        let Self { file: backup } = self;
        if DatabaseKind::from_url(database_url)? == DatabaseKind::Postgres {
            bail!(
                "back up PostgreSQL with pg_dump or a physical backup, and after a restore run \
                 storage-server fence raise before any server starts"
            );
        }
        if DatabaseKind::from_url(database_url)? == DatabaseKind::ObjectStorage {
            bail!(
                "a bucket is backed up by its store, for example by versioning or replication. A copy of the \
                 objects is as good a backup of each resource by itself"
            );
        }
        let exists = backup.try_exists();
        let exists = exists.with_context(|| format!("can't create {}", backup.display()))?;
        ensure!(!exists, "{} exists already", backup.display());
        if let Some(reason) = foreign_log(&path(database_url)?) {
            bail!("{database_url} is damaged: {reason}");
        }

        // 1. Write and check a temporary file. A crash leaves nothing under the backup's name.
        let copy = TemporaryCopy::beside(&backup)?;
        let name = copy.file.path().to_str().context("the file's name is not UTF-8")?;
        copy_into(parse_url(database_url)?, name)
            .await
            .with_context(|| format!("can't copy {database_url} to {}", backup.display()))?;
        check_backup(copy.file.path()).await?.close().await?;

        // 2. Make it durable before it gets its name, and the name after that.
        copy.file.as_file().sync_all()?;
        name_copy(copy.file, &backup)
            .with_context(|| format!("can't create {}", backup.display()))?;
        File::open(folder_of(&backup))?.sync_all()?;
        print(format_args!("{} is a backup of {database_url}", backup.display()));
        Ok(())
    }
}

/// Gives the copy its name, and replaces nothing that has the name.
fn name_copy(copy: NamedTempFile, backup: &Path) -> anyhow::Result<()> {
    let failed = match copy.persist_noclobber(backup) {
        Ok(_) => return Ok(()),
        Err(failed) => failed,
    };
    // The file system may have neither hard links nor a rename that replaces nothing.
    let has_neither = [Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL];
    if !Errno::from_io_error(&failed.error).is_some_and(|error| has_neither.contains(&error)) {
        return Err(failed.error.into());
    }
    // 1. Reserve the name. Another file, a link or another backup that has it makes this fail.
    File::options().write(true).create_new(true).mode(0o600).open(backup)?;
    // 2. Replace the reserved file, which is this backup's own.
    if let Err(failed) = failed.file.persist(backup) {
        fs::remove_file(backup)?;
        return Err(failed.error.into());
    }
    Ok(())
}
