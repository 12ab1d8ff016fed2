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
        ("set @fence_session = '', @fence_named = 0", &[CLAIM]),
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

/// Nor does the name that another session had.
#[tokio::test]
async fn name_of_another_session_does_not_count() {
    let (server, mut first) = accounts().await;
    for statement in ["begin", CLAIM, UPDATE, "commit"] {
        attempt(&mut first, statement).await.unwrap();
    }
    let name: String =
        sqlx::query_scalar("select @fence_session").fetch_one(&mut first).await.unwrap();
    let mut second = session(&server).await;
    let forged = format!("set @fence_session = '{name}', @fence_named = 0");
    attempt(&mut second, &forged).await.unwrap();
    // Until it has begun and ended as many transactions as the other.
    for _ in 0..20 {
        attempt(&mut second, "begin").await.unwrap();
        assert_eq!(attempt(&mut second, UPDATE).await, Err(TOKEN_REQUIRED.to_owned()));
    }
}
