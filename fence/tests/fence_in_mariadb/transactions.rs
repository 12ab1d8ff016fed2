//! A presented or claimed token counts until its transaction ends, and no longer.

use super::{BALANCE, TOKEN_REQUIRED, accounts, attempt, number, session};

#[tokio::test]
async fn offer_of_one_transaction_does_not_count_in_the_next() {
    const UPDATE: &str = "update accounts set balance = balance + 1 where account_id = 'alice'";
    let (_server, mut database) = accounts().await;
    attempt(&mut database, "create procedure ends() commit").await.unwrap();
    attempt(&mut database, "prepare ends from 'rollback'").await.unwrap();
    for offer in ["call fence.present(34, 'a')", "call fence.claim('alice', 34, 'a')"] {
        for (begin, end) in [
            ("begin", "commit"),
            ("begin", "rollback"),
            ("start transaction", "commit"),
            // It commits what was there.
            ("begin", "begin"),
            ("begin", "commit and chain"),
            ("begin", "create or replace table other (id int)"),
            // It resets the counters of the session.
            ("begin", "flush status; begin"),
            ("begin", "flush status; select 1; select 1; begin"),
            ("begin", "call ends()"),
            ("begin", "execute ends"),
            ("set autocommit = 0", "call ends()"),
            ("set autocommit = 0", "execute ends"),
            ("set autocommit = 0", "commit"),
            ("set autocommit = 0", "rollback"),
            ("set autocommit = 0", "set autocommit = 1"),
            ("set autocommit = 0", "set autocommit = 1; set autocommit = 0"),
            ("set autocommit = 0", "set autocommit = 1, autocommit = 0"),
            ("set autocommit = 0", "create or replace table other (id int)"),
            ("set autocommit = 0", "flush status"),
            ("xa start 'x'", "xa end 'x'; xa commit 'x' one phase"),
            ("xa start 'x'", "xa end 'x'; xa prepare 'x'; xa commit 'x'"),
            ("xa start 'x'", "xa end 'x'; xa commit 'x' one phase; xa start 'y'"),
            ("xa start 'x'", "xa end 'x'; xa rollback 'x'; begin"),
        ] {
            for statement in [begin, offer, UPDATE].into_iter().chain(end.split("; ")) {
                attempt(&mut database, statement).await.expect(statement);
            }
            let rejected = attempt(&mut database, UPDATE).await;
            let expected = Err(TOKEN_REQUIRED.to_owned());
            assert_eq!(rejected, expected, "{offer}, {begin} to {end}");
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
            ["begin", "savepoint s", "call fence.claim('bob', 7, 'a')", "rollback to s"]
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

/// Without autocommit, what doesn't end the transaction doesn't end the claim.
#[tokio::test]
async fn claim_lasts_until_its_transaction_ends() {
    const UPDATE: &str = "update accounts set balance = balance + 1 where account_id = 'alice'";
    let (_server, mut database) = accounts().await;
    let calls = "create procedure calls() begin declare x int; set x = 1; select x; end";
    attempt(&mut database, calls).await.unwrap();
    for (begin, between) in [
        ("begin", "set @x = 1"),
        ("begin", "get diagnostics @x = number"),
        ("set autocommit = 0", "get diagnostics @x = number"),
        ("set autocommit = 0", "create temporary table t (id int); drop temporary table t"),
        ("set autocommit = 0", "savepoint s; rollback to s; release savepoint s"),
        (
            "set autocommit = 0",
            "call calls(); prepare p from 'do 1'; execute p; deallocate prepare p",
        ),
        ("set autocommit = 0", "call fence.claim('bob', 1, ''); call fence.present(1, '')"),
    ] {
        let claim = "call fence.claim('alice', 34, 'a')";
        let steps = [begin, claim].into_iter().chain(between.split("; ")).chain([UPDATE, UPDATE]);
        for statement in steps.chain(["rollback", "set autocommit = 1"]) {
            attempt(&mut database, statement).await.expect(statement);
        }
    }
}

#[tokio::test]
async fn claim_does_not_outlast_its_transaction_inside_one_call() {
    const UPDATE: &str = "update accounts set balance = balance + 1 where account_id = 'alice'";
    let (_server, mut database) = accounts().await;
    let calls = format!(
        "create procedure calls() begin
             start transaction; call fence.claim('alice', 34, 'a'); {UPDATE}; commit;
             {UPDATE};
         end"
    );
    attempt(&mut database, &calls).await.unwrap();
    assert_eq!(attempt(&mut database, "call calls()").await.unwrap_err(), TOKEN_REQUIRED);
    // A timestamp that does not move.
    for frozen in ["1000", "1000.5", "floor(unix_timestamp())"] {
        for statement in [
            &format!("set timestamp = {frozen}"),
            "begin",
            "call fence.claim('alice', 34, 'a')",
            UPDATE,
            "commit",
        ] {
            attempt(&mut database, statement).await.expect(statement);
        }
        assert_eq!(attempt(&mut database, UPDATE).await.unwrap_err(), TOKEN_REQUIRED, "{frozen}");
    }
}

#[tokio::test]
async fn claim_that_waited_reads_what_was_written_meanwhile() {
    let (server, mut watcher) = accounts().await;
    for (level, reads_first, expected) in [
        ("read committed", false, Ok(70)),
        ("read committed", true, Ok(70)),
        ("repeatable read", false, Ok(70)),
        // The claim comes before the first read.
        ("repeatable read", true, Err("40001".to_owned())),
    ] {
        let (mut first, mut second) = (session(&server).await, session(&server).await);
        for statement in ["begin", "call fence.present(34, 'a')"] {
            attempt(&mut first, statement).await.unwrap();
        }
        let restore = "update accounts set balance = 100 where account_id = 'alice'";
        attempt(&mut first, restore).await.unwrap();
        for statement in ["commit", "begin", "call fence.claim('alice', 34, 'a')"] {
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
            let done = attempt(&mut second, "call fence.claim('alice', 34, 'a')").await;
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
        let read = match claimed {
            Ok(_) => Ok(number(&mut second, BALANCE).await),
            Err(rejected) => Err(rejected),
        };
        assert_eq!(read, expected, "{level}, {reads_first}");
        attempt(&mut second, "rollback").await.unwrap();
    }
}

/// A claim goes back to a savepoint. In a function or a trigger, that would keep MariaDB from undoing the statement that
/// called it. So MariaDB rejects the call there; a procedure may claim.
#[tokio::test]
async fn function_and_trigger_can_not_claim() {
    const CLAIM: &str = "call fence.claim('alice', 34, 'a')";
    let (_server, mut database) = accounts().await;
    for statement in [
        &format!("create procedure claims() {CLAIM}"),
        &format!("create function claiming() returns int begin {CLAIM}; return 1; end"),
        "create function presenting() returns int begin call fence.present(34, 'a'); return 1; end",
        "create table orders (id int)",
        &format!("create trigger claiming after insert on orders for each row {CLAIM}"),
        "begin",
        "call claims()",
        "update accounts set balance = balance + 1 where account_id = 'alice'",
        "rollback",
    ] {
        attempt(&mut database, statement).await.expect(statement);
    }
    for begin in ["begin", "select 1"] {
        attempt(&mut database, begin).await.unwrap();
        for statement in
            ["select claiming()", "select presenting()", "insert into orders values (1)"]
        {
            let rejected = attempt(&mut database, statement).await;
            // Explicit or implicit commit is not allowed in stored function or trigger.
            assert_eq!(rejected, Err("HY000".to_owned()), "{begin}; {statement}");
        }
    }
}

/// MariaDB keeps a row for each transaction that commits a change of a table with this versioning.
#[tokio::test]
async fn claims_and_checks_leave_no_rows_behind() {
    const UPDATE: &str = "update accounts set balance = balance + 1 where account_id = 'alice'";
    const ROWS: &str = "
        select (select count(*) from mysql.transaction_registry)
            + (select count(*) from fence.numbers for system_time all)
            + (select count(*) from fence.proofs for system_time all)
            + (select count(*) from fence.anchors)";
    let (_server, mut database) = accounts().await;
    let before = number(&mut database, ROWS).await;
    for begin in ["begin", "set autocommit = 0", "set system_versioning_asof = '2020-01-01'; begin"]
    {
        for offer in
            ["call fence.claim('alice', 34, 'a')", "call fence.present(34, 'a')", "select 1"]
        {
            for statement in begin.split("; ").chain([offer]) {
                attempt(&mut database, statement).await.expect(statement);
            }
            let written = attempt(&mut database, UPDATE).await.map(|_| ());
            assert_eq!(written.is_ok(), offer != "select 1", "{begin}; {offer}: {written:?}");
            for statement in
                ["commit", "set autocommit = 1", "set system_versioning_asof = default"]
            {
                attempt(&mut database, statement).await.unwrap();
            }
        }
    }
    assert_eq!(number(&mut database, ROWS).await, before);
    // The control: a proof that nothing takes back.
    for statement in ["begin", "insert into fence.numbers (id) values (1)", "commit"] {
        attempt(&mut database, statement).await.unwrap();
    }
    assert_eq!(number(&mut database, ROWS).await, before + 2);
}
