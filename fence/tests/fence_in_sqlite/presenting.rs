//! A token is presented, and withdrawn before the commit.

use super::*;

#[tokio::test]
async fn presented_token_can_not_be_changed() {
    let mut database = accounts().await;
    for change in [
        "update fence_presented set resource = 'bob'",
        "insert into fence_presented (resource, token, holder) values ('alice', 34, 'a')
         on conflict do update set resource = 'bob'",
    ] {
        let rejected = attempt_and_roll_back(&mut database, &format!("{PRESENT}{change}")).await;
        assert_eq!(rejected.unwrap_err(), TOKEN_REQUIRED, "{change}");
    }
}

#[tokio::test]
async fn presented_token_must_be_withdrawn_before_the_commit() {
    let mut database = accounts().await;
    attempt(&mut database, "begin immediate").await.unwrap();
    attempt(&mut database, &format!("{PRESENT}{UPDATE}")).await.unwrap();
    assert_eq!(attempt(&mut database, "commit").await.unwrap_err(), "FOREIGN");
    attempt(&mut database, WITHDRAW).await.unwrap();
    attempt(&mut database, "commit").await.unwrap();
    assert_eq!(attempt(&mut database, UPDATE).await.unwrap_err(), TOKEN_REQUIRED);

    // It does not reach the next transaction in another way either.
    for (begin, end) in [
        ("begin immediate", "rollback"),
        ("savepoint s", "rollback to s; release s"),
        ("begin; savepoint s", "rollback to s"),
    ] {
        attempt(&mut database, &format!("{begin}; {PRESENT}{UPDATE} {end}")).await.unwrap();
        assert_eq!(attempt(&mut database, UPDATE).await.unwrap_err(), TOKEN_REQUIRED, "{begin}");
        let _ = attempt(&mut database, "rollback").await;
    }
    let released = format!("savepoint s; {PRESENT}{UPDATE} release s");
    assert_eq!(attempt(&mut database, &released).await.unwrap_err(), "FOREIGN");
    attempt(&mut database, "rollback").await.unwrap();
    assert_eq!(attempt(&mut database, PRESENT).await.unwrap_err(), "FOREIGN");
    let unchecked = format!("begin; {PRESENT} pragma foreign_keys = off; commit");
    assert_eq!(attempt(&mut database, &unchecked).await.unwrap_err(), "FOREIGN");
    attempt(&mut database, "rollback").await.unwrap();
    assert_eq!(number(&mut database, "select count(*) from fence_presented").await, 0);
}

#[tokio::test]
async fn present_and_withdraw_of_the_library_frame_the_writes() {
    let mut database = accounts().await;
    let mut transaction = database.begin_with("begin immediate").await.unwrap();
    let offered = |number| Fence { token: token(number), holder: "a".parse().unwrap() };
    sqlite::present(&mut transaction, &name("alice"), &offered(34)).await.unwrap();
    attempt(&mut transaction, UPDATE).await.unwrap();
    sqlite::withdraw(&mut transaction).await.unwrap();
    transaction.commit().await.unwrap();

    let mut transaction = database.begin_with("begin immediate").await.unwrap();
    let rejected = sqlite::present(&mut transaction, &name("alice"), &offered(33)).await;
    let Err(ClaimError::Rejected { rejection, .. }) = rejected else { panic!("{rejected:?}") };
    assert_eq!((rejection.reason, rejection.highest_token), (RejectionReason::Stale, token(34)));
    transaction.rollback().await.unwrap();
    let claimed = sqlite::claim(&mut database, &name("alice"), &offered(33)).await;
    let Err(ClaimError::Rejected { rejection, .. }) = claimed else { panic!("{claimed:?}") };
    assert_eq!(rejection.highest_token, token(34));
}
