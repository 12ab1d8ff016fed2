//! The log never holds up the server, and never ends it.

use std::{fs, path::Path, time::Duration};

use rustix::process::Signal;
use tempfile::TempDir;
use testbed::{StorageServer, process::Process, wait::until};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use crate::programs::STORAGE_SERVER;
use crate::wire;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until the log has this text. The server writes its log beside its answers, and some lines only
/// every few seconds.
pub(crate) async fn is_logged(server: &StorageServer, text: &str) {
    let logged = until(PATIENCE, || Ok(server.log()?.contains(text))).await;
    assert!(logged.is_ok(), "{:?}", server.log());
}

pub(crate) async fn stop(server: &mut StorageServer) {
    server.process().signal(Signal::TERM).unwrap();
    assert!(server.process().exit(PATIENCE).await.unwrap().success());
}

/// Stops the server, and returns its whole log.
pub(crate) async fn stop_and_read_log(mut server: StorageServer) -> String {
    stop(&mut server).await;
    let log = server.log().unwrap();
    assert!(log.contains("draining"), "it ends too early: {log}");
    log
}

/// Starts a server that logs each stale write. This script of the shell reads its stderr.
async fn logging_to(reader: &str, folder: &Path, arguments: &[&str]) -> (Process, String) {
    let mut command = std::process::Command::new("sh");
    // The shell becomes the server, so that the server ends with the test.
    let piped = format!("mkfifo err; {{ {reader}; }} < err & exec \"$@\" 2> err");
    command.args(["-c", &piped, "sh", STORAGE_SERVER, "--listen", "127.0.0.1:0"]);
    command.args(["--enforcement", "report", "--database-url", "sqlite:fenced.db"]);
    command.args(arguments).current_dir(folder);
    let mut process = Process::spawn("storage-server", &command, folder).unwrap();
    let line = process.line(PATIENCE).await.unwrap();
    let url = line.strip_prefix("listening on ").unwrap().to_owned();
    (process, url)
}

/// Sends stale writes over one connection. Each one is logged.
async fn write_stale(url: &str, count: usize) {
    let put = |token| {
        format!("PUT /v1/fences/r HTTP/1.1\r\nHost: localhost\r\nFencing-Token: {token}\r\n")
    };
    let close = "Connection: close\r\n\r\n";
    wire::send(url, format!("{}{close}", put(34)).into_bytes()).await;
    let mut connection = wire::connect(url).await;
    let requests = format!("{}\r\n", put(33)).repeat(count - 1) + &put(33) + close;
    let (mut answers, mut sender) = connection.split();
    let sent = sender.write_all(requests.as_bytes());
    let mut received = Vec::new();
    let all_answers = async {
        while timeout(PATIENCE, answers.read_buf(&mut received)).await.expect("an answer")? > 0 {}
        Ok(())
    };
    tokio::try_join!(sent, all_answers).unwrap();
    let received = String::from_utf8(received).unwrap();
    assert_eq!(received.matches("HTTP/1.1 200").count(), count);
}

#[tokio::test]
async fn log_that_nobody_reads_stops_nothing_and_says_what_it_dropped() {
    const WRITES: usize = 3_000;
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let reader = "while [ -e err ] && [ ! -e read ]; do sleep 0.02; done; exec cat";
    let (mut process, url) = logging_to(reader, folder.path(), &["--access-log"]).await;
    // With two lines for each of them, that is more than may wait.
    write_stale(&url, WRITES).await;
    fs::write(folder.path().join("read"), "").unwrap();
    let (mut warnings, mut accesses) = (0, 0);
    loop {
        let line = process.line(PATIENCE).await.unwrap();
        if line.contains("lines of this log were dropped") {
            break;
        }
        warnings += usize::from(line.contains("accepted what would be rejected"));
        accesses += usize::from(line.contains("access: "));
    }
    assert!((1..WRITES).contains(&warnings) && (1..WRITES).contains(&accesses));
}

#[tokio::test]
async fn closed_stderr_ends_nothing() {
    let folder = TempDir::with_prefix("fenced-").unwrap();
    let (_process, url) = logging_to("true", folder.path(), &["--access-log"]).await;
    write_stale(&url, 1_000).await;
    // The control: it is still the server that was started.
    assert_eq!(wire::request(&url, "GET", "/v1/fences/r", &[], "").await.json()["token"], 34);
}
