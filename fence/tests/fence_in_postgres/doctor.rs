//! Who may call `fence.doctor()`. What it finds is tested with the crate `doctor`, which sends the same query.

use super::{accounts, attempt, files, psql, session_of};

#[tokio::test]
async fn administrator_decides_who_may_call_the_doctor() {
    let (server, mut owner) = accounts().await;
    let setup = "
        create role app login; grant usage on schema fence to app;
        revoke execute on function fence.doctor() from public";
    attempt(&mut owner, setup).await.unwrap();
    psql(&server.url(), &files()).unwrap();
    let mut app = session_of(&server, "app").await;
    assert_eq!(attempt(&mut app, "select * from fence.doctor()").await.unwrap_err(), "42501");
    attempt(&mut owner, "grant execute on function fence.doctor() to app").await.unwrap();
    psql(&server.url(), &files()).unwrap();
    attempt(&mut app, "select * from fence.doctor()").await.unwrap();
}
