//! Which tables can be protected, and what the views show.

use super::{
    STALE, TOKEN_REQUIRED, accounts, attempt, attempt_and_roll_back, messages, number, problem,
};

#[tokio::test]
async fn mistakes_are_found_when_the_table_is_protected() {
    let (server, mut database) = accounts().await;
    let setup = r#"
        create view seen as select * from accounts;
        create materialized view kept as select * from accounts;
        create table parent (id text); create table child () inherits (parent);
        create table whole (id text) partition by list (id);
        create table part partition of whole for values in ('a');
        create sequence numbers; create temp table passing (id text);
        create domain word as text;
        create table odd (
            gone text, "Key" text, day date, at timestamptz, digest bytea, price real, doc json,
            words text[], word word, c "char", virtual text generated always as ('x') stored);
        alter table odd drop column gone;
        set allow_system_table_mods = on;
        update pg_attribute set attgenerated = 'v' where attname = 'virtual';
        reset allow_system_table_mods"#;
    attempt(&mut database, setup).await.unwrap();
    for (table, column, expected) in [
        ("seen", "account_id", "42809"),
        ("kept", "account_id", "42809"),
        ("numbers", "last_value", "42809"),
        ("parent", "id", "42809"),
        ("passing", "id", "42809"),
        ("part", "id", "42809"),
        ("pg_catalog.pg_description", "description", "42501"),
        ("fence.fence", "resource", "42809"),
        ("accounts", "no_such_column", "22023"),
        ("accounts", "new.account_id", "22023"),
        ("accounts", "ctid", "22023"),
        ("accounts", "account_id)::text; drop table accounts; --", "22023"),
        ("accounts", "'order/' || account_id", "22023"),
        ("accounts", "", "22023"),
        ("accounts", " account_id", "22023"),
        ("odd", "key", "22023"),
        ("odd", "\"Key\"", "22023"),
        ("odd", "........pg.dropped.1........", "22023"),
        ("odd", "day", "22023"),
        ("odd", "at", "22023"),
        ("odd", "digest", "22023"),
        ("odd", "price", "22023"),
        ("odd", "doc", "22023"),
        ("odd", "words", "22023"),
        ("odd", "word", "22023"),
        ("odd", "c", "22023"),
        ("odd", "virtual", "22023"),
    ] {
        let protect = format!("select fence.protect('{table}', $${column}$$)");
        let rejected = attempt(&mut database, &protect).await;
        assert_eq!(rejected.unwrap_err(), expected, "{table}, {column}");
    }
    for missing in
        ["null, 'account_id'", "'accounts', null", "'accounts', 'account_id', prefix => null"]
    {
        let protect = format!("select fence.protect({missing})");
        assert_eq!(attempt(&mut database, &protect).await.unwrap_err(), "22004", "{missing}");
    }
    for prefix in ["repeat('x', 512)", "repeat('ż', 256)"] {
        let protect = format!("select fence.protect('accounts', 'account_id', prefix => {prefix})");
        assert_eq!(attempt(&mut database, &protect).await.unwrap_err(), "22023", "{prefix}");
    }
    for (column, said) in [
        ("at", "the column 'at' of public.odd has the type timestamp with time zone"),
        ("virtual", "is a virtual generated column"),
        ("\"Key\"", "the column '\"Key\"' of public.odd does not exist"),
        ("at", "add a stored generated column of type text"),
        ("\"Key\"", "exactly and without quotes"),
    ] {
        let printed = messages(&server, &format!("select fence.protect('odd', '{column}')"));
        assert!(printed.contains(said), "{printed}");
    }
    attempt(&mut database, "select fence.protect('odd', 'Key')").await.unwrap();
    // The table that was protected before still is.
    let update = "update accounts set balance = 7 where account_id = 'alice'";
    assert_eq!(attempt(&mut database, update).await.unwrap_err(), TOKEN_REQUIRED);
    let not_protected = "select fence.unprotect('parent')";
    assert_eq!(attempt(&mut database, not_protected).await.unwrap_err(), "42704");
}

#[tokio::test]
async fn protecting_again_replaces_the_prefix() {
    let (_server, mut database) = accounts().await;
    let protect = "select fence.protect('accounts', 'account_id', prefix => 'account/')";
    attempt(&mut database, protect).await.unwrap();
    let update = "update accounts set balance = 7 where account_id = 'alice'";
    let before = format!("select fence.claim('alice', 34, 'a'); {update}");
    assert_eq!(attempt(&mut database, &before).await.unwrap_err(), TOKEN_REQUIRED);
    let after = format!("select fence.claim('account/alice', 1); {update}");
    attempt(&mut database, &after).await.unwrap();

    attempt(&mut database, "select fence.unprotect('accounts')").await.unwrap();
    attempt(&mut database, update).await.unwrap();
    attempt_and_roll_back(&mut database, "truncate accounts").await.unwrap();
    let left = "
        select count(*) from pg_proc, pg_class c
        where proname like 'fence%' and pronamespace = c.relnamespace and c.oid = 'accounts'::regclass";
    assert_eq!(number(&mut database, left).await, 0);
    // The fences stay.
    let stale = "select fence.claim('alice', 33, 'a')";
    assert_eq!(attempt(&mut database, stale).await.unwrap_err(), STALE);
}

#[tokio::test]
async fn table_with_the_name_of_an_earlier_one_can_be_protected() {
    let (_server, mut database) = accounts().await;
    let table = "
        create table accounts (account_id text primary key, balance bigint not null default 0);
        select fence.protect('accounts', 'account_id')";
    for away in ["drop table accounts", "alter table accounts rename to earlier"] {
        attempt(&mut database, away).await.unwrap();
        attempt(&mut database, table).await.unwrap();
        let insert = "insert into accounts values ('alice')";
        assert_eq!(attempt(&mut database, insert).await.unwrap_err(), TOKEN_REQUIRED);
    }
    let insert = "insert into earlier values ('alice')";
    assert_eq!(attempt(&mut database, insert).await.unwrap_err(), TOKEN_REQUIRED);

    // The names of functions are cut at 63 bytes.
    let long = "x".repeat(62);
    for table in [format!("{long}1"), format!("{long}2")] {
        let protect =
            format!("create table {table} (id text); select fence.protect('{table}', 'id')");
        attempt(&mut database, &protect).await.unwrap();
    }
    for table in [format!("{long}1"), format!("{long}2")] {
        let insert = format!("insert into {table} values ('alice')");
        assert_eq!(attempt(&mut database, &insert).await.unwrap_err(), TOKEN_REQUIRED);
        attempt(&mut database, &format!("select fence.unprotect('{table}')")).await.unwrap();
        attempt(&mut database, &insert).await.unwrap();
    }
}

#[tokio::test]
async fn status_shows_what_was_disabled() {
    let (_server, mut database) = accounts().await;
    let stale = "
        select fence.present(33, 'a'); update accounts set balance = 7 where account_id = 'alice'";
    for (change, expected) in [
        ("select 1", None),
        ("alter table accounts disable trigger fence_truncate", Some("truncate")),
        ("alter table accounts disable trigger fence_rows", Some("different")),
        // Not in every session.
        ("alter table accounts enable trigger all", Some("different")),
        ("select fence.protect('accounts', 'account_id')", None),
    ] {
        attempt(&mut database, change).await.unwrap();
        assert_eq!(problem(&mut database, "accounts").await.as_deref(), expected, "{change}");
        if change.contains("disable trigger fence_rows") {
            attempt_and_roll_back(&mut database, stale).await.unwrap();
        }
    }
    assert_eq!(attempt(&mut database, stale).await.unwrap_err(), STALE);
}
