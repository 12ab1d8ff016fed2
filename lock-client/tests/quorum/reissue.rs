//! Tokens that are reissued.

use fence::{Holder, Token};
use lock_client::{Order, backend::Backend};

use super::service::{Service, acquired, attempt, busy, held, release, secs};
use crate::names::name;

fn above(token: Token, by: u64) -> Token {
    Token::new(token.as_u64() + by).unwrap()
}

async fn reissued_token_is_above_all_that_were_given<S: Service>() {
    let service = S::start().await;
    let locks = S::client(&service.url());
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    let mut last = lock.token;
    for at_least in [lock.token, above(lock.token, 1_000), lock.token] {
        let reissued = locks.reissue(&name("r"), &lock.ownership, at_least).await.unwrap();
        let reissued = reissued.expect("it is the owner's");
        assert!(reissued > at_least && reissued > last, "{reissued}, above {at_least} and {last}");
        last = reissued;
    }
    let renewed = locks.renew(&name("r"), &lock.ownership, secs(60)).await.unwrap();
    assert_eq!(renewed, Some(last));
    let again = held(attempt(&locks, &lock.ownership.holder, Order::Unordered).await);
    assert_eq!((again.token, again.ownership), (last, lock.ownership.clone()));
    let status = locks.status(&name("r")).await.unwrap();
    assert_eq!((status.held.unwrap().token, status.last_token), (last, Some(last.as_u64())));
    assert!(release(&locks, &lock).await);
    assert!(acquired(&locks, &name("r"), secs(60)).await.token > last);
}

async fn racing_reissues_return_different_tokens<S: Service>() {
    let service = S::start().await;
    let locks = S::client(&service.url());
    let lock = acquired(&locks, &name("r"), secs(60)).await;
    let (r, own) = (name("r"), &lock.ownership);
    let reissue = || locks.reissue(&r, own, lock.token);
    let (a, b, c) = tokio::join!(reissue(), reissue(), reissue());
    let mut tokens = [a, b, c].map(|token| token.unwrap().expect("it is the owner's"));
    tokens.sort_unstable();
    assert!(lock.token < tokens[0] && tokens[0] < tokens[1] && tokens[1] < tokens[2], "{tokens:?}");
}

/// The owner reissues while a waiter is queued already.
async fn waiter_that_queued_before_a_reissue_gets_a_higher_token<S: Service>() {
    let service = S::start().await;
    let locks = S::client(&service.url());
    let first = acquired(&locks, &name("r"), secs(60)).await;
    let waiter = Holder::random();
    busy(attempt(&locks, &waiter, Order::Fair).await);
    let at_queueing = locks.status(&name("r")).await.unwrap().last_token.unwrap();
    let offset_at_queueing = at_queueing - first.ownership.grant.as_u64();
    let far = above(first.token, 1_000);
    let reissued = locks.reissue(&name("r"), &first.ownership, far).await.unwrap().unwrap();
    assert!(release(&locks, &first).await);
    let next = held(attempt(&locks, &waiter, Order::Fair).await);
    assert!(next.token > reissued, "{} follows {reissued}", next.token);
    // The control: the offset that was read at queueing gives a token that the storage rejects.
    let wrong = next.ownership.grant.as_u64() + offset_at_queueing;
    assert!(wrong < reissued.as_u64(), "{wrong} would follow {reissued}");
}

test_each_service! {
    reissued_token_is_above_all_that_were_given,
    racing_reissues_return_different_tokens,
    waiter_that_queued_before_a_reissue_gets_a_higher_token,
}
