//! A fence that was dumped and restored. `migrations/README.md` names the options.

use std::process::Command;

use sqlx::MySqlConnection;
use testbed::MariaDb;

use super::{
    STALE, TOKEN_REQUIRED, accounts, attempt, attempt_all, mariadb_command, number, protect,
    session,
};

const UPDATE: &str = "update accounts set balance = 7 where account_id = 'alice'";
const PRESENT: &str = "call fence.present(33, 'a')";
const CLAIM: &str = "call fence.claim('alice', 34, 'a')";
const PROBLEMS: &str = "
    select coalesce(group_concat(protected, ': ', problem), '') from fence.status where problem is not null";

/// What `mariadb-dump` prints.
fn dump(server: &MariaDb, options: &[&str]) -> String {
    let mut command = Command::new("mariadb-dump");
    command.arg("--no-defaults").arg(format!("--socket={}", server.socket().display()));
    let output =
        command.arg("--user=root").args(options).output().expect("mariadb-client has mariadb-dump");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Another server with what was dumped.
async fn restored(dumped: &str) -> (MariaDb, MySqlConnection) {
    let server = MariaDb::start().await.unwrap();
    mariadb_command(&server, dumped, &["test"]).unwrap();
    let database = session(&server).await;
    (server, database)
}

#[tokio::test]
async fn dump_with_routines_and_triggers_restores_a_working_fence() {
    let (server, _database) = accounts().await;
    for options in [
        &["--routines", "--triggers", "--databases", "test", "fence"][..],
        &["--routines", "--triggers", "--single-transaction", "--databases", "fence", "test"],
        &["--routines", "--triggers", "--all-databases"],
    ] {
        let (_server, mut database) = restored(&dump(&server, options)).await;
        for (offer, expected) in [
            ("select 1", Err(TOKEN_REQUIRED.to_owned())),
            (PRESENT, Err(STALE.to_owned())),
            (CLAIM, Ok(())),
        ] {
            assert_eq!(attempt_all(&mut database, &[offer, UPDATE]).await, expected, "{offer}");
        }
        let problems: String = sqlx::query_scalar(PROBLEMS).fetch_one(&mut database).await.unwrap();
        assert_eq!(problems, "", "{options:?}");
        // The files apply over it.
        fence::mariadb::install(&mut database).await.unwrap();
        attempt_all(&mut database, &[CLAIM, UPDATE]).await.unwrap();
    }
}

/// A dump without routines rejects every write. One without the database `fence` has forgotten the tokens, and the
/// status says so. One without triggers protects nothing, and the status says that, too.
#[tokio::test]
async fn dump_of_a_part_is_seen_in_the_status() {
    let (server, _database) = accounts().await;
    // 1. Without routines. Only the status, which comes last, isn't restored.
    let no_routines = MariaDb::start().await.unwrap();
    let dumped = dump(&server, &["--triggers", "--databases", "test", "fence"]);
    let error = mariadb_command(&no_routines, &dumped, &["test"]).unwrap_err();
    assert!(error.contains("VIEW `status`"), "{error}");
    let mut database = session(&no_routines).await;
    for offer in ["select 1", CLAIM, PRESENT] {
        // No such procedure.
        assert_eq!(
            attempt_all(&mut database, &[offer, UPDATE]).await.unwrap_err(),
            "42000",
            "{offer}"
        );
    }
    // The files repair it, and keep its fences.
    fence::mariadb::install(&mut database).await.unwrap();
    assert_eq!(attempt_all(&mut database, &[PRESENT, UPDATE]).await.unwrap_err(), STALE);
    attempt_all(&mut database, &[CLAIM, UPDATE]).await.unwrap();
    // 2. Without the fences: 33 is accepted after 34.
    let (_no_fences, mut database) = restored(&dump(&server, &["--databases", "test"])).await;
    assert_eq!(attempt_all(&mut database, &[CLAIM, UPDATE]).await.unwrap_err(), "42000");
    fence::mariadb::install(&mut database).await.unwrap();
    attempt_all(&mut database, &[PRESENT, UPDATE]).await.unwrap();
    let problems: String = sqlx::query_scalar(PROBLEMS).fetch_one(&mut database).await.unwrap();
    assert_eq!(problems, "test.accounts: unregistered");
    protect(&mut database, "test.accounts", "account_id").await;
    assert_eq!(
        number(&mut database, "select count(*) from fence.status where problem is null").await,
        1
    );

    // 3. Without triggers.
    let options = ["--routines", "--skip-triggers", "--databases", "test", "fence"];
    let (_no_triggers, mut database) = restored(&dump(&server, &options)).await;
    attempt(&mut database, UPDATE).await.unwrap();
    let problems: String = sqlx::query_scalar(PROBLEMS).fetch_one(&mut database).await.unwrap();
    assert_eq!(problems, "test.accounts: insert missing, update missing, delete missing");
}
