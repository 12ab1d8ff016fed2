//! The lines of the audit log for commands, in a file and without one.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    access::Guarded,
    database::{Database, Ran},
};

/// Command, object, token and outcome of each line of the audit log on stderr, in JSON.
fn logged(ran: &Ran) -> Value {
    let lines = ran.stderr.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let lines = lines.filter(|line| line["target"] == "audit");
    lines
        .map(|line| {
            assert!(line["user"].is_string() && line["event"] == "command", "{line}");
            json!([line["command"], line["object"], line["token"], line["outcome"]])
        })
        .collect()
}

#[tokio::test]
async fn without_a_file_the_log_on_stderr_has_them() {
    let database = Guarded::new().database;
    let (auth_file, backup) = (database.file("auth.toml"), database.file("backup.db"));
    let backup = backup.to_str().unwrap();
    let run = async |arguments: &[&str]| {
        database.run(&[&["--log-format", "json"], arguments].concat()).await
    };
    let set = ["fence", "set", "r", "--token"];
    let new = ["auth", "new", "--auth-file", auth_file.to_str().unwrap(), "--name", "orders"];
    let new = [&new[..], &["--prefix", "", "--allow", "read"]].concat();
    for (arguments, code, object, token, outcome) in [
        (&["migrate"][..], 0, Value::Null, Value::Null, "done"),
        (&[&set[..], &["34"]].concat(), 0, json!("r"), json!(34), "done"),
        (&[&set[..], &["33"]].concat(), 1, json!("r"), json!(33), "failed"),
        (&["fence", "raise", "--all", "--above", "40"], 0, Value::Null, json!(40), "done"),
        (&["backup", backup], 0, json!(backup), Value::Null, "done"),
        (&["backup", backup], 1, json!(backup), Value::Null, "failed"),
        (&["restore", backup, "--force"], 0, json!(backup), Value::Null, "done"),
        (&["forget", "r", "--yes"], 0, json!("r"), Value::Null, "done"),
        (&new, 0, json!("orders"), Value::Null, "done"),
    ] {
        let ran = run(arguments).await;
        assert_eq!(ran.code, Some(code), "{arguments:?}: {ran:?}");
        let name: Vec<_> = arguments.iter().take_while(|it| !it.starts_with('-')).collect();
        let line = |outcome| {
            let lines = logged(&ran);
            let line = lines.as_array().unwrap().iter().find(|line| line[3] == outcome);
            line.unwrap_or_else(|| panic!("{arguments:?} has no line {outcome}: {ran:?}")).clone()
        };
        for outcome in ["begun", outcome] {
            let line = line(outcome);
            assert_eq!((&line[1], &line[2]), (&object, &token), "{line}");
            let command = line[0].as_str().unwrap();
            assert!(command.split(' ').zip(&name).all(|(one, other)| one == **other), "{line}");
        }
        assert_eq!(logged(&ran).as_array().unwrap().len(), 2, "{ran:?}");
        assert!(ran.stdout.lines().all(|line| !line.contains("audit")), "{ran:?}");
    }
    // What neither changes nor copies anything has no line.
    for arguments in [&["fence", "show", "r"][..], &["config"], &["forget", "none"]] {
        assert_eq!(logged(&run(arguments).await), json!([]), "{arguments:?}");
    }
}

#[tokio::test]
async fn migrations_and_backups_are_recorded_in_the_file() {
    let database = Database::sqlite();
    let audit_log = database.file("audit.jsonl");
    let run = async |log: &Path, arguments: &[&str]| {
        let log = ["--audit-log", log.to_str().unwrap()];
        database.run(&[&log[..], arguments].concat()).await
    };
    let backup = database.file("backup.db");
    run(&audit_log, &["migrate"]).await.printed();
    let ran = run(&audit_log, &["backup", backup.to_str().unwrap()]).await;
    assert!(!ran.stderr.contains("audit"), "the file has the lines: {ran:?}");
    let text = fs::read_to_string(&audit_log).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let lines: Vec<_> =
        lines.map(|it| json!([it["command"], it["target"], it["outcome"]])).collect();
    assert_eq!(
        json!(lines),
        json!([
            ["migrate", null, "begun"],
            ["migrate", null, "done"],
            ["backup", backup, "begun"],
            ["backup", backup, "done"],
        ])
    );
}
