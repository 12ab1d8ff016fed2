//! Claims that race: in autocommit, where a statement's locks end with it, and for the first fence of a resource.

use std::time::{Duration, Instant};

use sqlx::MySqlConnection;

use super::{STALE, accounts, attempt, number, session};

/// A claim that reads and updates in two statements. The update may match nothing.
const UNLOCKED: &str = "
    create procedure fence.unlocked(in claimed varchar(512), in offered bigint, in who varchar(128))
    begin
        insert into fence.resources values (claimed, offered, who, 0, 0)
        on duplicate key update token = token;
        select token, holder into @seen_token, @seen_holder
        from fence.resources where resource = claimed for update;
        if @seen_token > offered or @seen_token = offered and @seen_holder <> who then
            signal sqlstate 'ZF002';
        end if;
        update fence.resources set token = offered, holder = who
        where resource = claimed and (token < offered or token = offered and holder = who);
    end";

/// How many of the tokens were accepted from both holders, and how many from neither.
async fn raced(
    clients: &mut [MySqlConnection; 2],
    procedure: &str,
    tokens: std::ops::Range<u32>,
) -> (u32, u32) {
    let [first, second] = clients;
    let (mut both, mut neither) = (0, 0);
    for token in tokens {
        let claim = |holder| format!("call fence.{procedure}('alice', {token}, '{holder}')");
        let (a, b) = (claim("a"), claim("b"));
        match tokio::join!(attempt(first, &a), attempt(second, &b)) {
            (Ok(_), Ok(_)) => both += 1,
            (Err(_), Err(_)) => neither += 1,
            _ => {}
        }
    }
    (both, neither)
}

#[tokio::test]
async fn one_token_is_never_accepted_from_two_holders_in_autocommit() {
    let (server, mut database) = accounts().await;
    let mut clients = [session(&server).await, session(&server).await];
    assert_eq!(raced(&mut clients, "claim", 1000..4000).await, (0, 0));

    // The negative control.
    attempt(&mut database, UNLOCKED).await.unwrap();
    let (begun, mut tokens) = (Instant::now(), 4000..5000);
    while raced(&mut clients, "unlocked", tokens.clone()).await.0 == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "no token was accepted twice");
        tokens = tokens.end..tokens.end + 1000;
    }
}

#[tokio::test]
async fn transactions_of_different_resources_do_not_wait_for_each_other() {
    const UPDATE: &str = "update accounts set balance = 7 where account_id = 'alice'";
    const UPSERT: &str =
        "insert into accounts values ('alice', 7) on duplicate key update balance = 7";
    const UPSERT_OF_BOB: &str =
        "insert into accounts values ('bob', 7) on duplicate key update balance = 7";
    const CLAIM: &str = "call fence.claim('alice', 34, 'a')";
    const CLAIM_OF_BOB: &str = "call fence.claim('bob', 34, 'b')";
    const PRESENT: &str = "call fence.present(34, 'a')";
    let (server, mut database) = accounts().await;
    attempt(&mut database, "set global innodb_lock_wait_timeout = 1").await.unwrap();
    for (first, second, is_waiting) in [
        (&["begin", CLAIM, UPSERT][..], &["begin", CLAIM_OF_BOB, UPSERT_OF_BOB][..], false),
        (&["begin", CLAIM, UPSERT], &["begin", PRESENT, UPSERT_OF_BOB], false),
        // A transaction that presents its token again for the same resource.
        (
            &["begin", PRESENT, UPDATE, "commit", "begin", PRESENT, UPDATE],
            &["begin", "call fence.claim('alice2', 1, '')"],
            false,
        ),
        // Sessions that load a dump.
        (
            &["set unique_checks = 0, foreign_key_checks = 0", "begin", CLAIM],
            &["begin", CLAIM_OF_BOB],
            false,
        ),
        // The negative control.
        (&["begin", CLAIM], &["begin", CLAIM], true),
    ] {
        let (mut one, mut other) = (session(&server).await, session(&server).await);
        for statement in first {
            attempt(&mut one, statement).await.expect(statement);
        }
        let mut done = Ok(0);
        for statement in second {
            done = done.and(attempt(&mut other, statement).await);
        }
        // MariaDB has no SQLSTATE of its own for a time-out.
        let expected = if is_waiting { Some("HY000") } else { None };
        assert_eq!(done.err().as_deref(), expected, "{first:?}, {second:?}");
    }
}

/// Lets a session that has set `@waits` wait for the gate before it creates a fence.
const GATE: &str = "
    create trigger fence.gate before insert on fence.resources for each row
    if @waits then set @passed = get_lock('gate', 60); end if";
const WAITING: &str =
    "select count(*) from information_schema.processlist where state = 'User lock'";

/// At READ COMMITTED, the fence of a new resource is not locked before it exists.
#[tokio::test]
async fn presented_token_never_lowers_a_fence_that_another_session_created_first() {
    let (server, mut rival) = accounts().await;
    attempt(&mut rival, GATE).await.unwrap();
    for level in ["read committed", "repeatable read", "serializable"] {
        attempt(&mut rival, "do get_lock('gate', 0)").await.unwrap();
        let mut late = session(&server).await;
        for statement in [
            &format!("set transaction isolation level {level}"),
            "begin",
            "call fence.present(33, 'a')",
            "set @waits = true",
        ] {
            attempt(&mut late, statement).await.unwrap();
        }
        let insert = "insert into accounts values ('new', 1)";
        let written = tokio::spawn(async move { attempt(&mut late, insert).await.map(|_| late) });
        while number(&mut rival, WAITING).await == 0 {
            tokio::task::yield_now().await;
        }
        // At the other levels, the gap is locked, and the rival has to wait.
        let claim =
            "set statement innodb_lock_wait_timeout = 1 for call fence.claim('new', 50, 'b')";
        let claimed = attempt(&mut rival, claim).await;
        assert_eq!(claimed.is_ok(), level == "read committed", "{claimed:?}");
        attempt(&mut rival, "do release_lock('gate')").await.unwrap();
        let written = written.await.unwrap();
        assert_eq!(written.as_ref().err().map(String::as_str), claimed.ok().map(|_| STALE));
        let fence = number(
            &mut rival,
            "select coalesce(max(token), 0) from fence.resources where resource = 'new'",
        );
        assert_eq!(fence.await, if written.is_err() { 50 } else { 0 });
        drop(written);
        attempt(&mut rival, "call fence.forget('new')").await.unwrap();
    }
}
