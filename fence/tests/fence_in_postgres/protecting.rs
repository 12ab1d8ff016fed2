//! Which tables can be protected, by which columns, and what the views show.

use super::{
    MALFORMED, STALE, TOKEN_REQUIRED, accounts, attempt, attempt_and_roll_back, fence, is_true,
    messages, number, problem, session,
};

#[tokio::test]
async fn resource_is_the_text_of_a_column_after_the_prefix() {
    let (_server, mut database) = fence().await;
    let setup = r#"
        create table "Odd ""Table""" (
            id bigint, "Key" varchar(9), key text, "user" text, old text, resource_before text,
            "%s" text, "it's ""$body$""" text, ref uuid, price numeric(9, 2), tag char(9))"#;
    attempt(&mut database, setup).await.unwrap();
    for (column, text) in [
        ("id", "7"),
        ("Key", "k"),
        ("key", "lower"),
        ("user", "u"),
        ("old", "o"),
        ("resource_before", "b"),
        ("%s", "percent"),
        (r#"it's "$body$""#, "quotes"),
        ("ref", "00000000-0000-0000-0000-00000000000a"),
        ("price", "7.00"),
        ("tag", "red"),
    ] {
        for prefix in ["", "order/", r"\b'%s%1$I' || old.key --$body$$/*", "\n\\'"] {
            let protect = format!(
                r#"select fence.protect('"Odd ""Table"""', $it${column}$it$, prefix => $it${prefix}$it$)"#
            );
            attempt(&mut database, &protect).await.expect(&protect);
            let shown = format!(
                "select problem is null and (resource_column, prefix) = ($it${column}$it$, $it${prefix}$it$)
                 from fence.status"
            );
            assert!(is_true(&mut database, &shown).await, "{protect}");

            let insert = r#"
                insert into "Odd ""Table""" values (
                    7, 'k', 'lower', 'u', 'o', 'b', 'percent', 'quotes',
                    '00000000-0000-0000-0000-00000000000a', 7, 'red')"#;
            let valid = format!("select fence.claim($it${prefix}{text}$it$, 34); {insert}");
            attempt_and_roll_back(&mut database, &valid).await.expect(&protect);
            let other = format!("select fence.claim($it${prefix}{text}.$it$, 34); {insert}");
            let rejected = attempt_and_roll_back(&mut database, &other).await;
            assert_eq!(rejected.unwrap_err(), TOKEN_REQUIRED, "{protect}");
        }
    }
}

/// `user` without quotes would be the current user.
#[tokio::test]
async fn every_keyword_can_be_the_name_of_the_column() {
    let (_server, mut database) = fence().await;
    let try_all = "
        do $$
        declare
            keyword text;
        begin
            for keyword in select word from pg_get_keywords() loop
                execute format('create table notes (%I text)', keyword);
                perform fence.protect('notes', keyword), fence.claim(keyword, 34);
                execute format('insert into notes values (%L)', keyword);
                execute 'delete from notes';
                begin
                    insert into notes values ('other');
                    raise 'notes is not protected by %', keyword;
                exception when sqlstate 'ZF004' then null;
                end;
                drop table notes; drop function fence_notes();
            end loop;
        end
        $$";
    attempt(&mut database, try_all).await.unwrap();
}

/// Otherwise two sessions would write the same row under two fences, and neither would be rejected.
#[tokio::test]
async fn resource_does_not_depend_on_the_sessions_settings() {
    let (server, mut database) = fence().await;
    let setup = r"
        create table logs (id numeric(9, 2), name text, note text);
        insert into logs values (1234567.5, 'a\b', '');
        select fence.claim(e'a\\b''$$1234567.50', 34), fence.claim(e'a\\b''$$a\\b', 34)";
    attempt(&mut database, setup).await.unwrap();
    for column in ["id", "name"] {
        let protect = format!("select fence.protect('logs', '{column}', prefix => e'a\\\\b''$$')");
        attempt(&mut database, &protect).await.unwrap();
        for setting in [
            "standard_conforming_strings = off",
            "transform_null_equals = on",
            "quote_all_identifiers = on",
            "lc_numeric = 'C.UTF-8'",
            "extra_float_digits = -15",
            "datestyle = 'German'",
            "bytea_output = 'escape'",
        ] {
            // A new session compiles the check under its setting.
            for mut session in [session(&server).await, session(&server).await] {
                let stale =
                    format!("set {setting}; select fence.present(33); update logs set note = 'x'");
                let rejected = attempt(&mut session, &stale).await.unwrap_err();
                assert_eq!(rejected, STALE, "{column}: {setting}");
                attempt(&mut session, &format!("set {setting}")).await.unwrap();
                assert_eq!(problem(&mut session, "logs").await, None, "{setting}");
            }
        }
    }
}

/// It is computed before the check, also after other triggers have changed what it is made of.
#[tokio::test]
async fn stored_generated_column_serves_for_all_other_values() {
    let (_server, mut database) = fence().await;
    let setup = "
        create table entries (
            tenant text, kind int, note text,
            resource text generated always as (tenant || '/' || kind) stored);
        insert into entries values ('a', 1);
        select fence.protect('entries', 'resource'), fence.claim('a/1', 34), fence.claim('b/1', 50)";
    attempt(&mut database, setup).await.unwrap();
    let moved = "update entries set tenant = 'b'";
    let insert = "insert into entries values ('a', 1)";
    let both = "select fence.claim('a/1', 34), fence.claim('b/1', 50)";
    for (claims, write, expected) in [
        ("select 1", insert, Err(TOKEN_REQUIRED)),
        ("select fence.present(33)", insert, Err(STALE)),
        ("select fence.claim('a/1', 34)", insert, Ok(())),
        ("select fence.claim('a/1', 34)", "update entries set note = 'x'", Ok(())),
        ("select fence.claim('a/1', 34)", moved, Err(TOKEN_REQUIRED)),
        ("select fence.claim('b/1', 50)", moved, Err(TOKEN_REQUIRED)),
        (both, moved, Ok(())),
        ("select fence.claim('a/1', 34)", "delete from entries", Ok(())),
    ] {
        let done = attempt_and_roll_back(&mut database, &format!("{claims}; {write}")).await;
        let done = done.as_ref().map(|_| ()).map_err(String::as_str);
        assert_eq!(done, expected, "{claims}; {write}");
    }
    let mover = "
        create function move() returns trigger language plpgsql
            as $$ begin new.tenant = 'b'; return new; end $$;
        create trigger zz_move before insert or update on entries for each row execute function move()";
    attempt(&mut database, mover).await.unwrap();
    for write in [insert, "update entries set note = 'x'"] {
        let one = format!("select fence.claim('a/1', 34); {write}");
        let rejected = attempt_and_roll_back(&mut database, &one).await;
        assert_eq!(rejected.unwrap_err(), TOKEN_REQUIRED, "{write}");
        attempt_and_roll_back(&mut database, &format!("{both}; {write}")).await.expect(write);
    }
}

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
        ("pg_catalog.pg_class", "relname", "22023"),
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

/// As the README says.
#[tokio::test]
async fn row_without_a_valid_resource_can_not_be_changed() {
    let (server, mut database) = fence().await;
    let table = "
        create table notes (id text);
        insert into notes values (null), (''), (repeat('x', 513));
        select fence.protect('notes', 'id'), fence.claim('x', 34)";
    attempt(&mut database, table).await.unwrap();
    for (row, said) in [
        ("id is null", "the resource is malformed: it is null"),
        ("id = ''", "the resource is malformed: it has 0 bytes"),
        ("length(id) > 1", "the resource is malformed: it has 513 bytes"),
    ] {
        for write in ["delete from notes", "update notes set id = 'x'"] {
            for offer in ["fence.present(34)", "fence.claim('x', 34)"] {
                let write = format!("begin; select {offer}; {write} where {row}; commit");
                assert_eq!(attempt(&mut database, &write).await.unwrap_err(), MALFORMED, "{write}");
                attempt(&mut database, "rollback").await.unwrap();
                let printed = messages(&server, &write);
                assert!(printed.contains(said) && printed.contains("fence_notes()"), "{printed}");
            }
        }
    }
    // The negative control.
    attempt(&mut database, "select fence.unprotect('notes'); delete from notes").await.unwrap();
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
    // The text of a timestamp depends on the session.
    for change in ["alter id type timestamptz using now()", "rename id to renamed"] {
        attempt(&mut database, &format!("alter table notes {change}")).await.unwrap();
        assert_eq!(problem(&mut database, "notes").await.as_deref(), Some("different"), "{change}");
    }
}
