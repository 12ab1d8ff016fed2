//! A replica, as the binary log of one server replayed on another.

use std::process::Command;

use sqlx::MySqlConnection;
use testbed::MariaDb;

use super::{
    ACCOUNTS, FILES, TOKEN_REQUIRED, attempt, attempt_all, mariadb_command, number, protect, run,
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
    let mut replica = session(&replica).await;
    for query in ["select count(*) from accounts", "select sum(token) div 1 from fence.resources"] {
        let there = number(&mut session(source).await, query).await;
        assert_eq!(number(&mut replica, query).await, there, "{query}");
    }
    Ok(number(&mut replica, super::BALANCE).await)
}

/// A server with a binary log, the fence, and the protected accounts.
async fn logged(format: &str) -> (MariaDb, MySqlConnection) {
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
    (server, database)
}

#[tokio::test]
async fn statement_format_is_rejected_before_it_stops_a_replica() {
    // The negative control: triggers that don't look let it pass, and the replica stops.
    let (server, mut database) = logged("STATEMENT").await;
    let condition = "@@binlog_format = 'STATEMENT'";
    assert!(FILES[1].contains(condition));
    run(&server, "test", &FILES[1].replace(condition, "false")).unwrap();
    for statement in ["begin", "call fence.claim('alice', 34, 'a')", UPDATE, "commit"] {
        attempt(&mut database, statement).await.unwrap();
    }
    assert!(replay(&server).await.unwrap_err().contains("ZF004"));

    for format in ["STATEMENT", "MIXED", "ROW"] {
        let (server, mut database) = logged(format).await;
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

/// A claim takes back to a savepoint what it has written, and a check's insert fails. Neither leaves a trace.
#[tokio::test]
async fn replica_has_the_same_rows_after_rejections_in_the_middle_of_a_transaction() {
    for format in ["MIXED", "ROW"] {
        let (server, mut database) = logged(format).await;
        let others = "create table others (id int primary key) engine = MyISAM";
        attempt(&mut database, others).await.unwrap();
        for (statement, expected) in [
            ("begin", Ok(())),
            ("insert into others values (1)", Ok(())),
            ("call fence.claim('alice', 34, 'a')", Ok(())),
            ("update accounts set balance = balance + 1 where account_id = 'alice'", Ok(())),
            ("update accounts set balance = 0 order by account_id", Err(TOKEN_REQUIRED.to_owned())),
            ("call fence.present(7, 'c')", Ok(())),
            ("insert into accounts values ('carol', 5), ('dave', 6)", Ok(())),
            ("insert into accounts values ('erin', 5), ('alice', 6)", Err("23000".to_owned())),
            ("savepoint s", Ok(())),
            ("call fence.claim('erin', 7, '')", Ok(())),
            ("insert into accounts values ('erin', 5)", Ok(())),
            ("rollback to s", Ok(())),
            ("update accounts set balance = balance - 95 where account_id = 'alice'", Ok(())),
            ("commit", Ok(())),
        ] {
            let done = attempt(&mut database, statement).await.map(|_| ());
            assert_eq!(done, expected, "{statement}");
        }
        assert_eq!(replay(&server).await, Ok(6), "{format}");
        let rows = "select sum(balance) div 1 from accounts";
        assert_eq!(number(&mut database, rows).await, 100 + 6 + 5 + 6);
        let fences = "select sum(token) div 1 from fence.resources";
        assert_eq!(number(&mut database, fences).await, 34 + 7 + 7);
    }
}
