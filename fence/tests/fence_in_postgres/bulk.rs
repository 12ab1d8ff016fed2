//! A statement that writes many rows of one resource looks its fence up once.

use sqlx::{Connection, PgConnection};

use super::{
    MALFORMED, NO_PRIVILEGE, STALE, TOKEN_REQUIRED, accounts, attempt, is_true, number,
    roles::WRITER, session_of,
};

const MANY: &str = "insert into rows select 'alice', n from generate_series(1, 1000) as n";
const ROWS: &str = "
    create table rows (account_id text, n bigint);
    select fence.protect('rows', 'account_id'); grant all on rows to writer;";
const LOOKED_UP: &str = "select pg_stat_get_xact_numscans('fence.fence_pkey'::regclass)";
const UPDATE: &str = "update accounts set balance = 7 where account_id = 'alice'";

#[tokio::test]
async fn many_rows_of_one_resource_need_few_looks() {
    let (_server, mut owner) = accounts().await;
    attempt(&mut owner, &format!("{WRITER} {ROWS}")).await.unwrap();
    for offer in ["select fence.claim('alice', 34, 'a')", "select fence.present(34, 'a')"] {
        for write in [MANY, "update rows set n = n + 1", "delete from rows"] {
            attempt(&mut owner, "begin").await.unwrap();
            let before = number(&mut owner, LOOKED_UP).await;
            attempt(&mut owner, &format!("{offer}; {write}")).await.unwrap();
            let looked_up = number(&mut owner, LOOKED_UP).await - before;
            assert!(looked_up <= 3, "{looked_up}: {offer}; {write}");
            attempt(&mut owner, "commit").await.unwrap();
        }
    }
    // Nothing of it counts in the next transaction. What remembers it is empty by now.
    assert_eq!(attempt(&mut owner, MANY).await.unwrap_err(), TOKEN_REQUIRED);
    for (resource, rejection) in [("''", TOKEN_REQUIRED), ("null", MALFORMED)] {
        let insert = format!("insert into rows values ({resource})");
        assert_eq!(attempt(&mut owner, &insert).await.unwrap_err(), rejection, "{resource}");
    }
    let other = "select fence.claim('alice', 34, 'a'); insert into rows values ('alice'), ('bob')";
    assert_eq!(attempt(&mut owner, other).await.unwrap_err(), TOKEN_REQUIRED);
}

#[tokio::test]
async fn what_passed_in_a_savepoint_does_not_pass_after_it_was_rolled_back() {
    let (_server, mut owner) = accounts().await;
    for offer in ["select fence.claim('alice', 34, 'a')", "select fence.present(34, 'a')"] {
        let undone =
            format!("begin; savepoint s; {offer}; {UPDATE}; {UPDATE}; rollback to s; {UPDATE}");
        assert_eq!(attempt(&mut owner, &undone).await.unwrap_err(), TOKEN_REQUIRED);
        attempt(&mut owner, "rollback").await.unwrap();
        let caught = format!(
            "do $$ begin
                 begin
                     {offer}; {UPDATE}; raise sqlstate 'P0099';
                 exception when sqlstate 'P0099' then null;
                 end;
                 {UPDATE};
             end $$"
        );
        let caught = caught.replace("select fence", "perform fence");
        assert_eq!(attempt(&mut owner, &caught).await.unwrap_err(), TOKEN_REQUIRED);
    }
    // What passed before counts still, and so does what passed in one that was released.
    let kept = format!(
        "begin; select fence.claim('alice', 34, 'a'); {UPDATE}; savepoint s;
         update accounts set balance = 7 where account_id = 'alice'; rollback to s; {UPDATE};
         savepoint t; select fence.present(1, 'b');
         update accounts set balance = 7 where account_id = 'bob'; release t;
         update accounts set balance = 7; rollback"
    );
    attempt(&mut owner, &kept).await.unwrap();
}

/// It is remembered in a setting, whose name nobody else knows or can find.
#[tokio::test]
async fn what_passed_can_not_be_forged() {
    let (server, mut owner) = accounts().await;
    attempt(&mut owner, WRITER).await.unwrap();
    let secret = number(&mut owner, "select last_value from fence.secret").await;
    let forge = format!("select set_config('fence.passed_{secret}', 'alice', true)");

    let mut writer = session_of(&server, "writer").await;
    let passed = "
        begin; select fence.claim('bob', 1, 'b');
        update accounts set balance = 7 where account_id = 'bob'";
    attempt(&mut writer, passed).await.unwrap();
    // It is there, and the session that has it can't see its name.
    let kept = format!("select current_setting('fence.passed_{secret}') = 'bob'");
    assert!(is_true(&mut writer, &kept).await);
    for shown in [
        "select count(*) from pg_settings where name like 'fence.%'",
        "select count(*) from pg_show_all_settings() where name ~ 'passed' or setting ~ 'bob'",
    ] {
        assert_eq!(number(&mut writer, shown).await, 0, "{shown}");
    }
    for secret in [
        "select last_value from fence.secret",
        "select pg_sequence_last_value('fence.secret')",
        "select nextval('fence.secret')",
        "select setval('fence.secret', 1)",
        "select last_value from pg_sequences where last_value is not null",
        "alter sequence fence.secret restart",
        "create or replace function fence.verify(text) returns boolean language sql as 'select true'",
    ] {
        attempt(&mut writer, "savepoint s").await.unwrap();
        let rejected = attempt(&mut writer, secret).await;
        assert!(
            rejected == Err(NO_PRIVILEGE.to_owned()) || rejected == Ok(0),
            "{secret}: {rejected:?}"
        );
        attempt(&mut writer, "rollback to s").await.unwrap();
    }
    for guess in ["passed", "passed_", "passed_0", "passed_1", "passed_null"] {
        let guess = format!("select set_config('fence.{guess}', 'alice', true)");
        attempt(&mut writer, &guess).await.unwrap();
    }
    assert_eq!(attempt(&mut writer, UPDATE).await.unwrap_err(), TOKEN_REQUIRED);
    attempt(&mut writer, "rollback").await.unwrap();

    // The negative control: who knows the name does pass.
    attempt(&mut writer, &format!("begin; {forge}; {UPDATE}; rollback")).await.unwrap();
    let stale = format!("select fence.present(33, 'a'); {UPDATE}");
    assert_eq!(attempt(&mut writer, &stale).await.unwrap_err(), STALE);
}

#[tokio::test]
async fn every_database_has_a_secret_of_its_own() {
    let (server, mut owner) = accounts().await;
    attempt(&mut owner, "create database other").await.unwrap();
    super::psql(&server.url_of("other"), &super::files()).unwrap();
    let secret = "select last_value from fence.secret";
    let here = number(&mut owner, secret).await;
    let mut other = PgConnection::connect(&server.url_of("other")).await.unwrap();
    assert_ne!(here, number(&mut other, secret).await);
    assert!(here > 1_000_000);
    // Applied again, it stays.
    super::psql(&server.url(), &super::files()).unwrap();
    assert_eq!(here, number(&mut owner, secret).await);
}
