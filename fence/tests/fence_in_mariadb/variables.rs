//! A session may set its user variables, also those of the fence.

use super::{TOKEN_REQUIRED, accounts, attempt, session};

const UPDATE: &str = "update accounts set balance = balance + 1 where account_id = 'alice'";
const CLAIM: &str = "call fence.claim('alice', 34, 'a')";

#[tokio::test]
async fn no_variable_replaces_a_claim() {
    let (server, _database) = accounts().await;
    for (forged, offers) in [
        // What an earlier statement left, and its timestamp.
        ("set timestamp = unix_timestamp(sysdate(6))", &["begin", CLAIM, UPDATE, "commit"][..]),
        (
            "set timestamp = 1000.5; set @fence_statement = @@timestamp, @fence_row = 'alice'",
            &["begin", CLAIM, UPDATE, "commit"],
        ),
        // A claim in autocommit has no transaction.
        ("set timestamp = 1000.5; set @fence_statement = @@timestamp, @fence_name = ''", &[CLAIM]),
        ("set @fence_presented_in = '', @fence_token = 34, @fence_holder = 'a'", &[CLAIM]),
        ("set foreign_key_checks = 0, unique_checks = 0", &["begin", CLAIM, UPDATE, "commit"]),
        ("set foreign_key_checks = 0, unique_checks = 0", &[]),
    ] {
        let mut database = session(&server).await;
        for statement in forged.split("; ").chain(offers.iter().copied()) {
            attempt(&mut database, statement).await.expect(statement);
        }
        for statement in forged.split("; ").filter(|set| !set.contains("sysdate")) {
            attempt(&mut database, statement).await.expect(statement);
        }
        let rejected = attempt(&mut database, UPDATE).await;
        assert_eq!(rejected, Err(TOKEN_REQUIRED.to_owned()), "{forged}");
    }
}

/// Nor does the number of a transaction that is over, of this session or of another.
#[tokio::test]
async fn number_of_another_transaction_does_not_count() {
    let (server, mut first) = accounts().await;
    for statement in ["begin", CLAIM, "call fence.present(34, 'a')", UPDATE, "commit"] {
        attempt(&mut first, statement).await.unwrap();
    }
    let number: u64 = sqlx::query_scalar("select claimed_by from fence.resources")
        .fetch_one(&mut first)
        .await
        .unwrap();
    let mut second = session(&server).await;
    for earlier in number - 5..=number {
        for database in [&mut first, &mut second] {
            let forged = format!(
                "set @fence_presented_in = {earlier}, @fence_token = 34, @fence_holder = 'a'"
            );
            for statement in [&forged, "begin"] {
                attempt(database, statement).await.unwrap();
            }
            assert_eq!(
                attempt(database, UPDATE).await,
                Err(TOKEN_REQUIRED.to_owned()),
                "{earlier}"
            );
            attempt(database, "rollback").await.unwrap();
        }
    }
}
