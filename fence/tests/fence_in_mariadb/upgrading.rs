//! From the old file 0001, in the application's database, to the database `fence`.

use std::time::Duration;

use fence::mariadb;
use sqlx::{Connection, MySqlConnection};
use testbed::MariaDb;

use super::{
    FILES, STALE, TOKEN_REQUIRED, attempt, attempt_all, number, old_accounts, run, session,
};

const UPDATE: &str = "update accounts set balance = 7 where account_id = 'alice'";

/// What the files begin with, to end with `set session sql_mode = @fence_sql_mode`.
const MODE: &str = "set @fence_sql_mode = @@sql_mode";

/// Adds a database with the old file, and a fence of alice at a token.
async fn old_database(server: &MariaDb, name: &str, token: u32) -> MySqlConnection {
    let mut database = session(server).await;
    attempt(&mut database, &format!("create database {name}")).await.unwrap();
    attempt(&mut database, &format!("use {name}")).await.unwrap();
    run(server, name, FILES[0]).unwrap();
    let claim = format!("call fence_claim('alice', {token}, 'a')");
    attempt(&mut database, &claim).await.unwrap();
    database
}

#[tokio::test]
async fn upgrade_loses_no_fence_no_protection_and_no_grant() {
    let (server, mut root) = old_accounts(&[]).await;
    for statement in [
        "call fence_claim('bob', 7, 'b')",
        "create user writer@localhost",
        "grant select, update on test.accounts to writer@localhost",
        "grant execute on procedure test.fence_claim to writer@localhost",
    ] {
        attempt(&mut root, statement).await.expect(statement);
    }
    mariadb::install(&mut root).await.unwrap();
    let url = server.url().replace("root@", "writer@");
    let mut writer = MySqlConnection::connect(&url).await.unwrap();
    for (claim, expected) in [
        ("select 1", Err(TOKEN_REQUIRED)),
        ("call fence_claim('alice', 33, 'a')", Err(STALE)),
        ("call fence_claim('alice', 34, 'a')", Ok(())),
    ] {
        let done = attempt_all(&mut writer, &[claim, UPDATE]).await;
        assert_eq!(done.as_ref().map(|_| ()).map_err(String::as_str), expected, "{claim}");
    }
    // Old and new triggers and procedures may be mixed.
    for claim in ["call fence.claim('alice', 34, 'a')", "call fence.present(34, 'a')"] {
        attempt_all(&mut root, &[claim, UPDATE]).await.unwrap();
    }
    let old_triggers = "
        select count(*) from fence.status where protected = 'test.accounts' and mode = 'by hand'
            and checks_inserts and checks_updates and checks_deletes";
    assert_eq!(number(&mut root, old_triggers).await, 1);
    let bob = "select token from fence.resources where resource = 'bob' and holder = 'b'";
    assert_eq!(number(&mut root, bob).await, 7);

    // One resource has one fence for all applications of the server: the highest.
    for (name, token, highest) in [("higher", 40, 40), ("lower", 5, 40)] {
        let mut other = old_database(&server, name, token).await;
        mariadb::install(&mut other).await.unwrap();
        let fence = "select token from fence.resources where resource = 'alice'";
        assert_eq!(number(&mut root, fence).await, highest);
        let stale = attempt(&mut other, "call fence_claim('alice', 39, 'a')").await;
        assert_eq!(stale.unwrap_err(), STALE);
    }
}

/// The file may stop after any statement, and the first file may be applied again at any time.
#[tokio::test]
async fn at_no_moment_of_the_upgrade_is_an_older_token_accepted() {
    let (server, mut database) = old_accounts(&[]).await;
    for file in &FILES[1..4] {
        run(&server, "test", file).unwrap();
    }
    let stale_claims = ["call fence_claim('alice', 33, 'a')", "call fence.claim('alice', 33, 'a')"];
    let mut again = 0;
    loop {
        // Statement by statement. The old claims are advanced between them.
        let statements: Vec<&str> = FILES[4].split(";\n\n").collect();
        for (place, statement) in statements.iter().enumerate() {
            let statement = format!("{MODE}//{statement}");
            run(&server, "test", &statement).expect(&statement);
            let old = attempt(&mut database, stale_claims[0]).await;
            assert_eq!(old.unwrap_err(), STALE, "after {statement}");
            let advance = format!("call fence_claim('alice', {}, 'a')", 100 * (again + 1) + place);
            attempt(&mut database, &advance).await.expect(&statement);
            let old = attempt(&mut database, "call fence_claim('alice', 36, 'a')").await;
            assert_eq!(old.unwrap_err(), STALE, "after {statement}");
        }
        let new = attempt(&mut database, stale_claims[1]).await;
        assert_eq!(new.unwrap_err(), STALE);
        again += 1;
        if again == 2 {
            break;
        }
        // The first file restores the old procedures, and the new fence still holds for them.
        run(&server, "test", FILES[0]).unwrap();
        for claim in stale_claims {
            assert_eq!(attempt(&mut database, claim).await.unwrap_err(), STALE, "{claim}");
        }
        // A rejected claim has claimed nothing.
        let rejected = "call fence_claim('alice', 36, 'a')";
        attempt(&mut database, "begin").await.unwrap();
        assert_eq!(attempt(&mut database, rejected).await.unwrap_err(), STALE);
        assert_eq!(attempt(&mut database, UPDATE).await.unwrap_err(), TOKEN_REQUIRED);
        attempt(&mut database, "rollback").await.unwrap();
    }

    // The negative control: the first file again, without the triggers on the old table.
    run(&server, "test", FILES[0]).unwrap();
    for trigger in ["fence_carry_insert", "fence_carry_update"] {
        attempt(&mut database, &format!("drop trigger {trigger}")).await.unwrap();
    }
    attempt(&mut database, stale_claims[0]).await.unwrap();
}

#[tokio::test]
async fn upgrade_waits_for_a_claim_in_progress() {
    let (server, mut watcher) = old_accounts(&[]).await;
    let mut old = session(&server).await;
    for statement in ["begin", "call fence_claim('alice', 35, 'a')"] {
        attempt(&mut old, statement).await.unwrap();
    }
    let mut installer = session(&server).await;
    let waits = "
        select count(*) from information_schema.processlist
        where state like 'Waiting for % metadata lock'";
    let commits = async {
        let waited = async { while number(&mut watcher, waits).await == 0 {} };
        tokio::time::timeout(Duration::from_secs(60), waited).await.unwrap();
        attempt(&mut old, "commit").await.unwrap();
    };
    tokio::join!(mariadb::install(&mut installer), commits).0.unwrap();
    let stale = attempt(&mut watcher, "call fence.claim('alice', 34, 'a')").await;
    assert_eq!(stale.unwrap_err(), STALE);
}
