//! Backups, and what goes wrong with restores by hand.

use std::{fs, os::unix::fs::symlink};

use sqlx::{Connection, SqliteConnection};

use crate::database::{Database, get, offer};

/// A database with many resources, and a backup of its first state.
async fn backed_up() -> Database {
    let database = Database::sqlite();
    let server = database.serve(&[]).await;
    fill(&database, "old").await;
    offer(&server, "PUT", "/v1/resources/r", 34, "old").await;
    let backup = database.file("backup.db");
    database.run(&["backup", backup.to_str().unwrap()]).await.printed();
    offer(&server, "PUT", "/v1/resources/r", 35, "new").await;
    database
}

/// Writes enough to move pages about.
async fn fill(database: &Database, value: &str) {
    let fill = format!(
        "with recursive n (n) as (select 1 union all select n + 1 from n where n < 2000)
        insert into storage.resource
            (resource, token, holder, version, content_type, bytes, value_token, value_holder)
        select '{value}/' || (n * 7919 % 2000), 1, '', 1, 'text/plain', randomblob(100), 1, ''
        from n"
    );
    database.execute(&fill).await.unwrap();
}

#[tokio::test]
async fn backup_of_a_running_server_is_restored() {
    let database = backed_up().await;
    let backup = database.file("backup.db");
    let backup = backup.to_str().unwrap();

    // A backup is never overwritten.
    let before = fs::read(backup).unwrap();
    let error = database.run(&["backup", backup]).await.failed();
    assert!(error.contains("exists already"), "{error}");
    assert_eq!(fs::read(backup).unwrap(), before);

    let error = database.run(&["restore", backup]).await.failed();
    assert!(error.contains("--force"), "{error}");

    let restored = database.run(&["restore", backup, "--force"]).await.printed();
    assert!(restored.contains("fence raise --all --above"), "{restored}");
    assert_eq!(fs::read(backup).unwrap(), before, "the backup stays as it is");
    for part in ["-wal", "-shm", "-journal"] {
        assert!(!database.file(&format!("fenced.db{part}")).exists(), "{part}");
    }
    let server = database.serve(&[]).await;
    assert_eq!(get(&server, "/v1/resources/r").await.text(), "old");
    assert_eq!(get(&server, "/v1/fences/r").await.json()["token"], 34);
    // What a restore gives up: 35 was issued, and 34's owner is a late writer.
    assert_eq!(offer(&server, "PUT", "/v1/resources/r", 34, "late").await.status, 200);
    drop(server);

    let raise = ["restore", backup, "--force", "--raise-above", "35"];
    let restored = database.run(&raise).await.printed();
    assert!(restored.contains("up to 35 are rejected"), "{restored}");
    let server = database.serve(&[]).await;
    for token in [34, 35] {
        let late = offer(&server, "PUT", "/v1/resources/r", token, "late").await;
        assert_eq!(late.problem(), "412 stale-token");
    }
    assert_eq!(offer(&server, "PUT", "/v1/resources/r", 36, "newer").await.status, 200);
}

#[tokio::test]
async fn restore_rejects_a_file_that_a_server_uses() {
    let database = backed_up().await;
    let server = database.serve(&[]).await;
    let error = database.run(&["restore", "backup.db", "--force"]).await.failed();
    assert!(error.contains("is in use: stop its server"), "{error}");
    assert_eq!(get(&server, "/v1/resources/r").await.text(), "new");
    assert_eq!(offer(&server, "PUT", "/v1/resources/r", 36, "newer").await.status, 200);
}

/// The server was killed: its last writes are only in the log, which must not outlive its file.
#[tokio::test]
async fn restore_by_hand_with_the_old_log_is_rejected() {
    let database = backed_up().await;
    let (file, log) = (database.file("fenced.db"), database.file("fenced.db-wal"));
    // The log begins again, and will have only some of the file's pages.
    database.execute("pragma wal_checkpoint(truncate)").await.unwrap();
    let mut server = database.serve(&[]).await;
    for token in 36..100 {
        offer(&server, "PUT", "/v1/resources/r", token, &"y".repeat(5000)).await;
    }
    fill(&database, "new").await;
    server.process().kill().unwrap();
    let damaged = fs::read(&log).unwrap();
    assert!(!damaged.is_empty(), "a part of the data is in the log");
    let listen = ["--listen", "127.0.0.1:0"];

    // 1. By our own backup: the file's header says that it has no log.
    fs::copy(database.file("backup.db"), &file).unwrap();
    let error = database.run(&listen).await.failed();
    assert!(error.contains("write-ahead log of another file"), "{error}");
    assert!(error.contains("storage-server restore"), "{error}");
    assert_eq!(fs::read(&log).unwrap(), damaged, "the log is left as it is");
    for command in [&["backup", "b.db"][..], &["fence", "show", "r"]] {
        let error = database.run(command).await.failed();
        assert!(error.contains("write-ahead log of another file"), "{error}");
    }

    // 2. By a backup that claims to have a log, such as by SQLite's shell: the structure is checked.
    let mut copy =
        SqliteConnection::connect(&format!("sqlite:{}", database.file("backup.db").display()))
            .await
            .unwrap();
    sqlx::query("pragma journal_mode = wal").execute(&mut copy).await.unwrap();
    copy.close().await.unwrap();
    fs::copy(database.file("backup.db"), &file).unwrap();
    fs::write(&log, &damaged).unwrap();
    let whole = fs::read(&file).unwrap();
    let error = database.run(&listen).await.failed();
    assert!(error.contains("is damaged") && error.contains("storage-server restore"), "{error}");
    assert_eq!(fs::read(&file).unwrap(), whole, "the log was not moved into the file");

    // 3. The command restores it all the same.
    let printed = database.run(&["restore", "backup.db", "--force"]).await.printed();
    assert!(printed.contains("its log is removed"), "{printed}");
    let server = database.serve(&[]).await;
    assert_eq!(get(&server, "/v1/resources/r").await.text(), "old");
}

/// A part of the data is in the log, which has the name of the file and not that of the link.
#[tokio::test]
async fn link_to_a_live_file_is_no_backup() {
    let database = backed_up().await;
    fs::create_dir(database.file("live")).unwrap();
    for part in ["", "-wal"] {
        let (from, to) = (format!("fenced.db{part}"), format!("live/fenced.db{part}"));
        fs::copy(database.file(&from), database.file(&to)).unwrap();
    }
    assert_ne!(fs::metadata(database.file("live/fenced.db-wal")).unwrap().len(), 0);
    symlink("live/fenced.db", database.file("link.db")).unwrap();
    for backup in ["live/fenced.db", "link.db"] {
        let error = database.run(&["restore", backup, "--force"]).await.failed();
        assert!(error.contains("is not a whole backup"), "{backup}: {error}");
    }
}

/// As the power may fail while a restored file gets its log: the rest of the change is in the journal.
#[tokio::test]
async fn change_that_was_cut_off_is_undone_and_is_no_backup() {
    let database = backed_up().await;
    let backup = database.file("backup.db");
    let url = format!("sqlite:{}", backup.display());
    let mut writer = SqliteConnection::connect(&url).await.unwrap();
    let whole = fs::read(&backup).unwrap();
    // With so small a cache, pages go into the file before the transaction ends. All connections of a
    // process share what their caches may have, so others can free memory. Even then, each new page pushes
    // another out.
    let change = "pragma cache_size = 2; begin immediate;
        update storage_resource set bytes = zeroblob(1000)";
    sqlx::raw_sql(change).execute(&mut writer).await.unwrap();
    for part in ["", "-journal"] {
        let from = database.file(&format!("backup.db{part}"));
        fs::copy(from, database.file(&format!("cut-off.db{part}"))).unwrap();
    }
    assert!(fs::read(database.file("cut-off.db")).unwrap() != whole, "the file has a part of it");
    drop(writer);

    // 1. A restore would take the file without its journal.
    let error = database.run(&["restore", "cut-off.db", "--force"]).await.failed();
    assert!(error.contains("cut-off.db-journal"), "{error}");

    // 2. A server undoes the change.
    for part in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(database.file(&format!("fenced.db{part}")));
    }
    for part in ["", "-journal"] {
        let from = database.file(&format!("cut-off.db{part}"));
        fs::copy(from, database.file(&format!("fenced.db{part}"))).unwrap();
    }
    let server = database.serve(&[]).await;
    assert_eq!(get(&server, "/v1/resources/r").await.text(), "old");
    assert_eq!(get(&server, "/v1/fences/r").await.json()["holder"], "");
    drop(server);

    // The control: without its journal, the file is damaged.
    for part in ["-wal", "-shm"] {
        let _ = fs::remove_file(database.file(&format!("fenced.db{part}")));
    }
    fs::copy(database.file("cut-off.db"), database.file("fenced.db")).unwrap();
    assert!(!database.file("fenced.db-journal").exists());
    let mut reader = SqliteConnection::connect(&database.url).await.unwrap();
    let check = sqlx::query_scalar("pragma quick_check(1)").fetch_one(&mut reader).await;
    assert!(!matches!(&check, Ok::<String, _>(found) if found == "ok"), "{check:?}");
}

#[tokio::test]
async fn restore_follows_a_link_to_the_database() {
    let database = backed_up().await;
    fs::create_dir(database.file("target")).unwrap();
    for part in ["", "-wal", "-shm"] {
        let (from, to) = (format!("fenced.db{part}"), format!("target/moved.db{part}"));
        fs::rename(database.file(&from), database.file(&to)).unwrap();
    }
    assert_ne!(fs::metadata(database.file("target/moved.db-wal")).unwrap().len(), 0);
    symlink("target/moved.db", database.file("fenced.db")).unwrap();

    let error = database.run(&["restore", "backup.db"]).await.failed();
    assert!(error.contains("--force"), "{error}");
    database.run(&["restore", "backup.db", "--force"]).await.printed();
    assert!(database.file("fenced.db").is_symlink(), "the link stays");
    assert!(!database.file("target/moved.db-wal").exists());
    let server = database.serve(&[]).await;
    assert_eq!(get(&server, "/v1/resources/r").await.text(), "old");
    assert!(database.file("target/moved.db-wal").exists(), "the server follows the link, too");
    drop(server);

    // A link that leads nowhere, beside the log of the file that was there.
    fs::remove_file(database.file("target/moved.db")).unwrap();
    let error = database.run(&["restore", "backup.db", "--force"]).await.failed();
    assert!(error.contains("leads nowhere"), "{error}");
    assert!(database.file("fenced.db").is_symlink());
}

#[tokio::test]
async fn only_a_damaged_file_is_to_be_moved_away() {
    let database = backed_up().await;
    let whole = fs::read(database.file("backup.db")).unwrap();
    let broken_header = [&[0xff; 100], &whole[100..]].concat();
    for damaged in [&whole[..whole.len() / 2], &broken_header] {
        let _ = fs::remove_file(database.file("fenced.db-wal"));
        fs::write(database.file("fenced.db"), damaged).unwrap();
        let error = database.run(&["--listen", "127.0.0.1:0"]).await.failed();
        assert!(error.contains("storage-server restore"), "{error}");
        let error = database.run(&["restore", "backup.db", "--force"]).await.failed();
        assert!(error.contains("is damaged") && error.contains("away"), "{error}");
        for part in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(database.file(&format!("fenced.db{part}")));
        }
        database.run(&["restore", "backup.db"]).await.printed();
        let server = database.serve(&[]).await;
        assert_eq!(get(&server, "/v1/resources/r").await.text(), "old");
    }

    // The control: SQLite can't open this, and nothing says that a database is damaged.
    for part in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(database.file(&format!("fenced.db{part}")));
    }
    fs::create_dir(database.file("fenced.db")).unwrap();
    let error = database.run(&["restore", "backup.db", "--force"]).await.failed();
    assert!(error.contains("can't open") && !error.contains("away"), "{error}");
}

#[tokio::test]
async fn log_without_its_file_is_rejected() {
    let database = Database::sqlite();
    let mut server = database.serve(&[]).await;
    offer(&server, "PUT", "/v1/resources/r", 34, "x").await;
    server.process().kill().unwrap();
    fs::remove_file(database.file("fenced.db")).unwrap();
    let error = database.run(&["--listen", "127.0.0.1:0"]).await.failed();
    assert!(error.contains("its file is not"), "{error}");
    assert!(!database.file("fenced.db").exists(), "no empty database was created");
}

#[tokio::test]
async fn damaged_or_foreign_backups_are_rejected() {
    let database = backed_up().await;
    let file = fs::read(database.file("fenced.db")).unwrap();
    let mut damaged = fs::read(database.file("backup.db")).unwrap();
    damaged[8192..16384].fill(0xff);
    fs::write(database.file("damaged.db"), &damaged).unwrap();
    fs::write(database.file("text.db"), "no database").unwrap();
    fs::write(database.file("empty.db"), "").unwrap();
    fs::write(database.file("unfinished.db"), &damaged).unwrap();
    fs::write(database.file("unfinished.db-wal"), "x").unwrap();
    let cases = [
        ("damaged.db", "the backup is damaged"),
        ("text.db", "the backup is no SQLite database"),
        ("empty.db", "the backup has no resources of a storage server"),
        ("unfinished.db", "is not a whole backup"),
        ("missing.db", "can't read missing.db"),
    ];
    for (backup, reason) in cases {
        let error = database.run(&["restore", backup, "--force"]).await.failed();
        assert!(error.contains(reason), "{backup}: {error}");
        assert_eq!(fs::read(database.file("fenced.db")).unwrap(), file, "{backup}");
    }
    let left = fs::read_dir(database.folder.path()).unwrap();
    let left = left.filter(|file| {
        file.as_ref().unwrap().file_name().to_str().unwrap().starts_with(".storage-server")
    });
    assert_eq!(left.count(), 0, "temporary files are removed");

    // A server does not start on a damaged file, either.
    fs::write(database.file("fenced.db"), &damaged).unwrap();
    let error = database.run(&["--listen", "127.0.0.1:0"]).await.failed();
    assert!(error.contains("is damaged") && error.contains("storage-server restore"), "{error}");
}

#[tokio::test]
async fn postgres_is_backed_up_by_its_own_tools() {
    let database = Database::postgres().await;
    for command in ["backup", "restore"] {
        let error = database.run(&[command, "b.db"]).await.failed();
        assert!(error.contains("storage-server fence raise"), "{error}");
        assert!(!database.file("b.db").exists());
    }
}
