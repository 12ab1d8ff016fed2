//! Fences are not removed by mistake.

use std::path::Path;

use super::{
    HOLDER_CONFLICT, NO_PRIVILEGE, STALE, accounts, attempt, attempt_and_roll_back, messages,
    number, psql, roles::WRITER, session_of,
};

const SETTING_REQUIRED: &str = "ZF006";

#[tokio::test]
async fn owner_does_not_remove_fences_unless_it_says_so() {
    let (_server, mut owner) = accounts().await;
    let removals =
        ["delete from fence.fence", "truncate fence.fence", "truncate fence.fence cascade"];
    for removal in removals {
        for role in ["origin", "replica"] {
            let removal = format!("set local session_replication_role = {role}; {removal}");
            let rejected = attempt_and_roll_back(&mut owner, &removal).await;
            assert_eq!(rejected.unwrap_err(), SETTING_REQUIRED, "{removal}");
        }
        let allowed = format!("set local fence.remove = 'on'; {removal}");
        attempt_and_roll_back(&mut owner, &allowed).await.unwrap();
    }
    assert_eq!(number(&mut owner, "select count(*) from fence.fences").await, 1);
}

#[tokio::test]
async fn operator_forgets_a_prefix() {
    let (server, mut owner) = accounts().await;
    let claims = "
        select fence.claim('job/1', 7), fence.claim('job/2', 7), fence.claim('job_1', 7),
            fence.claim('jobs', 7)";
    attempt(&mut owner, claims).await.unwrap();
    assert_eq!(number(&mut owner, "select fence.forget('job/')").await, 2);
    assert_eq!(number(&mut owner, "select count(*) from fence.fences").await, 3);
    attempt(&mut owner, "select fence.claim('job/1', 1)").await.unwrap();
    let kept = "select fence.claim('job_1', 1)";
    assert_eq!(attempt(&mut owner, kept).await.unwrap_err(), STALE);
    for missing in ["null", "''"] {
        let forget = format!("select fence.forget({missing})");
        assert_eq!(attempt(&mut owner, &forget).await.unwrap_err(), "22004");
    }
    // It says so for itself alone.
    let after = "begin; select fence.forget('job/'); delete from fence.fence";
    assert_eq!(attempt(&mut owner, after).await.unwrap_err(), SETTING_REQUIRED);
    attempt(&mut owner, "rollback").await.unwrap();

    attempt(&mut owner, WRITER).await.unwrap();
    let mut writer = session_of(&server, "writer").await;
    let forget = "select fence.forget('job/')";
    assert_eq!(attempt(&mut writer, forget).await.unwrap_err(), NO_PRIVILEGE);
    attempt(&mut owner, "grant select, delete on fence.fence to writer").await.unwrap();
    assert_eq!(number(&mut writer, forget).await, 1);
}

#[tokio::test]
async fn holder_conflict_hints_at_a_forgotten_holder() {
    let (_server, mut owner) = accounts().await;
    attempt(&mut owner, "select fence.claim('carol', 34)").await.unwrap();
    for (claim, hint) in [
        ("select fence.claim('alice', 34)", "One of the two holders is empty"),
        ("select fence.claim('carol', 34, 'c')", "One of the two holders is empty"),
        ("select fence.claim('alice', 34, 'b')", "The lock service lost its counter"),
    ] {
        let rejected = sqlx::query(claim).execute(&mut owner).await.unwrap_err();
        let rejected = rejected.as_database_error().unwrap();
        assert_eq!(rejected.code().as_deref(), Some(HOLDER_CONFLICT));
        let rejected = rejected.downcast_ref::<sqlx::postgres::PgDatabaseError>();
        assert_eq!(rejected.hint().unwrap().split(':').next(), Some(hint));
    }
}

#[tokio::test]
async fn uninstalling_drops_nothing_that_is_not_the_fences() {
    let uninstall =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations/postgres/uninstall_fence.sql");
    let uninstall = [Path::new(uninstall).to_owned()];
    let (server, mut owner) = accounts().await;
    let own = "
        create table orders (id text, year int) partition by list (year);
        create table orders_1 partition of orders for values in (1);
        create table orders_2 partition of orders for values in (2);
        select fence.protect('orders', 'id');
        alter table orders detach partition orders_2;
        create table dropped (id text);
        select fence.protect('dropped', 'id');
        drop table dropped;
        create table orders_3 (id text, year int);
        select fence.protect('orders_3', 'id');
        create table years (id text, year int) partition by list (year);
        alter table years attach partition orders_3 for values in (3);
        create table notes (id text);
        create function note() returns trigger language plpgsql as 'begin return null; end';
        create trigger fence_rows after update on notes for each row execute function note();
        create table fence.ours (id text);";
    attempt(&mut owner, own).await.unwrap();
    // A table of ours in the schema keeps the schema, and with it everything. So it is without a transaction, and
    // without a stop at the first error.
    let intact = "select count(*) from fence.status where problem is null";
    let before = number(&mut owner, intact).await;
    let by_itself = messages(&server, &format!("\\i {}", uninstall[0].display()));
    assert!(by_itself.contains("depend"), "{by_itself}");
    assert_eq!(number(&mut owner, intact).await, before);
    let rejected = psql(&server.url(), &uninstall).unwrap_err();
    assert!(rejected.contains("table fence.ours depends on schema fence"), "{rejected}");
    assert_eq!(attempt(&mut owner, "delete from accounts").await.unwrap_err(), "ZF004");

    attempt(&mut owner, "alter table fence.ours set schema public").await.unwrap();
    psql(&server.url(), &uninstall).unwrap();
    let left = "
        select count(*) from pg_trigger t join pg_proc p on p.oid = t.tgfoid
        where not tgisinternal and (tgname like 'fence%' or proname like 'fence%')";
    assert_eq!(number(&mut owner, left).await, 1);
    attempt(&mut owner, "delete from accounts; truncate orders, orders_2, years").await.unwrap();
    let left = "select count(*) from pg_proc where proname like 'fence\\_%'";
    assert_eq!(number(&mut owner, left).await, 0);
}
