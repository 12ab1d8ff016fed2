//! The column that names the resource of a row.

use super::{
    MALFORMED, STALE, TOKEN_REQUIRED, attempt, attempt_and_roll_back, fence, is_true, messages,
    number, problem, session,
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
            // A new session compiles the check under its setting, the other under that of the first.
            for session in [&mut database, &mut session(&server).await] {
                let set = format!("set {setting}");
                attempt(session, &set).await.unwrap();
                let stale = "select fence.present(33); update logs set note = 'x'";
                let rejected = attempt(session, stale).await.unwrap_err();
                assert_eq!(rejected, STALE, "{column}: {setting}");
                assert_eq!(problem(session, "logs").await, None, "{setting}");
            }
        }
    }
}

/// Each is computed before the check, also after other triggers have changed what it is made of.
#[tokio::test]
async fn stored_generated_column_serves_for_composite_names() {
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

/// Then rows may belong to other resources, and 33 may be accepted after 34.
#[tokio::test]
async fn status_shows_another_type_until_the_table_is_protected_again() {
    let (server, mut database) = fence().await;
    let setup = "
        create table notes (id integer); insert into notes values (7);
        select fence.protect('notes', 'id'), fence.claim('7', 34)";
    attempt(&mut database, setup).await.unwrap();
    let write = "select fence.present(33); update notes set id = id";
    assert_eq!(attempt(&mut database, write).await.unwrap_err(), STALE);
    let changed = "alter table notes alter id type numeric(10, 2)";
    attempt(&mut database, changed).await.unwrap();
    assert_eq!(problem(&mut database, "notes").await.as_deref(), Some("different"));
    attempt(&mut session(&server).await, write).await.unwrap();
    let other = "select token from fence.fences where resource = '7.00'";
    assert_eq!(number(&mut database, other).await, 33);
    // In sessions that wrote before, the check fails until then.
    assert_eq!(attempt(&mut database, write).await.unwrap_err(), "42804");
    let protect = "select fence.protect('notes', 'id')";
    attempt(&mut session(&server).await, protect).await.unwrap();
    attempt(&mut database, write).await.unwrap();
    assert_eq!(problem(&mut database, "notes").await, None);
    // The text of a timestamp depends on the session.
    for change in ["alter id type timestamptz using now()", "rename id to renamed"] {
        attempt(&mut database, &format!("alter table notes {change}")).await.unwrap();
        assert_eq!(problem(&mut database, "notes").await.as_deref(), Some("different"), "{change}");
    }
}

#[tokio::test]
async fn status_shows_that_a_column_is_generated_in_another_way() {
    let (_server, mut database) = fence().await;
    let table = "
        create table notes (a text, b text, id text generated always as (a || '/' || b) stored);
        select fence.protect('notes', 'id')";
    attempt(&mut database, table).await.unwrap();
    for change in [
        "alter id drop expression",
        "drop id, add id text generated always as (b || '/' || a) stored",
    ] {
        assert_eq!(problem(&mut database, "notes").await, None, "{change}");
        attempt(&mut database, &format!("alter table notes {change}")).await.unwrap();
        assert_eq!(problem(&mut database, "notes").await.as_deref(), Some("different"), "{change}");
        attempt(&mut database, "select fence.protect('notes', 'id')").await.unwrap();
    }
}

/// The text of bytes depends on a setting. The text that is stored in the row is its resource, whatever the
/// settings of a later writer are.
#[tokio::test]
async fn text_that_was_generated_is_the_resource_under_all_settings() {
    let (_server, mut database) = fence().await;
    let setup = r"
        create table notes (key bytea, id text generated always as (key::text) stored);
        insert into notes values ('\x01');
        select fence.protect('notes', 'id'), fence.claim('\x01', 34)";
    attempt(&mut database, setup).await.unwrap();
    for output in ["hex", "escape"] {
        attempt(&mut database, &format!("set bytea_output = {output}")).await.unwrap();
        for write in ["update notes set key = key", "delete from notes"] {
            let stale = format!("select fence.present(33); {write}");
            let rejected = attempt_and_roll_back(&mut database, &stale).await;
            assert_eq!(rejected.unwrap_err(), STALE, "{output}: {write}");
            let valid = format!("select fence.present(34); {write}");
            attempt_and_roll_back(&mut database, &valid).await.expect(&valid);
        }
    }
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
