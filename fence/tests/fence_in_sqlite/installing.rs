//! Installing the fence, again, and over an older one.

use std::fs;

use sqlx::migrate::Migrator;

use super::*;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations/sqlite/fence");

/// The files in their order.
fn files() -> Vec<String> {
    let files = fs::read_dir(FOLDER).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = files.map(|path| path.display().to_string()).collect();
    files.sort();
    files
}

/// Applies files as their header says.
fn apply(file: &Path, sql: &[String]) {
    for sql in sql {
        let mut command = Command::new("sqlite3");
        command.arg("-bail").arg(file).stdin(fs::File::open(sql).unwrap());
        let output = command.output().expect("sqlite3 is installed; the package sqlite3 has it");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[tokio::test]
async fn installing_again_keeps_fences_and_protection() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("accounts.db");
    apply(&file, &files());
    apply(&file, &files());
    let mut database = settings_of(&file).connect().await.unwrap();
    attempt(&mut database, ACCOUNTS).await.unwrap();
    sqlite::install(&mut database).await.unwrap();
    sqlite::install(&mut database).await.unwrap();
    apply(&file, &files());
    kept(&mut database).await;
}

/// `0001_fence.sql` was the whole fence.
#[tokio::test]
async fn upgrade_from_the_first_file_loses_nothing() {
    let first = &files()[..1];
    for installed_by_sqlx in [false, true] {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("accounts.db");
        let mut database = settings_of(&file).connect().await.unwrap();
        if installed_by_sqlx {
            let old = TempDir::new().unwrap();
            fs::copy(&first[0], old.path().join("0001_fence.sql")).unwrap();
            let mut migrator = Migrator::new(old.path()).await.unwrap();
            migrator.dangerous_set_table_name("fence_migrations");
            migrator.run(&mut database).await.unwrap();
        } else {
            apply(&file, first);
        }
        attempt(&mut database, ACCOUNTS).await.unwrap();
        let version = "select count(*) from sqlite_schema where name = 'fence_version'";
        assert_eq!(number(&mut database, version).await, 0, "it is the old fence");

        // Another connection writes before and after, and need not connect again.
        let mut writer = settings_of(&file).connect().await.unwrap();
        kept(&mut writer).await;
        sqlite::install(&mut database).await.unwrap();
        kept(&mut writer).await;
        // Also from a client, and inside a transaction of the caller.
        apply(&file, &files());
        attempt(&mut database, "begin").await.unwrap();
        for sql in files() {
            attempt(&mut database, &fs::read_to_string(sql).unwrap()).await.unwrap();
        }
        attempt(&mut database, "commit").await.unwrap();
        kept(&mut writer).await;
        assert_eq!(
            attempt(&mut writer, "delete from fence").await.unwrap_err(),
            NOT_REMOVED,
            "the new part is there"
        );
        let note = "insert into fence_protect values ('accounts', 'account_id')";
        attempt(&mut database, note).await.unwrap();
        execute_printed_sql(&mut database).await.unwrap();
        kept(&mut writer).await;
        apply(&file, &files());
        assert_eq!(status(&mut database).await, ["checked checked checked", ""]);
    }
}

#[tokio::test]
async fn version_is_the_number_of_the_last_file() {
    let mut database = accounts().await;
    let last = files().last().unwrap().rsplit('/').next().unwrap()[..4].parse::<i64>().unwrap();
    assert_eq!(number(&mut database, "select version from fence_version").await, last);
}

/// The fence of alice is at token 34 of holder a, and protects her row.
async fn kept(database: &mut SqliteConnection) {
    for (offered, expected) in [
        (String::new(), TOKEN_REQUIRED),
        (presented(33, "a"), STALE),
        (presented(34, "b"), HOLDER_CONFLICT),
    ] {
        let rejected = attempt_and_roll_back(database, &format!("{offered}{UPDATE}")).await;
        assert_eq!(rejected.unwrap_err(), expected);
    }
    let valid = format!("begin immediate; {PRESENT}{UPDATE} {WITHDRAW} commit");
    attempt(database, &valid).await.unwrap();
}
