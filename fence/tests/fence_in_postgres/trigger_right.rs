//! The right TRIGGER, which `grant all` includes.

use super::{
    TOKEN_REQUIRED, accounts, attempt, is_true, messages, number, problem,
    roles::{UPDATE, WRITER},
    session_of,
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
    let intact = "select bool_and(problem is null) from fence.status";
    assert!(is_true(&mut owner, intact).await);
}

/// The negative control: a trigger that is no constraint is replaced.
#[tokio::test]
async fn another_check_of_rows_can_be_replaced() {
    let (server, mut owner) = accounts().await;
    let own = "
        create table notes (account_id text); insert into notes values ('alice');
        create function check_notes() returns trigger language plpgsql
            as 'begin perform fence.verify(new.account_id); return null; end';
        create trigger fence_rows after update on notes
            for each row execute function check_notes();";
    attempt(&mut owner, &format!("{WRITER} {own} grant all on notes to writer")).await.unwrap();
    let mut writer = session_of(&server, "writer").await;
    let update = "update notes set account_id = 'alice'";
    assert_eq!(attempt(&mut writer, update).await.unwrap_err(), TOKEN_REQUIRED);
    attempt(&mut writer, PASS).await.unwrap();
    attempt(&mut writer, &replace("fence_rows", "update", "notes")).await.unwrap();
    attempt(&mut writer, update).await.unwrap();
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
    assert_eq!(problem(&mut owner, "accounts").await.as_deref(), Some("truncate"));

    // Its code runs as the role that truncates.
    let code = "
        create or replace function pg_temp.pass() returns trigger language plpgsql
        as 'begin raise sqlstate ''EV001'' using message = current_user; end'";
    attempt(&mut writer, code).await.unwrap();
    let truncate = sqlx::query("truncate accounts").execute(&mut owner).await.unwrap_err();
    assert_eq!(truncate.as_database_error().unwrap().message(), "postgres");

    attempt(&mut owner, "revoke trigger on accounts from writer").await.unwrap();
    assert_eq!(messages(&server, protect), "");
    assert_eq!(problem(&mut owner, "accounts").await, None);
    assert!(!is_true(&mut owner, removable).await);
    assert_eq!(attempt(&mut writer, "truncate accounts").await.unwrap_err(), "ZF005");
}

#[tokio::test]
async fn status_shows_what_ought_to_be_protected() {
    let (_server, mut owner) = accounts().await;
    assert_eq!(problem(&mut owner, "accounts").await, None);
    let replaced = "
        create or replace function pg_temp.other() returns trigger language plpgsql
            as 'begin return null; end';
        drop trigger fence_rows on accounts;
        create trigger fence_rows after insert or update or delete on accounts
            for each row execute function pg_temp.other();
        alter table accounts enable always trigger fence_rows";
    let body = "
        create or replace function fence_accounts() returns trigger language plpgsql
            as 'begin return null; end'";
    let settings = "alter function fence_accounts() set search_path = public";
    let definer = "alter function fence_accounts() security definer";
    // Another role could replace it.
    let no_constraint = "
        drop trigger fence_rows on accounts;
        create trigger fence_rows after insert or update or delete on accounts
            for each row execute function fence_accounts('account_id');
        alter table accounts enable always trigger fence_rows";
    for (broken, expected) in [
        ("drop function fence_accounts cascade", "missing"),
        ("drop trigger fence_rows on accounts", "missing"),
        (settings, "different"),
        (no_constraint, "different"),
        (definer, "different"),
        (replaced, "different"),
        (body, "different"),
    ] {
        attempt(&mut owner, broken).await.unwrap();
        assert_eq!(problem(&mut owner, "accounts").await.as_deref(), Some(expected), "{broken}");
        attempt(&mut owner, "select fence.protect('accounts', 'account_id')").await.unwrap();
        assert_eq!(problem(&mut owner, "accounts").await, None, "{broken}");
    }
    // A trigger of that name with arguments that are no text stops nothing.
    let other = "
        create table notes (id text);
        create function note() returns trigger language plpgsql as 'begin return null; end';
        create trigger fence_rows after insert on notes for each row execute function note('a', 'b')";
    attempt(&mut owner, other).await.unwrap();
    assert_eq!(problem(&mut owner, "accounts").await, None);
    attempt(&mut owner, "drop table accounts").await.unwrap();
    assert_eq!(number(&mut owner, "select count(*) from fence.status").await, 0);
}

/// The check can't see it, so the README says to revoke the right, and the status who has it.
#[tokio::test]
async fn before_trigger_of_another_role_changes_rows_inside_a_claim() {
    let (server, mut owner) = accounts().await;
    attempt(&mut owner, WRITER).await.unwrap();
    let mut writer = session_of(&server, "writer").await;
    let meddle = "
        create function meddle() returns trigger language plpgsql
            as 'begin new.balance = -1; return new; end';
        create trigger meddle before update on accounts
            for each row execute function meddle()";
    attempt(&mut writer, meddle).await.unwrap();
    attempt(&mut owner, &format!("select fence.claim('alice', 34, 'a'); {UPDATE}")).await.unwrap();
    let balance = "select balance from accounts where account_id = 'alice'";
    assert_eq!(number(&mut owner, balance).await, -1);
    let removable = "select 'writer' = any (removable_by) from fence.status";
    assert!(is_true(&mut owner, removable).await);
}
