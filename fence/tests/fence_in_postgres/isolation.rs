//! Two sessions at once, at every level of isolation.

use sqlx::PgConnection;
use testbed::Postgres;
use tokio::{task::JoinHandle, time::timeout};

use super::{PATIENCE, STALE, accounts, attempt, number, pid, session, until_it_waits};

const LEVELS: [&str; 3] = ["read committed", "repeatable read", "serializable"];
const SERIALIZATION_FAILURE: &str = "40001";
const BALANCE: &str = "select balance from accounts where account_id = 'alice'";

/// A statement that another session's transaction keeps waiting.
struct Waiting(JoinHandle<(PgConnection, Result<u64, String>)>);

impl Waiting {
    async fn begin(server: &Postgres, mut database: PgConnection, statement: &'static str) -> Self {
        let pid = pid(&mut database).await;
        let waiting = tokio::spawn(async move {
            let done = attempt(&mut database, statement).await;
            (database, done)
        });
        until_it_waits(&mut session(server).await, pid).await;
        Self(waiting)
    }

    async fn end(self) -> (PgConnection, Result<u64, String>) {
        timeout(PATIENCE, self.0).await.expect("nothing holds it up any more").unwrap()
    }
}

#[tokio::test]
async fn claim_that_waited_reads_what_was_written_meanwhile_or_fails() {
    for level in LEVELS {
        let (server, mut first) = accounts().await;
        let mut second = session(&server).await;
        let write = "
            begin; select fence.claim('alice', 35, 'a');
            update accounts set balance = 70 where account_id = 'alice'";
        attempt(&mut first, write).await.unwrap();
        attempt(&mut second, &format!("begin isolation level {level}")).await.unwrap();
        let claim = "select fence.claim('alice', 36, 'b')";
        let waiting = Waiting::begin(&server, second, claim).await;
        attempt(&mut first, "commit").await.unwrap();

        let (mut second, claimed) = waiting.end().await;
        if level == "read committed" {
            claimed.unwrap();
            assert_eq!(number(&mut second, BALANCE).await, 70);
        } else {
            assert_eq!(claimed.unwrap_err(), SERIALIZATION_FAILURE, "{level}");
        }
    }
}

/// The negative control of the test above: a lock of the fence's row is no claim.
#[tokio::test]
async fn lock_of_the_fences_row_reads_stale_at_repeatable_read() {
    let (server, mut first) = accounts().await;
    let mut second = session(&server).await;
    attempt(&mut first, "select fence.unprotect('accounts')").await.unwrap();
    let write = "
        begin; select from fence.fence where resource = 'alice' for update;
        update accounts set balance = 70 where account_id = 'alice'";
    attempt(&mut first, write).await.unwrap();
    attempt(&mut second, "begin isolation level repeatable read").await.unwrap();
    let lock = "select from fence.fence where resource = 'alice' for update";
    let waiting = Waiting::begin(&server, second, lock).await;
    attempt(&mut first, "commit").await.unwrap();

    let (mut second, locked) = waiting.end().await;
    locked.unwrap();
    assert_eq!(number(&mut second, BALANCE).await, 100, "it is 70 by now");
}

/// The claim in between leaves the fence as it was, so only the new version of its row shows the
/// write.
#[tokio::test]
async fn claim_after_an_older_snapshot_fails_though_the_fence_is_the_same() {
    for level in LEVELS {
        let (server, mut first) = accounts().await;
        let mut second = session(&server).await;
        attempt(&mut second, &format!("begin isolation level {level}")).await.unwrap();
        assert_eq!(number(&mut second, "select count(*) from accounts").await, 2);
        let write = "
            select fence.claim('alice', 34, 'a');
            update accounts set balance = 70 where account_id = 'alice'";
        attempt(&mut first, write).await.unwrap();

        let claimed = attempt(&mut second, "select fence.claim('alice', 35, 'b')").await;
        if level == "read committed" {
            claimed.unwrap();
            assert_eq!(number(&mut second, BALANCE).await, 70);
        } else {
            assert_eq!(claimed.unwrap_err(), SERIALIZATION_FAILURE, "{level}");
        }
    }
}

/// A fence that the snapshot doesn't have at all lets no stale write through either.
#[tokio::test]
async fn first_claim_that_an_older_snapshot_can_not_see_is_not_overlooked() {
    for level in LEVELS {
        for offer in ["select fence.claim('bob', 33)", "select fence.present(33)"] {
            let (server, mut first) = accounts().await;
            let mut second = session(&server).await;
            attempt(&mut second, &format!("begin isolation level {level}")).await.unwrap();
            assert_eq!(number(&mut second, "select count(*) from accounts").await, 2);
            attempt(&mut first, "select fence.claim('bob', 34)").await.unwrap();

            let write =
                format!("{offer}; update accounts set balance = 7 where account_id = 'bob'");
            let rejected = attempt(&mut second, &write).await.unwrap_err();
            let expected = if level == "read committed" { STALE } else { SERIALIZATION_FAILURE };
            assert_eq!(rejected, expected, "{level}, {offer}");
        }
    }
}

#[tokio::test]
async fn stale_claim_waits_and_is_decided_by_how_the_other_ends() {
    for (end, accepted) in [("commit", false), ("rollback", true)] {
        let (server, mut first) = accounts().await;
        let second = session(&server).await;
        attempt(&mut first, "begin; select fence.claim('alice', 36, 'b')").await.unwrap();
        let waiting = Waiting::begin(&server, second, "select fence.claim('alice', 35, 'a')").await;
        attempt(&mut first, end).await.unwrap();
        let (_, claimed) = waiting.end().await;
        match claimed {
            Ok(_) => assert!(accepted, "{end}"),
            Err(code) => assert!(!accepted && code == STALE, "{end}: {code}"),
        }
    }
}

/// A blind write that waits for the row is decided only after it, by the fence as it is then.
#[tokio::test]
async fn stale_write_that_waited_for_the_row_is_rejected() {
    let (server, mut first) = accounts().await;
    let second = session(&server).await;
    let write = "
        begin; select fence.claim('alice', 35, 'b');
        update accounts set balance = 70 where account_id = 'alice'";
    attempt(&mut first, write).await.unwrap();
    let stale = "
        select fence.present(34, 'a');
        update accounts set balance = 7 where account_id = 'alice'";
    let waiting = Waiting::begin(&server, second, stale).await;
    attempt(&mut first, "commit").await.unwrap();
    let (mut second, written) = waiting.end().await;
    assert_eq!(written.unwrap_err(), STALE);
    assert_eq!(number(&mut second, BALANCE).await, 70);
}

/// The row is free: what the write waits for is the fence, which another transaction is about to raise.
#[tokio::test]
async fn presented_token_waits_for_the_claim_that_is_under_way() {
    let (server, mut first) = accounts().await;
    let stale = "
        select fence.present(34, 'a');
        update accounts set balance = 7 where account_id = 'alice'";
    for (end, expected) in [("rollback", Ok(2)), ("commit", Err(STALE.to_owned()))] {
        attempt(&mut first, "begin; select fence.claim('alice', 35, 'b')").await.unwrap();
        let waiting = Waiting::begin(&server, session(&server).await, stale).await;
        attempt(&mut first, end).await.unwrap();
        let (_, written) = waiting.end().await;
        assert_eq!(written, expected, "{end}");
    }
    // The negative control: a check that compares the tokens that it reads lets the write pass.
    let compares = "
        create or replace function fence.verify(resource text) returns boolean language sql
        as 'select true from fence.fence f where f.resource = verify.resource and f.token <= 35'";
    attempt(&mut first, compares).await.unwrap();
    attempt(&mut first, "begin; select fence.claim('alice', 36, 'c')").await.unwrap();
    let late = stale.replace("34, 'a'", "35, 'b'");
    assert_eq!(attempt(&mut session(&server).await, &late).await, Ok(2));
}

#[tokio::test]
async fn claims_in_opposite_order_end_as_a_deadlock_that_can_be_tried_again() {
    let (server, mut first) = accounts().await;
    let mut second = session(&server).await;
    attempt(&mut first, "begin; select fence.claim('alice', 35, 'b')").await.unwrap();
    attempt(&mut second, "begin; select fence.claim('bob', 35, 'b')").await.unwrap();
    let waiting = Waiting::begin(&server, second, "select fence.claim('alice', 36, 'c')").await;
    let of_first =
        timeout(PATIENCE, attempt(&mut first, "select fence.claim('bob', 34, 'a')")).await.unwrap();
    // PostgreSQL aborts one of the two transactions, so the other continues.
    if of_first.is_err() {
        attempt(&mut first, "rollback").await.unwrap();
    }
    let (second, of_second) = waiting.end().await;
    let (mut chosen, mut other, code) = match (of_first, of_second) {
        (Err(code), Ok(_)) => (first, second, code),
        (Ok(_), Err(code)) => (second, first, code),
        both => panic!("one of them is chosen: {both:?}"),
    };
    assert_eq!(code, "40P01");
    attempt(&mut chosen, "rollback").await.unwrap();
    attempt(&mut other, "commit").await.unwrap();
    let again = "select fence.claim('alice', 37, 'd'), fence.claim('bob', 37, 'd')";
    attempt(&mut chosen, again).await.unwrap();
}

/// Two claims of one holder, such as a retry after a lost answer, also run one after the other.
#[tokio::test]
async fn claim_of_the_same_token_waits_for_the_other() {
    let (server, mut first) = accounts().await;
    let second = session(&server).await;
    attempt(&mut first, "begin; select fence.claim('alice', 34, 'a')").await.unwrap();
    let waiting = Waiting::begin(&server, second, "select fence.claim('alice', 34, 'a')").await;
    assert!(!waiting.0.is_finished());
    attempt(&mut first, "commit").await.unwrap();
    waiting.end().await.1.unwrap();
}
