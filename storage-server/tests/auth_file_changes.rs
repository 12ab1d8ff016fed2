//! The line of the audit log for an auth file that was changed.

use std::fs;

use serde_json::{Value, json};
use testbed::wait::until;

use crate::{
    access::Guarded,
    logs::{PATIENCE, is_logged},
};

const READ: [&str; 4] = ["--prefix", "", "--allow", "read"];

#[tokio::test]
async fn auth_file_that_is_taken_over_has_a_line() {
    let guarded = Guarded::new();
    guarded.identity("one", &READ).await;
    let audit_log = guarded.database.file("audit.jsonl");
    let (path, auth_file) = (audit_log.to_str().unwrap(), guarded.auth_file());
    let arguments = ["--audit-log", path, "--auth-file", auth_file.to_str().unwrap()];
    let server = guarded.database.serve(&arguments).await;
    let taken_over = || -> Vec<Value> {
        let text = fs::read_to_string(&audit_log).unwrap_or_default();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["event"] == "auth-file").collect()
    };
    assert!(taken_over().is_empty(), "nothing was changed yet");
    guarded.identity("two", &READ).await;
    until(PATIENCE, || Ok(taken_over().len() == 1)).await.unwrap();
    assert_eq!(taken_over()[0]["identities"], json!(2));
    assert!(taken_over()[0]["time"].is_string());

    // A broken file is not taken over.
    let good = fs::read(&auth_file).unwrap();
    fs::write(&auth_file, "broken").unwrap();
    is_logged(&server, "The identities from before stay valid").await;
    assert_eq!(taken_over().len(), 1);
    fs::write(&auth_file, good).unwrap();
    until(PATIENCE, || Ok(taken_over().len() == 2)).await.unwrap();
}

#[tokio::test]
async fn without_a_file_the_log_has_the_line() {
    let guarded = Guarded::new();
    guarded.identity("one", &READ).await;
    let server = guarded.serve().await;
    guarded.identity("two", &READ).await;
    is_logged(&server, "audit: event=\"auth-file\" identities=2").await;
}
