//! The file of an SQLite database: a missing one, and one that goes away.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::PathBuf,
    process::Command,
    time::Duration,
};

use sqlx::{Connection, SqliteConnection};
use tempfile::TempDir;
use testbed::{StorageServer, process::Process};

use crate::database::{Database, offer};
use crate::logs::{stop, stop_and_read_log};
use crate::programs::{STORAGE_SERVER, storage_server};
use crate::wire::{self, Answer};

async fn put(url: &str, token: &str) -> Answer {
    wire::request(url, "PUT", "/v1/resources/r", &[("Fencing-Token", token)], token).await
}

/// A server on a file of its own, which has written once.
async fn writing_server() -> (TempDir, PathBuf, StorageServer) {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let file = folder.path().join("fenced.db");
    let url = format!("sqlite:{}", file.display());
    let server = StorageServer::start_on(&storage_server(), &url, &[]).await.unwrap();
    assert_eq!(put(server.url(), "34").await.status, 201);
    (folder, file, server)
}

async fn assert_takes_no_writes(server: &StorageServer) {
    assert_eq!(wire::request(server.url(), "GET", "/readyz", &[], "").await.status, 503);
    // What changes nothing is not answered from the lost file either.
    for (method, path) in [("PUT", "/v1/fences/r"), ("GET", "/v1/resources/r")] {
        let same = [("Fencing-Token", "34")];
        let answer = wire::request(server.url(), method, path, &same, "").await;
        assert_eq!(answer.status, 503, "{method}");
    }
    let rejected = put(server.url(), "35").await;
    assert_eq!(rejected.json()["outcome"], "none", "{rejected:?}");
    let detail = rejected.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("was deleted or replaced"), "{detail}");
}

#[tokio::test]
async fn server_takes_no_writes_after_its_file_was_deleted() {
    let (_folder, file, server) = writing_server().await;
    fs::remove_file(&file).unwrap();
    assert_takes_no_writes(&server).await;
    let read = wire::request(server.url(), "GET", "/v1/resources/r", &[], "").await;
    assert_eq!(read.status, 503);
    assert!(!file.exists(), "no connection creates an empty one");
}

/// What a reader still needs stays in the write-ahead log, and the log of the server says so.
#[tokio::test]
async fn server_that_stops_beside_a_reader_says_that_its_log_is_not_empty() {
    for is_read in [true, false] {
        let (_folder, file, server) = writing_server().await;
        let mut reader = SqliteConnection::connect(file.to_str().unwrap()).await.unwrap();
        if is_read {
            let read = "begin; select count(*) from storage_resource";
            sqlx::raw_sql(read).fetch_all(&mut reader).await.unwrap();
        }
        assert_eq!(put(server.url(), "35").await.status, 200);
        let log = stop_and_read_log(server).await;
        let is_said = log.contains("the write-ahead log is not empty, keep its file");
        assert_eq!(is_said, is_read, "{log}");
    }
}

#[tokio::test]
async fn server_takes_no_writes_after_its_log_was_deleted() {
    let (_folder, file, server) = writing_server().await;
    fs::remove_file(file.with_extension("db-wal")).unwrap();
    assert_takes_no_writes(&server).await;
}

#[tokio::test]
async fn server_takes_no_writes_after_the_index_of_its_log_was_deleted() {
    let (_folder, file, server) = writing_server().await;
    fs::remove_file(file.with_extension("db-shm")).unwrap();
    assert_takes_no_writes(&server).await;
}

/// As a backup is restored under a server that still runs.
#[tokio::test]
async fn server_takes_no_writes_after_its_file_was_replaced() {
    let (folder, file, server) = writing_server().await;
    let (copy, original) = (folder.path().join("copy"), folder.path().join("original"));
    fs::copy(&file, &copy).unwrap();
    fs::rename(&file, &original).unwrap();
    fs::rename(&copy, &file).unwrap();
    assert_takes_no_writes(&server).await;
    // The control: its own file is the right one.
    fs::rename(&original, &file).unwrap();
    assert_eq!(put(server.url(), "36").await.status, 200);
}

/// After a crash, SQLite shows commits that were written and never synced. SQLite syncs the log exactly if a
/// commit writes to it.
#[tokio::test]
async fn start_syncs_what_a_crash_may_have_left_in_the_log() {
    let database = Database::sqlite();
    let log_bytes = || fs::metadata(database.file("fenced.db-wal")).unwrap().len();
    let claim =
        async |server: &StorageServer| offer(server, "PUT", "/v1/fences/r", 35, "").await.status;
    let mut crashed = database.serve(&[]).await;
    assert_eq!(claim(&crashed).await, 200);
    crashed.process().kill().unwrap();
    let left = log_bytes();
    let server = database.serve(&[]).await;
    let synced = log_bytes();
    assert!(synced > left, "{synced} {left}");
    // So these need no sync, and have none.
    assert_eq!(claim(&server).await, 200);
    assert_eq!(offer(&server, "PUT", "/v1/fences/r", 34, "").await.problem(), "412 stale-token");
    assert_eq!(offer(&server, "GET", "/v1/resources/r", 35, "").await.problem(), "404 not-found");
    assert_eq!(log_bytes(), synced);
    // The control: a change is synced.
    assert_eq!(offer(&server, "PUT", "/v1/fences/r", 36, "").await.status, 200);
    assert!(log_bytes() > synced);

    // A command reports the fence, too.
    let before = log_bytes();
    database.run(&["fence", "show", "r"]).await.printed();
    assert!(log_bytes() > before);
}

#[tokio::test]
async fn missing_file_is_created_with_a_warning_unless_that_is_forbidden() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let url = format!("sqlite:{}", folder.path().join("fenced.db").display());
    let mut command = Command::new(STORAGE_SERVER);
    command.args(["--listen", "127.0.0.1:0", "--database-url", &url, "--no-create"]);
    let mut rejected = Process::spawn("rejected", &command, folder.path()).unwrap();
    let status = rejected.exit(Duration::from_secs(20)).await.unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(rejected.stderr().unwrap().contains("can't open"), "{}", rejected.stderr().unwrap());
    assert!(!folder.path().join("fenced.db").exists());

    let created = StorageServer::start_on(&storage_server(), &url, &[]).await.unwrap();
    let warning = "the file did not exist";
    let log = stop_and_read_log(created).await;
    assert!(log.contains(warning), "{log}");
    let opened = StorageServer::start_on(&storage_server(), &url, &["--no-create"]).await.unwrap();
    let log = stop_and_read_log(opened).await;
    assert!(!log.contains(warning), "{log}");
}

#[tokio::test]
async fn new_file_is_for_its_owner_alone() {
    let (_folder, file, _server) = writing_server().await;
    for suffix in ["", "-wal", "-shm"] {
        let part = PathBuf::from(format!("{}{suffix}", file.display()));
        let mode = fs::metadata(&part).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", part.display());
    }
}

#[tokio::test]
async fn file_that_cannot_be_opened_is_named_with_the_reason_of_the_system() {
    let database = Database::sqlite();
    fs::create_dir(database.file("folder")).unwrap();
    let missing = database.file("no/folder/f.db");
    for (file, reason) in
        [(&missing, "No such file or directory"), (&database.file("folder"), "Is a directory")]
    {
        let file = file.display();
        for arguments in [&["--listen", "127.0.0.1:0"][..], &["fence", "show", "r"]] {
            let url = format!("sqlite:{file}");
            let arguments = [&["--database-url", &url][..], arguments].concat();
            let error = database.run(&arguments).await.failed();
            assert!(error.contains(&format!("can't open sqlite:{file}: {reason}")), "{error}");
        }
    }
}

/// SQLite opens a file that it may not write for reading, so that the server would start, and reject all
/// writes.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn file_that_the_server_may_not_write_is_rejected_at_the_start() {
    let (folder, file, mut server) = writing_server().await;
    stop(&mut server).await;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
    let mut command = match rustix::process::geteuid().is_root() {
        false => Command::new(STORAGE_SERVER),
        // Permissions mean nothing to root, unless it has lost this right.
        true => {
            let mut command = Command::new("setpriv");
            command.args(["--bounding-set=-all", "--inh-caps=-all", STORAGE_SERVER]);
            command
        }
    };
    command.args(["--listen", "127.0.0.1:0", "--database-url"]);
    command.arg(format!("sqlite:{}", file.display()));
    let mut process = Process::spawn("rejected", &command, folder.path()).unwrap();
    let status = process.exit(Duration::from_secs(20)).await.unwrap();
    let error = process.stderr().unwrap();
    assert_eq!(status.code(), Some(1), "{error}");
    assert!(error.contains("fenced.db: Permission denied"), "{error}");
}

#[tokio::test]
async fn percent_sign_in_a_path_is_one() {
    let database = Database::sqlite();
    let file = database.file("a%20b.db");
    let url = format!("sqlite:{}", file.display());
    let server = StorageServer::start_on(&storage_server(), &url, &[]).await.unwrap();
    assert_eq!(put(server.url(), "34").await.status, 201);
    assert!(file.exists() && !database.file("a b.db").exists());
    // Commands name the same file.
    let on_it = ["--database-url", &url];
    let shown = database.run(&[&on_it[..], &["fence", "show", "r"]].concat()).await.printed();
    assert!(shown.contains("34"), "{shown}");
    database.run(&[&on_it[..], &["backup", "b%41.db"]].concat()).await.printed();
    assert!(database.file("b%41.db").exists());
}

/// Such as an exFAT stick, or some file systems of a network.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn backup_needs_no_hard_links() {
    let (folder, file, _server) = writing_server().await;
    let backup = folder.path().join("backup.db");
    let backed_up = async |name: &str| {
        let mut command = Command::new("strace");
        let faults = ["inject=renameat2:error=EINVAL", "inject=link,linkat:error=EPERM"];
        command.args(["-f", "-qq", "-o", "/dev/null", "-e", faults[0], "-e", faults[1]]);
        command.args([STORAGE_SERVER, "--database-url", &format!("sqlite:{}", file.display())]);
        command.arg("backup").arg(&backup);
        let mut process = Process::spawn(name, &command, folder.path()).unwrap();
        let status = process.exit(Duration::from_secs(60)).await.unwrap();
        (status.code(), process.stderr().unwrap())
    };
    assert_eq!(backed_up("first").await.0, Some(0));
    let copied = fs::read(&backup).unwrap();
    assert!(copied.starts_with(b"SQLite format 3"));
    // The control: a link that leads nowhere passes the first look, and is not replaced.
    fs::remove_file(&backup).unwrap();
    symlink("nowhere", &backup).unwrap();
    let (code, error) = backed_up("second").await;
    assert!(code == Some(1) && error.contains("can't create"), "{error}");
    assert_eq!(fs::read_link(&backup).unwrap(), PathBuf::from("nowhere"));
    assert!(!folder.path().join("nowhere").exists());
}
