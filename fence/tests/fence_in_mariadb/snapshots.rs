//! A transaction that began to read before it claims, and others that claimed meanwhile.

use super::{BALANCE, FILES, accounts, attempt, number, protect, run, session};

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

/// The negative control.
#[tokio::test]
async fn claim_that_does_not_look_reads_an_outdated_snapshot() {
    let (server, mut other) = accounts().await;
    let condition = "if not unchanged then";
    assert!(FILES[0].contains(condition));
    run(&server, "test", &FILES[0].replace(condition, "if false then")).unwrap();
    let mut late = session(&server).await;
    attempt(&mut late, "start transaction with consistent snapshot").await.unwrap();
    let update = "update accounts set balance = 70 where account_id = 'alice'";
    for statement in ["begin", CLAIM, update, "commit"] {
        attempt(&mut other, statement).await.unwrap();
    }
    attempt(&mut late, CLAIM).await.unwrap();
    assert_eq!(number(&mut late, BALANCE).await, 100);
}

/// Without autocommit, each read begins a transaction. What the fence itself reads in a check opens no snapshot before it has
/// locked the fence; what a client reads does, also from the views of the fence.
#[tokio::test]
async fn checks_open_no_snapshot_without_autocommit() {
    const WRITE: &str = "update accounts set balance = balance + 1 where account_id = 'alice'";
    let (server, mut other) = accounts().await;
    for statement in [
        "create table reported (account_id varchar(40) primary key, balance bigint not null)",
        "insert into reported values ('alice', 1)",
        "call fence.report('test.reported')",
    ] {
        attempt(&mut other, statement).await.expect(statement);
    }
    protect(&mut other, "test.reported", "account_id").await;
    for (first, expected) in [
        ("call fence.present(34, 'a')", Ok(0)),
        // A write that is rejected, and one whose rejection is only recorded.
        ("update accounts set balance = balance + 1 where account_id = 'bob'", Ok(0)),
        ("update reported set balance = balance + 1 where account_id = 'bob'", Ok(0)),
        ("insert into reported values ('carol', 1)", Ok(0)),
        // A claim looks at the snapshot, and so opens one.
        (
            "call fence.present(1, ''); update accounts set balance = 1 where account_id = 'bob'",
            Err(RETRY.to_owned()),
        ),
        ("select * from fence.fences", Err(RETRY.to_owned())),
        ("select * from fence.status", Err(RETRY.to_owned())),
        ("select * from accounts", Err(RETRY.to_owned())),
        ("select * from accounts; commit", Ok(0)),
        ("select * from accounts; rollback", Ok(0)),
    ] {
        let mut late = session(&server).await;
        attempt(&mut late, "set autocommit = 0").await.unwrap();
        for statement in first.split("; ") {
            let _ = attempt(&mut late, statement).await;
        }
        for statement in ["begin", CLAIM, WRITE, "commit"] {
            attempt(&mut other, statement).await.expect(statement);
        }
        let claimed = attempt(&mut late, CLAIM).await.map(|_| 0);
        assert_eq!(claimed, expected, "{first}");
        if claimed.is_ok() {
            let now = number(&mut other, BALANCE).await;
            assert_eq!(number(&mut late, BALANCE).await, now, "{first}");
        }
        attempt(&mut late, "rollback").await.unwrap();
    }
}

/// The negative control: where a check reads its transaction's number without a lock, that read opens a snapshot.
#[tokio::test]
async fn plain_read_of_a_check_opens_a_snapshot_without_autocommit() {
    let (server, mut other) = accounts().await;
    let locking = "from fence.numbers where id = row_id for update";
    assert!(FILES[0].contains(locking));
    let plain = FILES[0].replace(locking, "from fence.numbers where id = row_id");
    for (fence, expected) in [(FILES[0], Ok(0)), (plain.as_str(), Err(RETRY.to_owned()))] {
        run(&server, "test", fence).unwrap();
        let mut late = session(&server).await;
        for statement in ["set autocommit = 0", "call fence.present(34, 'a')"] {
            attempt(&mut late, statement).await.expect(statement);
        }
        for statement in ["begin", CLAIM, "commit"] {
            attempt(&mut other, statement).await.expect(statement);
        }
        assert_eq!(attempt(&mut late, CLAIM).await.map(|_| 0), expected);
    }
}

/// A presented token claims when the row is written, and what is read afterwards must be as new as the claim.
#[tokio::test]
async fn presented_token_of_an_outdated_snapshot_is_to_be_retried() {
    const WRITE: &str = "update accounts set balance = balance + 1 where account_id = 'alice'";
    let (server, mut other) = accounts().await;
    for (reads_first, expected) in [(false, Ok(1)), (true, Err(RETRY.to_owned()))] {
        let mut late = session(&server).await;
        attempt(&mut late, "begin").await.unwrap();
        if reads_first {
            number(&mut late, BALANCE).await;
        }
        for statement in ["begin", CLAIM, WRITE, "commit"] {
            attempt(&mut other, statement).await.unwrap();
        }
        attempt(&mut late, "call fence.present(34, 'a')").await.unwrap();
        assert_eq!(attempt(&mut late, WRITE).await, expected);
        attempt(&mut late, "rollback").await.unwrap();
    }
}
