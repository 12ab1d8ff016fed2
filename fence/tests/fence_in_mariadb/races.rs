//! Claims that race in autocommit, where a statement's locks end with it.

use std::time::{Duration, Instant};

use sqlx::MySqlConnection;

use super::{accounts, attempt, session};

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
