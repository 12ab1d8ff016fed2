//! A transaction that began to read before it claims, and others that claimed meanwhile.

use super::{BALANCE, accounts, attempt, number, old_accounts, session};

const RETRY: &str = "40001";
const CLAIM: &str = "call fence.claim('alice', 34, 'a')";

#[tokio::test]
async fn claim_of_an_outdated_snapshot_is_to_be_retried() {
    let (server, mut other) = accounts().await;
    let snapshot = "start transaction with consistent snapshot";
    for (level, begin, reads_first, expected) in [
        ("read committed", "begin", true, Ok(0)),
        ("repeatable read", "begin", false, Ok(0)),
        ("repeatable read", "begin", true, Err(RETRY.to_owned())),
        ("repeatable read", snapshot, false, Err(RETRY.to_owned())),
        // It has locked the row that it read.
        ("serializable", "begin", false, Ok(0)),
    ] {
        let mut late = session(&server).await;
        let isolation = format!("set session transaction isolation level {level}");
        attempt(&mut late, &isolation).await.unwrap();
        attempt(&mut late, begin).await.unwrap();
        if reads_first {
            number(&mut late, BALANCE).await;
        }
        // The same token and holder: nothing of the fence changes but who claimed it.
        let update = "update accounts set balance = balance - 1 where account_id = 'alice'";
        for statement in ["begin", CLAIM, update, "commit"] {
            attempt(&mut other, statement).await.unwrap();
        }
        let claimed = attempt(&mut late, CLAIM).await.map(|_| 0);
        assert_eq!(claimed, expected, "{level}, {begin}, {reads_first}");
        if claimed.is_ok() {
            let now = number(&mut other, BALANCE).await;
            assert_eq!(number(&mut late, BALANCE).await, now, "{level}, {begin}");
        }
        attempt(&mut late, "rollback").await.unwrap();
    }

    // Nobody claimed meanwhile: neither an old fence nor a new one is rejected, however often.
    for statement in ["begin", "select * from accounts", CLAIM, CLAIM] {
        attempt(&mut other, statement).await.expect(statement);
    }
    for token in [1, 1, 2, 2] {
        let claim = format!("call fence.claim('new', {token}, '')");
        attempt(&mut other, &claim).await.expect(&claim);
    }
    attempt(&mut other, "commit").await.unwrap();
}

/// The negative control: the old claim read older state without a word.
#[tokio::test]
async fn old_claim_of_an_outdated_snapshot_was_accepted() {
    let (server, mut other) = old_accounts(&[]).await;
    let claim = "call fence_claim('alice', 34, 'a')";
    let mut late = session(&server).await;
    attempt(&mut late, "start transaction with consistent snapshot").await.unwrap();
    let update = "update accounts set balance = 70 where account_id = 'alice'";
    for statement in ["begin", claim, update, "commit"] {
        attempt(&mut other, statement).await.unwrap();
    }
    attempt(&mut late, claim).await.unwrap();
    assert_eq!(number(&mut late, BALANCE).await, 100);
}
