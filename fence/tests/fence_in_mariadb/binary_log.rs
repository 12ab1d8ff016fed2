//! A replica, as the binary log of one server replayed on another.

use std::process::Command;

use testbed::MariaDb;

use super::{
    ACCOUNTS, FILES, attempt, attempt_all, mariadb_command, number, old_accounts, protect, run,
    session,
};

const UPDATE: &str = "update accounts set balance = 7 where account_id = 'alice'";
const SETTING_MISSING: &str = "ZF006";

/// Replays the first binary log of a server on an empty one.
async fn replay(source: &MariaDb) -> Result<i64, String> {
    let output = Command::new("mariadb-binlog")
        .arg("--no-defaults")
        .arg(source.data_folder().join("log.000001"))
        .output()
        .expect("mariadb-client has the command mariadb-binlog");
    assert!(output.status.success());
    let replica = MariaDb::start().await.unwrap();
    let events = String::from_utf8(output.stdout).unwrap();
    mariadb_command(&replica, &events, &["--binary-mode", "test"])?;
    let balance = "select balance from accounts where account_id = 'alice'";
    Ok(number(&mut session(&replica).await, balance).await)
}

#[tokio::test]
async fn statement_format_is_rejected_before_it_stops_a_replica() {
    // The negative control: the old triggers let it pass, and the replica stops.
    let (server, mut database) = old_accounts(&["--log-bin=log"]).await;
    for statement in [
        "set binlog_format = 'STATEMENT'",
        "begin",
        "call fence_claim('alice', 34, 'a')",
        UPDATE,
        "commit",
    ] {
        attempt(&mut database, statement).await.unwrap();
    }
    assert!(replay(&server).await.unwrap_err().contains("ZF004"));

    for format in ["STATEMENT", "MIXED", "ROW"] {
        let server = MariaDb::start_with(&["--log-bin=log"]).await.unwrap();
        let mut database = session(&server).await;
        for file in FILES {
            run(&server, "test", file).unwrap();
        }
        for statement in ACCOUNTS {
            attempt(&mut database, statement).await.unwrap();
        }
        protect(&mut database, "test.accounts", "account_id").await;
        attempt(&mut database, &format!("set binlog_format = '{format}'")).await.unwrap();
        for offer in ["call fence.claim('alice', 34, 'a')", "call fence.present(34, 'a')"] {
            let done = attempt_all(&mut database, &[offer, UPDATE]).await;
            if format == "STATEMENT" {
                assert_eq!(done.unwrap_err(), SETTING_MISSING, "{offer}");
                continue;
            }
            done.unwrap();
            for statement in ["begin", offer, UPDATE, "commit"] {
                attempt(&mut database, statement).await.unwrap();
            }
        }
        // A claim alone does not harm a replica.
        attempt(&mut database, "call fence.claim('bob', 1, '')").await.unwrap();
        let expected = if format == "STATEMENT" { 100 } else { 7 };
        assert_eq!(replay(&server).await, Ok(expected), "{format}");
    }
}
