//! A presented or claimed token counts until its transaction ends, and no longer.

use super::{BALANCE, TOKEN_REQUIRED, accounts, attempt, number, session};

#[tokio::test]
async fn offer_of_one_transaction_does_not_count_in_the_next() {
    const UPDATE: &str = "update accounts set balance = balance + 1 where account_id = 'alice'";
    let (_server, mut database) = accounts().await;
    attempt(&mut database, "create procedure ends() commit").await.unwrap();
    attempt(&mut database, "prepare ends from 'rollback'").await.unwrap();
    for offer in ["call fence_present(34, 'a')", "call fence_claim('alice', 34, 'a')"] {
        for (begin, end) in [
            ("begin", "commit"),
            ("begin", "rollback"),
            ("start transaction", "commit"),
            // It commits what was there.
            ("begin", "begin"),
            ("begin", "commit and chain"),
            ("begin", "create or replace table other (id int)"),
            ("begin", "call ends()"),
            ("begin", "execute ends"),
            ("set autocommit = 0", "call ends()"),
            ("set autocommit = 0", "execute ends"),
            ("set autocommit = 0", "commit"),
            ("set autocommit = 0", "rollback"),
            ("set autocommit = 0", "set autocommit = 1"),
            ("xa start 'x'", "xa end 'x'; xa commit 'x' one phase"),
            ("xa start 'x'", "xa end 'x'; xa prepare 'x'; xa commit 'x'"),
            ("xa start 'x'", "xa end 'x'; xa commit 'x' one phase; xa start 'y'"),
            ("xa start 'x'", "xa end 'x'; xa rollback 'x'; begin"),
        ] {
            for statement in [begin, offer, UPDATE].into_iter().chain(end.split("; ")) {
                attempt(&mut database, statement).await.expect(statement);
            }
            let refused = attempt(&mut database, UPDATE).await;
            let expected = Err(TOKEN_REQUIRED.to_owned());
            assert_eq!(refused, expected, "{offer}, {begin} to {end}");
            for statement in ["xa end 'y'", "xa rollback 'y'", "rollback", "set autocommit = 1"] {
                // Ends the transaction, if there is one.
                let _ = attempt(&mut database, statement).await;
            }
        }
        // Alone, it is a transaction of its own.
        attempt(&mut database, offer).await.unwrap();
        assert_eq!(attempt(&mut database, UPDATE).await.unwrap_err(), TOKEN_REQUIRED);
        attempt(&mut database, "begin").await.unwrap();
        assert_eq!(attempt(&mut database, UPDATE).await.unwrap_err(), TOKEN_REQUIRED);
        attempt(&mut database, "rollback").await.unwrap();
        // A claim is undone with its savepoint.
        for statement in
            ["begin", "savepoint s", "call fence_claim('bob', 7, 'a')", "rollback to s"]
        {
            attempt(&mut database, statement).await.unwrap();
        }
        let bob = "update accounts set balance = 7 where account_id = 'bob'";
        assert_eq!(attempt(&mut database, bob).await.unwrap_err(), TOKEN_REQUIRED);
        attempt(&mut database, "rollback").await.unwrap();
    }
    // By the next borrower of the connection.
    attempt(&mut database, "set @fence_token = 34").await.unwrap();
    attempt(&mut database, "set @fence_holder = 'a'").await.unwrap();
    attempt(&mut database, "set @fence_presented_in = 'x'").await.unwrap();
    assert_eq!(attempt(&mut database, UPDATE).await.unwrap_err(), TOKEN_REQUIRED);
}

#[tokio::test]
async fn claim_that_waited_reads_what_was_written_meanwhile() {
    let (server, mut watcher) = accounts().await;
    for (level, reads_first, expected) in [
        ("read committed", false, 70),
        ("read committed", true, 70),
        ("repeatable read", false, 70),
        // The negative control, and why the claim comes before the first read.
        ("repeatable read", true, 100),
    ] {
        let (mut first, mut second) = (session(&server).await, session(&server).await);
        for statement in ["begin", "call fence_present(34, 'a')"] {
            attempt(&mut first, statement).await.unwrap();
        }
        let restore = "update accounts set balance = 100 where account_id = 'alice'";
        attempt(&mut first, restore).await.unwrap();
        for statement in ["commit", "begin", "call fence_claim('alice', 34, 'a')"] {
            attempt(&mut first, statement).await.unwrap();
        }
        let update = "update accounts set balance = 70 where account_id = 'alice'";
        attempt(&mut first, update).await.unwrap();

        let isolation = format!("set session transaction isolation level {level}");
        attempt(&mut second, &isolation).await.unwrap();
        attempt(&mut second, "begin").await.unwrap();
        if reads_first {
            assert_eq!(number(&mut second, BALANCE).await, 100);
        }
        let waiting = tokio::spawn(async move {
            let done = attempt(&mut second, "call fence_claim('alice', 34, 'a')").await;
            (second, done)
        });
        // One transaction waits for a lock of another's.
        let waits = "
            select cast(variable_value as signed) from information_schema.global_status
            where variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'";
        let waited = async { while number(&mut watcher, waits).await == 0 {} };
        tokio::time::timeout(std::time::Duration::from_secs(10), waited).await.unwrap();
        attempt(&mut first, "commit").await.unwrap();
        let (mut second, claimed) = waiting.await.unwrap();
        claimed.unwrap();
        assert_eq!(number(&mut second, BALANCE).await, expected, "{level}, {reads_first}");
        attempt(&mut second, "rollback").await.unwrap();
    }
}
