//! The lines of requests that were not answered.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use testbed::wait::until_async;
use tokio::{io::AsyncWriteExt, time::interval};

use super::{line, lines, serve};
use crate::{
    connections::{read_answer, sending},
    database::{Database, get, offer},
    logs::{PATIENCE, stop},
};

/// Its operation waits for the database.
#[tokio::test]
async fn request_whose_client_leaves_before_the_decision_has_a_line() {
    let database = Database::postgres().await;
    let audit_log = database.file("audit.jsonl");
    let server = serve(&database, &audit_log, &[]).await;
    assert_eq!(offer(&server, "PUT", "/v1/fences/r", 34, "").await.status, 200);
    let mut rival = PgConnection::connect(&database.url).await.unwrap();
    sqlx::raw_sql("begin; select from storage.resource for update")
        .execute(&mut rival)
        .await
        .unwrap();
    let request = b"PUT /v1/fences/r HTTP/1.1\r\nHost: localhost\r\n\
        Fencing-Token: 35\r\nX-Request-Id: left\r\n\r\n";
    let leaving = sending(server.url(), request).await;
    let is_queued = async || {
        let metrics = get(&server, "/metrics").await.text();
        Ok(metrics.lines().any(|line| line == "storage_server_queued_operations 1"))
    };
    until_async(PATIENCE, is_queued).await.unwrap();
    drop(leaving);
    let line = line(&audit_log, "left").await;
    assert_eq!((&line["event"], &line["method"]), (&json!("abandoned"), &json!("PUT")));
    assert_eq!((&line["resource"], &line["status"]), (&json!("r"), &Value::Null), "{line}");
    rival.close().await.unwrap();
}

/// The client of a body that is slow, but not too slow, is cut off at the end.
#[tokio::test]
async fn last_line_is_written_when_the_drain_times_out() {
    let database = Database::sqlite();
    let audit_log = database.file("audit.jsonl");
    let mut server = serve(&database, &audit_log, &["--max-value-bytes", "10000000"]).await;
    let head = "PUT /v1/resources/r HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: slow\r\n\
        Fencing-Token: 1\r\nContent-Length: 10000000\r\nExpect: 100-continue\r\n\r\n";
    let mut slow = sending(server.url(), head.as_bytes()).await;
    assert_eq!(read_answer(&mut slow).await.0, 100);
    let send = async {
        let mut pace = interval(Duration::from_millis(100));
        let bytes = [0; 16 << 10];
        while slow.write_all(&bytes).await.is_ok() {
            pace.tick().await;
        }
    };
    tokio::join!(send, stop(&mut server));
    let lines = lines(&audit_log);
    assert_eq!(lines.len(), 1, "{lines:?}");
    let slow = &lines[0];
    assert_eq!((&slow["request_id"], &slow["event"]), (&json!("slow"), &json!("abandoned")));
    assert_eq!((&slow["resource"], &slow["status"]), (&json!("r"), &Value::Null), "{slow}");
}
