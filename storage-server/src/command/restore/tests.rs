//! Restores that are interrupted between two steps.

use std::mem;

use fence::Fence;
use tempfile::TempDir;

use super::*;
use crate::store::{
    maintenance::{Unreadable, open_maintenance},
    open::{MissingFile, open_store},
    replication::Replication,
    schema::Migrations,
    sqlite::integrity::{copy_into, parse_url},
};

const BACKED_UP: i64 = 33;
const NEWEST: i64 = 35;

fn url(file: &Path) -> String {
    format!("sqlite:{}", file.display())
}

/// The token of the fence of `r`.
async fn token(file: &Path) -> anyhow::Result<Option<i64>> {
    let row = open_maintenance(&url(file)).await?.stored(&"r".parse()?).await?;
    Ok(row.and_then(|row| row.token))
}

async fn set_token(file: &Path, token: i64) {
    let resource = "r".parse().unwrap();
    let mut database = open_maintenance(&url(file)).await.unwrap();
    let before = database.stored(&resource).await.unwrap();
    let fence = Fence { token: token.try_into().unwrap(), holder: Default::default() };
    let set = database.set_fence(&resource, before.as_ref(), &fence, Unreadable::default()).await;
    assert!(set.unwrap());
}

/// A backup, and the database of a server that was killed: its newest token is only in its log.
async fn backup_and_killed_database(folder: &Path) -> (PathBuf, PathBuf) {
    let (live, backup) = (folder.join("live.db"), folder.join("backup.db"));
    let (missing_file, migrations) = (MissingFile::Create, Migrations::Apply);
    let replication = Replication::default();
    let server = open_store(&url(&live), missing_file, migrations, &replication).await.unwrap();
    set_token(&live, BACKED_UP).await;
    copy_into(parse_url(&url(&live)).unwrap(), backup.to_str().unwrap()).await.unwrap();
    set_token(&live, NEWEST).await;
    let killed = folder.join("killed.db");
    for part in ["", "-wal"] {
        fs::copy(beside(&live, part), beside(&killed, part)).unwrap();
    }
    server.close().await;
    (backup, killed)
}

#[tokio::test]
async fn interrupted_restore_leaves_the_old_or_the_new_database_whole() {
    for steps in 0..=3 {
        let folder = TempDir::with_prefix("fenced-").unwrap();
        let (backup, file) = backup_and_killed_database(folder.path()).await;
        let mut copy = None;
        if steps >= 1 {
            copy = Some(prepare(&backup, &file, None).await.unwrap());
        }
        if steps >= 2 {
            remove_log(&file).await.unwrap().expect("there is a file").close().await.unwrap();
        }
        if steps >= 3 {
            replace(copy.take().unwrap(), &file).unwrap();
        }
        // A process that is killed removes no temporary file.
        mem::forget(copy);
        let expected = if steps < 3 { NEWEST } else { BACKED_UP };
        assert_eq!(token(&file).await.unwrap(), Some(expected), "{steps} steps");
    }
}

/// The negative control: the same steps in the wrong order.
#[tokio::test]
async fn database_that_is_replaced_before_its_log_is_removed_is_damaged() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let (backup, file) = backup_and_killed_database(folder.path()).await;
    replace(prepare(&backup, &file, None).await.unwrap(), &file).unwrap();
    let error = token(&file).await.unwrap_err().to_string();
    assert!(error.contains("write-ahead log of another file"), "{error}");
}

/// SQLite removes the journal of a connection that was dropped on another thread, and may be too late.
#[test]
fn journal_beside_a_temporary_copy_is_removed_with_it() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let copy = TemporaryCopy::beside(&folder.path().join("fenced.db")).unwrap();
    fs::write(beside(copy.file.path(), "-journal"), "").unwrap();
    drop(copy);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn failed_replacement_is_to_be_repeated() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    // A file can't replace a folder.
    let file = folder.path().join("fenced.db");
    fs::create_dir(&file).unwrap();
    let error = replace(TemporaryCopy::beside(&file).unwrap(), &file).unwrap_err().to_string();
    assert!(error.contains("run storage-server restore again"), "{error}");
}
