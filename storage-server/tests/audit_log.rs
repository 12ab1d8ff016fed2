//! The audit log: each rejected request with its client and the reason, and what operators did.

mod abandoned;
mod file;
mod rejections;

use std::{fs, path::Path};

use serde_json::{Value, json};
use testbed::{StorageServer, wait::until};

use crate::{
    database::{Database, offer},
    logs::{PATIENCE, is_logged},
};

/// The lines that are whole by now.
fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits for the line of the request with this id.
async fn line(path: &Path, id: &str) -> Value {
    let find = || lines(path).into_iter().find(|line| line["request_id"] == id);
    until(PATIENCE, || Ok(find().is_some())).await.unwrap_or_else(|_| panic!("{id} has no line"));
    find().unwrap()
}

async fn serve(database: &Database, audit_log: &Path, arguments: &[&str]) -> StorageServer {
    database.serve(&[&["--audit-log", audit_log.to_str().unwrap()], arguments].concat()).await
}

#[tokio::test]
async fn without_a_file_the_log_has_the_lines() {
    let database = Database::sqlite();
    let server = database.serve(&[]).await;
    assert_eq!(offer(&server, "PUT", "/v1/fences/accepted", 34, "").await.status, 200);
    assert_eq!(offer(&server, "PUT", "/v1/fences/accepted", 33, "").await.status, 412);
    is_logged(&server, "audit: event=\"rejection\" client=127.0.0.1 method=\"PUT\"").await;
    assert_eq!(server.log().unwrap().matches("audit: ").count(), 1);
}

#[tokio::test]
async fn commands_that_change_fences_are_recorded() {
    let database = Database::sqlite();
    let audit_log = database.file("audit.jsonl");
    let auth_file = database.file("auth.toml");
    let run = async |log: &Path, arguments: &[&str]| {
        let log = ["--audit-log", log.to_str().unwrap()];
        database.run(&[&log[..], arguments].concat()).await
    };
    database.run(&["migrate"]).await.printed();
    run(&audit_log, &["fence", "set", "r", "--token", "34", "--holder", "secret"]).await.printed();
    run(&audit_log, &["fence", "set", "r", "--token", "33"]).await.failed();
    run(&audit_log, &["fence", "raise", "--all", "--above", "40"]).await.printed();
    run(&audit_log, &["forget", "r", "--yes"]).await.printed();
    let new = ["auth", "new", "--auth-file", auth_file.to_str().unwrap(), "--name", "orders"];
    let bearer =
        run(&audit_log, &[&new[..], &["--prefix", "", "--allow", "read"]].concat()).await.printed();
    // What changes nothing has no line.
    run(&audit_log, &["fence", "show", "r"]).await.printed();
    run(&audit_log, &["forget", "none", "--yes"]).await.printed();
    let lines = lines(&audit_log);
    let ended: Vec<_> = lines
        .iter()
        .filter(|line| line["outcome"] != "begun")
        .map(|line| json!([line["command"], line["target"], line["token"], line["outcome"]]))
        .collect();
    assert_eq!(
        json!(ended),
        json!([
            ["fence set", "r", 34, "done"],
            ["fence set", "r", 33, "failed"],
            ["fence raise", null, 40, "done"],
            ["forget", "r", null, "done"],
            ["auth new", "orders", null, "done"],
            ["forget", "none", null, "done"],
        ])
    );
    assert_eq!(lines.len(), 2 * ended.len());
    assert!(lines.iter().all(|line| line["user"].is_string() && line["event"] == "command"));
    let text = fs::read_to_string(&audit_log).unwrap();
    assert!(text.contains("Add --force to lower it"), "{text}");
    assert!(!text.contains("secret") && !text.contains(bearer.trim()), "{text}");

    // A command that can't be recorded is not run.
    let error = run(Path::new("/dev/full"), &["fence", "set", "s", "--token", "1"]).await.failed();
    assert!(error.contains("nothing was changed: the audit log /dev/full"), "{error}");
    let shown = database.run(&["fence", "show", "s"]).await.printed();
    assert!(shown.starts_with("s: no fence"), "{shown}");
}
