//! `restore`: a backup in the place of an SQLite database.

use std::{
    fs::{self, File},
    io, mem,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail, ensure};
use clap::Args;
use fence::Token;
use sqlx::{Connection, SqliteConnection};
use tempfile::{NamedTempFile, TempDir};

use super::{audited::Action, print};
use crate::store::{
    open::DatabaseKind,
    sqlite::{
        integrity::{
            beside, foreign_log, has_resources, is_busy, is_damage, move_log_into_file, open_alone,
            path, quick_check,
        },
        maintenance::{common_fence, set_common_fence},
    },
};

#[derive(Debug, Args)]
pub(super) struct Restore {
    /// The backup, which stays as it is.
    file: PathBuf,

    /// Replace the database that is there, and lose its data.
    #[arg(long)]
    force: bool,

    /// Reject all tokens up to this one, as `fence raise` does.
    #[arg(long, value_name = "TOKEN")]
    raise_above: Option<Token>,
}

impl Restore {
    pub(super) fn action(&self) -> Action {
        let target = Some(self.file.display().to_string());
        Action { command: "restore", target, token: self.raise_above }
    }

    pub(super) async fn run(self, database_url: &str) -> anyhow::Result<()> {
        let Self { file: backup, force, raise_above } = self;
        if DatabaseKind::from_url(database_url)? == DatabaseKind::Postgres {
            bail!(
                "restore PostgreSQL with its own tools, and then run storage-server fence raise \
                 before any server starts"
            );
        }
        if DatabaseKind::from_url(database_url)? == DatabaseKind::ObjectStorage {
            bail!(
                "restore the objects with the store's own tools while no server runs, and then set the \
                 fence of each restored resource with storage-server fence set"
            );
        }
        // SQLite follows links, so each log has the name of the file that a link leads to.
        let file = follow_links(path(database_url)?)?;
        let backup =
            backup.canonicalize().with_context(|| format!("can't read {}", backup.display()))?;
        ensure_replaceable(&file, force)?;

        // 1. Make the new database complete and durable, under another name.
        let copy = prepare(&backup, &file, raise_above).await?;

        // 2. Move everything of the old database into its file, and keep servers out. Its log would
        //    become the log of the new database, which would be corrupt. If the old database is
        //    damaged, or the log is another file's, the log can't be moved, and is removed.
        let old = remove_log(&file).await?;

        // 3. Replace the old database by the new one, in one step. Before it, a whole database is as
        //    it was, and a damaged one has lost its log. After it, everything is restored.
        replace(copy, &file)?;
        if let Some(old) = old {
            old.close().await?;
        }

        print(format_args!("{} was restored from {}", file.display(), backup.display()));
        match raise_above {
            Some(common_fence) => print(format_args!("tokens up to {common_fence} are rejected")),
            None => print(
                "The fences are those of the backup, lower than tokens that were issued since. Before a \
                 server starts, run: storage-server fence raise --all --above TOKEN, with the highest \
                 token of any lock.",
            ),
        }
        Ok(())
    }
}

/// The path of the file itself, if a link leads to it. The file may be missing.
fn follow_links(file: PathBuf) -> anyhow::Result<PathBuf> {
    match file.canonicalize() {
        Ok(file) => Ok(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            ensure!(!file.is_symlink(), "{} is a link that leads nowhere", file.display());
            Ok(file)
        }
        Err(error) => Err(error).with_context(|| format!("can't find {}", file.display())),
    }
}

fn ensure_replaceable(file: &Path, force: bool) -> anyhow::Result<()> {
    if force {
        return Ok(());
    }
    for part in [file.to_owned(), beside(file, "-wal"), beside(file, "-journal")] {
        ensure!(!part.exists(), "{} exists: add --force to replace it", part.display());
    }
    Ok(())
}

/// Copies the backup beside the file that it will replace, checks the copy, and raises its common fence.
async fn prepare(
    backup: &Path,
    file: &Path,
    raise_above: Option<Token>,
) -> anyhow::Result<TemporaryCopy> {
    for part in ["-wal", "-journal"].map(|suffix| beside(backup, suffix)) {
        ensure!(
            fs::metadata(&part).map_or(0, |part| part.len()) == 0,
            "{} is not a whole backup, because a part of it is in {}: make it with storage-server \
             backup",
            backup.display(),
            part.display(),
        );
    }
    let mut copy = TemporaryCopy::beside(file)?;
    let mut from =
        File::open(backup).with_context(|| format!("can't read {}", backup.display()))?;
    io::copy(&mut from, copy.file.as_file_mut())?;
    let like = fs::metadata(file);
    let like = like.or_else(|_| from.metadata())?;
    copy.file.as_file().set_permissions(like.permissions())?;
    let mut connection =
        check_backup(copy.file.path()).await.with_context(|| format!("{}", backup.display()))?;
    if let Some(raised) = raise_above {
        let before = common_fence(&mut connection).await.context(
            "the backup has an older schema: restore it without --raise-above, then run \
             storage-server migrate and storage-server fence raise",
        )?;
        if before < Some(raised) {
            set_common_fence(&mut connection, before, raised).await?;
        }
    }
    connection.close().await?;
    copy.file.as_file().sync_all()?;
    Ok(copy)
}

/// Opens a backup alone, and checks that it is whole.
pub(super) async fn check_backup(file: &Path) -> anyhow::Result<SqliteConnection> {
    let mut connection = open_alone(file).await.context("the backup is no SQLite database")?;
    let damaged = move_log_into_file(&mut connection).await;
    damaged.context("the backup is damaged")?;
    if let Some(reason) = quick_check(&mut connection).await? {
        bail!("the backup is damaged: {reason}");
    }
    ensure!(
        has_resources(&mut connection).await?,
        "the backup has no resources of a storage server"
    );
    Ok(connection)
}

/// Removes the write-ahead log of the database that will be replaced. The returned connection keeps
/// servers out.
async fn remove_log(file: &Path) -> anyhow::Result<Option<SqliteConnection>> {
    if !file.exists() {
        for part in ["-wal", "-shm", "-journal"] {
            remove_if_exists(&beside(file, part))?;
        }
        return Ok(None);
    }
    if let Some(reason) = foreign_log(file) {
        // Its own log is lost already, and the file is about to be.
        print(format_args!("removing what is no part of {}: {reason}", file.display()));
        remove_if_exists(&beside(file, "-wal"))?;
    }
    let opened = match open_alone(file).await {
        Err(error) if is_busy(&error) => bail!("{} is in use: stop its server", file.display()),
        Err(error) => Err(error),
        Ok(mut connection) => match move_log_into_file(&mut connection).await {
            Err(error) if is_damage(&error) => {
                print(format_args!("{} is damaged, its log is removed: {error}", file.display()));
                remove_if_exists(&beside(file, "-wal"))?;
                // It is never closed: that would remove the log of the new database by its name.
                mem::forget(connection);
                Ok(None)
            }
            moved => moved.map(|()| Some(connection)),
        },
    };
    // The log is gone. A server that was killed has left the log's index.
    let connection = opened.map_err(|error| {
        let file = file.display();
        let failed = if is_damage(&error) {
            format!(
                "{file} is damaged, and can't be opened: move {file}, {file}-wal and {file}-shm away, \
                 and run storage-server restore again"
            )
        } else {
            format!("can't open {file}, or move its log into it")
        };
        anyhow::Error::new(error).context(failed)
    })?;
    remove_if_exists(&beside(file, "-shm"))?;
    Ok(connection)
}

fn replace(copy: TemporaryCopy, file: &Path) -> anyhow::Result<()> {
    copy.file.persist(file).with_context(|| {
        format!("can't replace {}: run storage-server restore again", file.display())
    })?;
    File::open(folder_of(file))?.sync_all()?;
    Ok(())
}

/// A temporary file, in a temporary folder beside the file whose name it will get in one step. Both
/// are removed on drop, with all that SQLite has put beside the file.
pub(super) struct TemporaryCopy {
    pub(super) file: NamedTempFile,
    _folder: TempDir,
}

impl TemporaryCopy {
    pub(super) fn beside(file: &Path) -> anyhow::Result<Self> {
        let parent = folder_of(file);
        let folder = tempfile::Builder::new().prefix(".storage-server-").tempdir_in(parent);
        let folder = folder.with_context(|| format!("can't write into {}", parent.display()))?;
        Ok(Self { file: NamedTempFile::new_in(&folder)?, _folder: folder })
    }
}

pub(super) fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn remove_if_exists(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests;
