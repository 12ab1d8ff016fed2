//! Installing the fence, and again.

use fence::mariadb;
use sqlx::migrate::MigrateError;

use super::{FILES, STALE, accounts, attempt, attempt_all, number, protect, run};

const UPDATE: &str = "update accounts set balance = 7 where account_id = 'alice'";
const GRANTS: &str = "
    select count(*) from mysql.procs_priv where user = 'writer' and routine_name in
        ('claim', 'present', 'protect_sql', 'fence_claim')";

#[tokio::test]
async fn installing_again_keeps_fences_protection_and_grants() {
    let (server, mut database) = accounts().await;
    for statement in [
        "create user writer@localhost",
        "grant execute on procedure fence.claim to writer@localhost",
        "grant execute on procedure fence.present to writer@localhost",
        "grant execute on procedure fence.protect_sql to writer@localhost",
        "grant execute on procedure test.fence_claim to writer@localhost",
    ] {
        attempt(&mut database, statement).await.expect(statement);
    }
    for _ in 0..2 {
        // A rejection holds after each file, also after the first, which restores the old procedures.
        for file in FILES {
            run(&server, "test", file).unwrap();
            for claim in
                ["call fence.claim('alice', 33, 'a')", "call fence_claim('alice', 33, 'a')"]
            {
                assert_eq!(attempt(&mut database, claim).await.unwrap_err(), STALE, "{claim}");
            }
        }
        mariadb::install(&mut database).await.unwrap();
    }
    let stale = attempt_all(&mut database, &["call fence.present(33, 'a')", UPDATE]).await;
    assert_eq!(stale.unwrap_err(), STALE);
    assert_eq!(number(&mut database, GRANTS).await, 4);
    assert_eq!(number(&mut database, "select cast(fence.version() as signed)").await, 5);
    attempt(&mut database, "drop procedure fence.claim").await.unwrap();
    // The negative control: with the procedure, the grant is gone.
    assert_eq!(number(&mut database, GRANTS).await, 3);

    // The client alone is enough, with any database selected: also with the fence's own.
    attempt(&mut database, "drop database fence").await.unwrap();
    attempt(&mut database, "create database fence").await.unwrap();
    for file in FILES.iter().chain(&FILES) {
        run(&server, "fence", file).unwrap();
    }
    protect(&mut database, "test.accounts", "account_id").await;
    attempt(&mut database, "call fence.claim('alice', 34, 'a')").await.unwrap();
    let stale = attempt_all(&mut database, &["call fence.present(33, 'a')", UPDATE]).await;
    assert_eq!(stale.unwrap_err(), STALE);
}

#[tokio::test]
async fn older_version_does_not_replace_a_newer_one() {
    let (_server, mut database) = accounts().await;
    let newer = "create or replace function fence.version() returns int return 1000";
    attempt(&mut database, newer).await.unwrap();
    attempt(&mut database, "create database other").await.unwrap();
    attempt(&mut database, "use other").await.unwrap();
    let rejected = mariadb::install(&mut database).await.unwrap_err();
    assert!(matches!(rejected, MigrateError::VersionMissing(1000)), "{rejected}");
}
