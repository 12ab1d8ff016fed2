//! Which tables can be protected, by which expressions, and what the views show.

use super::{
    MALFORMED, STALE, TOKEN_REQUIRED, accounts, attempt, attempt_and_roll_back, fence, is_true,
    messages, number, problem, session,
};

#[tokio::test]
async fn resource_is_any_expression_over_the_row() {
    let (_server, mut database) = fence().await;
    let setup = r#"
        create type kind as enum ('red');
        create table "Odd ""Table""" (
            id bigint, "Key" text, kind kind, day date, at timestamptz, digest bytea,
            old text, resource_before text, key text, "user" text, "%s" text
        );"#;
    attempt(&mut database, setup).await.unwrap();
    for (expression, resource) in [
        ("id", "7"),
        ("'order/' || id", "order/7"),
        (r#""Key""#, "k"),
        (r#""Odd ""Table"""."Key""#, "k"),
        (r#"'it''s ' || "Key" -- a comment"#, "it''s k"),
        ("format('%s%%/%s', kind, id)", "red%/7"),
        (r#"e'back\\slash' || id"#, r"back\slash7"),
        ("key", "lower"),
        ("Key", "lower"),
        (r#""user""#, "u"),
        (r#""%s""#, "percent"),
        (r#""%s" || '%'"#, "percent%"),
        ("resource_before", "b"),
        ("old", "o"),
        ("case when id > 5 then 'large' else 'small' end", "large"),
        ("(select max(word) from unnest(array['x', kind::text]) as word)", "x"),
        ("day", "2026-01-02"),
        ("at", "2026-01-02 03:04:05+00"),
        ("digest", r"\xff00"),
    ] {
        let protect = format!(
            r#"select fence.protect('"Odd ""Table"""', $expression${expression}$expression$)"#
        );
        attempt(&mut database, &protect).await.expect(expression);
        let report =
            format!("select resource = $expression${expression}$expression$ from fence.status");
        assert!(is_true(&mut database, &report).await, "{expression}");

        let insert = r#"
            insert into "Odd ""Table""" values (
                7, 'k', 'red', '2026-01-02', '2026-01-02 03:04:05Z', '\xff00', 'o', 'b',
                'lower', 'u', 'percent')"#;
        let valid = format!("select fence.claim('{resource}', 34); {insert}");
        attempt_and_roll_back(&mut database, &valid).await.expect(expression);
        let other = format!("select fence.claim('{resource}.', 34); {insert}");
        let rejected = attempt_and_roll_back(&mut database, &other).await;
        assert_eq!(rejected.unwrap_err(), TOKEN_REQUIRED, "{expression}");
    }
}

/// Otherwise two sessions would write the same row under two fences, and neither would be rejected.
#[tokio::test]
async fn resource_does_not_depend_on_the_sessions_settings() {
    let (_server, mut database) = fence().await;
    let setup = "
        create table logs (day date, at timestamptz, digest bytea);
        select fence.protect('logs', $$day || '/' || at || '/' || digest::text$$);
        select fence.present(34, 'a');
        insert into logs values ('2026-01-02', '2026-01-02 03:04:05Z', '\\xff00');";
    attempt(&mut database, setup).await.unwrap();
    let text = "select count(distinct day || '/' || at || '/' || digest::text) from logs";
    assert_eq!(number(&mut database, text).await, 1);
    let parsed = r"
        create table paths (path text, kind text);
        insert into paths values ('alicess', null);
        select fence.protect('paths', $$regexp_replace(path, '\s', '', 'g')
            || case when kind = null then '/none' else '' end$$)";
    attempt(&mut database, parsed).await.unwrap();
    let settings = [
        "set standard_conforming_strings = off",
        "set transform_null_equals = on",
        "set quote_all_identifiers = on",
        "set datestyle = 'German'",
        "set timezone = 'Asia/Shanghai'",
        "set bytea_output = 'escape'",
        "set intervalstyle = 'iso_8601'",
    ];
    for setting in settings {
        attempt(&mut database, setting).await.unwrap();
        let stale = "select fence.present(33, 'b'); delete from logs";
        assert_eq!(attempt(&mut database, stale).await.unwrap_err(), STALE, "{setting}");
        for other in ["alice", "alicess/none"] {
            let other = format!("select fence.claim('{other}', 1); delete from paths");
            let rejected = attempt_and_roll_back(&mut database, &other).await;
            assert_eq!(rejected.unwrap_err(), TOKEN_REQUIRED, "{setting}: {other}");
        }
        assert_eq!(problem(&mut database, "paths").await, None, "{setting}");
    }
}

#[tokio::test]
async fn mistakes_are_found_when_the_table_is_protected() {
    let (_server, mut database) = accounts().await;
    let setup = "
        create view seen as select * from accounts;
        create materialized view kept as select * from accounts;
        create table parent (id text); create table child () inherits (parent);
        create table whole (id text) partition by list (id);
        create table part partition of whole for values in ('a');
        create sequence numbers; create temp table passing (id text);";
    attempt(&mut database, setup).await.unwrap();
    for (table, expression, expected) in [
        ("seen", "account_id", "42809"),
        ("kept", "account_id", "42809"),
        ("numbers", "last_value", "42809"),
        ("parent", "id", "42809"),
        ("passing", "id", "42809"),
        ("part", "id", "42809"),
        ("pg_catalog.pg_class", "relname", "42501"),
        ("accounts", "no_such_column", "42703"),
        ("accounts", "new.account_id", "42P01"),
        ("accounts", "tg_op", "42703"),
        ("accounts", "ctid", "42703"),
        ("accounts", "account_id)::text; drop table accounts; --", "42601"),
        ("accounts", "", "22004"),
        ("fence.fence", "resource", "42809"),
    ] {
        let protect = format!("select fence.protect('{table}', $$ {expression} $$)");
        let rejected = attempt(&mut database, &protect).await;
        assert_eq!(rejected.unwrap_err(), expected, "{table}, {expression}");
    }
    // The table that was protected before still is.
    let update = "update accounts set balance = 7 where account_id = 'alice'";
    assert_eq!(attempt(&mut database, update).await.unwrap_err(), TOKEN_REQUIRED);
    let not_protected = "select fence.unprotect('parent')";
    assert_eq!(attempt(&mut database, not_protected).await.unwrap_err(), "42704");
}

#[tokio::test]
async fn protecting_again_replaces_the_expression() {
    let (_server, mut database) = accounts().await;
    let protect = "select fence.protect('accounts', $$'account/' || account_id$$)";
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

/// Neither in a new session, nor in one that has already planned the checks. There, PostgreSQL may
/// keep the plan, or fail.
#[tokio::test]
async fn changed_columns_never_open_the_table() {
    let (server, mut database) = fence().await;
    let setup = "
        create table notes (gone int, account_id text, other text);
        select fence.protect('notes', 'account_id');
        select fence.present(34, 'a'); insert into notes values (1, 'alice', 'x');";
    attempt(&mut database, setup).await.unwrap();
    let no_column = "42703";
    for (change, expected) in [
        ("select 1", STALE),
        ("alter table notes add column more int default 7", STALE),
        ("alter table notes drop column gone", STALE),
        (
            "alter table notes rename column other to another; alter table notes add column other text",
            STALE,
        ),
        ("alter table notes alter column account_id type varchar(40)", STALE),
        ("alter table notes rename column account_id to renamed", no_column),
        ("alter table notes drop column renamed", no_column),
        // A column of that name that has no value names no resource.
        ("alter table notes add column account_id text", MALFORMED),
    ] {
        attempt(&mut database, change).await.unwrap();
        let stale = "select fence.present(33, 'a'); update notes set other = 'y'";
        let rejected = attempt(&mut database, stale).await.unwrap_err();
        let goes_on = [expected, STALE, MALFORMED, no_column, "42804"];
        assert!(goes_on.contains(&rejected.as_str()), "{change}: {rejected}");

        let mut new = session(&server).await;
        assert_eq!(attempt(&mut new, stale).await.unwrap_err(), expected, "{change}");
        let valid = "select fence.present(34, 'a'); update notes set other = 'y'";
        let done = attempt(&mut new, valid).await.map(|_| STALE.to_owned());
        assert_eq!(done.unwrap_or_else(|code| code), expected, "{change}");
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

#[tokio::test]
async fn rows_without_a_valid_resource_are_counted() {
    let (server, mut owner) = fence().await;
    let table = "
        create table notes (id text);
        insert into notes values ('x'), (null), (''), (repeat('x', 513))";
    attempt(&mut owner, table).await.unwrap();
    let protect = "select fence.protect('notes', 'id')";
    let warned = messages(&server, protect);
    assert!(warned.contains("3 of the rows of public.notes have no valid resource"), "{warned}");
    attempt(&mut owner, "select fence.unprotect('notes'); delete from notes").await.unwrap();
    assert_eq!(messages(&server, protect), "");
}

/// Without quotes, `user` is the current user, and not a column.
#[tokio::test]
async fn column_that_is_a_keyword_is_rejected_without_quotes() {
    let (server, mut database) = fence().await;
    let table = r#"create table notes ("user" text)"#;
    attempt(&mut database, table).await.unwrap();
    for bare in ["user", "USER"] {
        let protect = format!("select fence.protect('notes', '{bare}')");
        assert_eq!(attempt(&mut database, &protect).await.unwrap_err(), "22023", "{bare}");
        let printed = messages(&server, &protect);
        assert!(printed.contains(r#"the column must be quoted: "user""#), "{printed}");
    }
    attempt(&mut database, r#"select fence.protect('notes', '"user"')"#).await.unwrap();
    let insert = "select fence.claim('alice', 34); insert into notes values ('alice')";
    attempt(&mut database, insert).await.unwrap();
}

/// As the README says: `fence.protect` can't know.
#[tokio::test]
async fn another_type_of_the_column_asks_another_fence() {
    let (server, mut database) = fence().await;
    let setup = "
        create table notes (id integer); insert into notes values (7);
        select fence.protect('notes', 'id'), fence.claim('7', 34)";
    attempt(&mut database, setup).await.unwrap();
    let write = "select fence.present(33); update notes set id = id";
    assert_eq!(attempt(&mut database, write).await.unwrap_err(), STALE);
    let changed = "alter table notes alter id type numeric(10, 2)";
    attempt(&mut database, changed).await.unwrap();
    // In sessions that wrote before, the check fails.
    assert_eq!(attempt(&mut database, write).await.unwrap_err(), "42804");
    attempt(&mut session(&server).await, write).await.unwrap();
    let other = "select token from fence.fences where resource = '7.00'";
    assert_eq!(number(&mut database, other).await, 33);
    assert_eq!(problem(&mut database, "notes").await, None);
}
