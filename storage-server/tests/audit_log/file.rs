//! The file of the audit log: it may be torn, full, missing, moved or mended.

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde_json::Value;
use testbed::{
    StorageServer,
    wait::{until, until_async},
};

use super::{line, lines, serve};
use crate::{
    database::{Database, get, offer},
    logs::{PATIENCE, is_logged},
    wire,
};

async fn reject(server: &StorageServer, id: &str) {
    let headers = [("X-Request-Id", id)];
    let answer = wire::request(server.url(), "PUT", "/v1/fences/r", &headers, "").await;
    assert_eq!(answer.status, 428);
}

/// As after a crash, or where the disk was full.
#[tokio::test]
async fn line_after_a_torn_one_is_on_a_line_of_its_own() {
    let database = Database::sqlite();
    let audit_log = database.file("audit.jsonl");
    fs::write(&audit_log, "{\"torn").unwrap();
    let server = serve(&database, &audit_log, &[]).await;
    for id in ["one", "two"] {
        let before = fs::read_to_string(&audit_log).unwrap().lines().count();
        reject(&server, id).await;
        let find = || {
            let text = fs::read_to_string(&audit_log)?;
            Ok(text.lines().count() > before && text.ends_with('\n'))
        };
        until(PATIENCE, find).await.unwrap();
        let text = fs::read_to_string(&audit_log).unwrap();
        let last: Value = serde_json::from_str(text.lines().last().unwrap()).expect(&text);
        assert_eq!(last["request_id"], id, "{text}");
        // Another process may tear a line while the server runs.
        let mut file = fs::File::options().append(true).open(&audit_log).unwrap();
        file.write_all(b"{\"torn").unwrap();
    }
}

async fn lost_lines(server: &StorageServer) -> u64 {
    let metrics = get(server, "/metrics").await.text();
    let line =
        metrics.lines().find(|line| line.starts_with("storage_server_audit_lines_lost_total"));
    line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn full_disk_loses_lines_and_no_answers() {
    let database = Database::sqlite();
    let server = serve(&database, Path::new("/dev/full"), &[]).await;
    assert_eq!(lost_lines(&server).await, 0);
    for _ in 0..3 {
        assert_eq!(offer(&server, "PUT", "/v1/fences/a", 34, "").await.status, 200);
        assert_eq!(offer(&server, "PUT", "/v1/fences/a", 33, "").await.status, 412);
    }
    until_async(PATIENCE, async || Ok(lost_lines(&server).await == 3)).await.unwrap();
    is_logged(&server, "the audit log /dev/full can't be written: No space left on device").await;
    assert_eq!(server.log().unwrap().matches("can't be written").count(), 1);
    assert!(server.log().unwrap().contains("Its lines are lost"));
}

#[tokio::test]
async fn server_does_not_start_without_its_audit_log() {
    let database = Database::sqlite();
    let folder = database.folder.path().to_str().unwrap();
    let in_missing = database.file("missing/audit.jsonl");
    for (path, reason) in
        [(folder, "Is a directory"), (in_missing.to_str().unwrap(), "No such file")]
    {
        for arguments in [&["--listen", "127.0.0.1:0"][..], &["--check"]] {
            let error = database.run(&[&["--audit-log", path], arguments].concat()).await.failed();
            let expected = format!("the audit log {path} can't be written: {reason}");
            assert!(error.contains(&expected), "{arguments:?}: {error}");
        }
    }
    // The control. The check creates nothing.
    let audit_log = database.file("audit.jsonl");
    let path = audit_log.to_str().unwrap();
    database.run(&["--audit-log", path, "--check"]).await.printed();
    assert!(!audit_log.exists());
}

/// As logrotate does.
#[tokio::test]
async fn file_that_is_moved_away_is_followed_by_a_new_one() {
    let database = Database::sqlite();
    let audit_log = database.file("audit.jsonl");
    let server = serve(&database, &audit_log, &[]).await;
    reject(&server, "old").await;
    line(&audit_log, "old").await;
    let moved: PathBuf = database.file("audit.jsonl.1");
    fs::rename(&audit_log, &moved).unwrap();
    reject(&server, "new").await;
    line(&audit_log, "new").await;
    assert_eq!((lines(&moved).len(), lines(&audit_log).len()), (1, 1));
    for path in [&moved, &audit_log] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600, "{path:?}");
    }
    // `copytruncate` keeps the file.
    fs::File::options().write(true).open(&audit_log).unwrap().set_len(0).unwrap();
    reject(&server, "truncated").await;
    line(&audit_log, "truncated").await;
    assert_eq!(lines(&audit_log).len(), 1);
}

/// A tool may put a file there that the server can't write, until somebody mends that.
#[tokio::test]
async fn file_that_becomes_usable_again_is_opened_again() {
    let database = Database::sqlite();
    let audit_log = database.file("audit.jsonl");
    let server = serve(&database, &audit_log, &[]).await;
    fs::remove_file(&audit_log).unwrap();
    // No permission keeps root out of a file, but root can't write to a folder.
    fs::create_dir(&audit_log).unwrap();
    reject(&server, "lost").await;
    until_async(PATIENCE, async || Ok(lost_lines(&server).await == 1)).await.unwrap();
    is_logged(&server, "can't be written: Is a directory").await;
    fs::remove_dir(&audit_log).unwrap();
    reject(&server, "again").await;
    line(&audit_log, "again").await;
    is_logged(&server, "is written again").await;
}
