//! The right TRIGGER, which `grant all` includes.

use testbed::Postgres;

use super::{
    TOKEN_REQUIRED, accounts, attempt, first_version, is_true, messages, number, psql,
    roles::{UPDATE, WRITER},
    session, session_of,
};

const PASS: &str = "
    create function pg_temp.pass() returns trigger language plpgsql
    as 'begin return null; end'";

fn replace(trigger: &str, event: &str, table: &str) -> String {
    let each = if event == "truncate" { "statement" } else { "row" };
    let when = if event == "truncate" { "before" } else { "after" };
    format!(
        "create or replace trigger {trigger} {when} {event} on {table}
         for each {each} execute function pg_temp.pass()"
    )
}

#[tokio::test]
async fn check_of_rows_can_not_be_replaced() {
    let (server, mut owner) = accounts().await;
    let parts = "
        create table orders (account_id text, year int) partition by list (year);
        create table orders_1 partition of orders for values in (1);
        select fence.protect('orders', 'account_id')";
    attempt(&mut owner, parts).await.unwrap();
    let grants = format!("{WRITER}; grant all on orders, orders_1 to writer");
    attempt(&mut owner, &grants).await.unwrap();
    let mut writer = session_of(&server, "writer").await;
    attempt(&mut writer, PASS).await.unwrap();
    for table in ["accounts", "orders", "orders_1"] {
        let replaced = attempt(&mut writer, &replace("fence_rows", "update", table)).await;
        assert_eq!(replaced.unwrap_err(), "42710", "{table}: a constraint trigger");
    }
    assert_eq!(attempt(&mut writer, UPDATE).await.unwrap_err(), TOKEN_REQUIRED);
    for write in ["insert into orders values ('alice', 1)", "insert into orders_1 values ('x', 1)"]
    {
        assert_eq!(attempt(&mut writer, write).await.unwrap_err(), TOKEN_REQUIRED);
    }
    let intact = "select bool_and(checks_rows and rejects_truncate) from fence.status";
    assert!(is_true(&mut owner, intact).await);
}

/// The negative control: the first version's trigger is replaced. The next version shows that.
#[tokio::test]
async fn check_of_rows_could_be_replaced_in_the_first_version() {
    let server = Postgres::start().await.unwrap();
    psql(&server.url(), &first_version()).unwrap();
    let mut owner = session(&server).await;
    let setup = format!(
        "create table accounts (account_id text primary key, balance bigint);
         insert into accounts values ('alice', 100);
         select fence.protect('accounts', 'account_id'); {WRITER}"
    );
    attempt(&mut owner, &setup).await.unwrap();
    let mut writer = session_of(&server, "writer").await;
    attempt(&mut writer, PASS).await.unwrap();
    attempt(&mut writer, &replace("fence_rows", "update", "accounts")).await.unwrap();
    attempt(&mut writer, UPDATE).await.unwrap();

    psql(&server.url(), &super::files()).unwrap();
    let shown = "select count(*) from fence.status where not checks_rows and version = 1";
    assert_eq!(number(&mut owner, shown).await, 1);
    attempt(&mut owner, "select fence.protect('accounts', 'account_id')").await.unwrap();
    assert_eq!(attempt(&mut writer, UPDATE).await.unwrap_err(), TOKEN_REQUIRED);
    assert!(is_true(&mut owner, "select checks_rows from fence.status").await);
}

#[tokio::test]
async fn replaced_rejection_of_truncate_is_warned_of_and_shown() {
    let (server, mut owner) = accounts().await;
    attempt(&mut owner, WRITER).await.unwrap();
    let protect = "select fence.protect('accounts', 'account_id')";
    assert!(messages(&server, protect).contains("writer may create triggers on public.accounts"));
    let removable = "select 'writer' = any (removable_by) from fence.status";
    assert!(is_true(&mut owner, removable).await);

    let mut writer = session_of(&server, "writer").await;
    attempt(&mut writer, PASS).await.unwrap();
    attempt(&mut writer, &replace("fence_truncate", "truncate", "accounts")).await.unwrap();
    let shown = "select checks_rows and not rejects_truncate from fence.status";
    assert!(is_true(&mut owner, shown).await);

    attempt(&mut owner, "revoke trigger on accounts from writer").await.unwrap();
    assert_eq!(messages(&server, protect), "");
    let mended = "select checks_rows and rejects_truncate
        and not 'writer' = any (removable_by) from fence.status";
    assert!(is_true(&mut owner, mended).await);
    assert_eq!(attempt(&mut writer, "truncate accounts").await.unwrap_err(), "ZF005");
}

#[tokio::test]
async fn status_shows_what_ought_to_be_protected() {
    let (_server, mut owner) = accounts().await;
    let intact = "select checks_rows and rejects_truncate from fence.status";
    assert!(is_true(&mut owner, intact).await);
    let condition = "
        create or replace function pg_temp.other() returns trigger language plpgsql
            as 'begin return null; end';
        drop trigger fence_rows on accounts;
        create trigger fence_rows after insert or update or delete on accounts
            for each row execute function pg_temp.other();
        alter table accounts enable always trigger fence_rows";
    let body = "
        create or replace function fence_accounts() returns trigger language plpgsql
            as 'begin return null; end'";
    for broken in [
        "drop function fence_accounts cascade",
        body,
        condition,
        "drop trigger fence_rows on accounts",
    ] {
        attempt(&mut owner, broken).await.unwrap();
        let shown = "select not checks_rows from fence.status where resource = 'account_id'";
        assert!(is_true(&mut owner, shown).await, "{broken}");
        attempt(&mut owner, "select fence.protect('accounts', 'account_id')").await.unwrap();
        assert!(is_true(&mut owner, intact).await, "{broken}");
    }
    attempt(&mut owner, "drop table accounts").await.unwrap();
    assert_eq!(number(&mut owner, "select count(*) from fence.status").await, 0);
}
