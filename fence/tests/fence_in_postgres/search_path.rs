//! A caller's search path can't change what the fence does.

use std::fs;

use sqlx::PgConnection;

use super::{
    HOLDER_CONFLICT, STALE, TOKEN_REQUIRED, accounts, attempt, attempt_and_roll_back, files,
    is_true, number, roles::WRITER, session, session_of,
};

/// Shadows the functions that the fence uses, in the caller's own schema and among its temporary
/// objects. Each shadow fails with EV001 when it is used.
async fn shadow_everything(writer: &mut PgConnection) {
    attempt(writer, "create schema evil").await.unwrap();
    let fails = "language plpgsql as
        $$ begin raise sqlstate 'EV001' using message = 'as ' operator(pg_catalog.||) current_user; end $$";
    let catalog = "text bigint int xid8 xid oid name regclass bool bytea jsonb".split(' ');
    for of in catalog.clone() {
        for and in catalog.clone() {
            let mut shadows = String::new();
            for (place, operator) in
                ["=", "<>", "<", ">", "<=", ">=", "~", "||", "~~", "+", "-"].iter().enumerate()
            {
                let returns = if place < 7 { "pg_catalog.bool" } else { "pg_catalog.text" };
                shadows += &format!(
                    "create function evil.op_{place}(pg_catalog.{of}, pg_catalog.{and})
                     returns {returns} {fails};
                     create operator evil.{operator} (
                        leftarg = pg_catalog.{of}, rightarg = pg_catalog.{and},
                        function = evil.op_{place});",
                    of = if of == "bigint" {
                        "int8"
                    } else if of == "int" {
                        "int4"
                    } else {
                        of
                    },
                    and = if and == "bigint" {
                        "int8"
                    } else if and == "int" {
                        "int4"
                    } else {
                        and
                    },
                );
            }
            attempt(writer, &shadows).await.unwrap();
        }
    }
    let mut shadows = String::new();
    for function in [
        "set_config(text, text, bool)",
        "current_setting(text)",
        "current_setting(text, bool)",
        "pg_current_xact_id()",
        "format(text, text)",
        "format(text, text, text)",
        "format(text, variadic text[])",
        "json_build_object(text, text)",
        "json_build_object(text, int8)",
        "json_build_object(variadic text[])",
        "age(xid)",
        "octet_length(text)",
        "left(text, int4)",
        "length(text)",
        "rtrim(bytea, bytea)",
        "text(xid8)",
        "xid(xid8)",
        "int8(text)",
        "bool(text)",
        "accepts(int8, text, int8, text)",
        "claim_or_reject(text, int8, text)",
        "reject_malformed(text, text, int8)",
        "verify(text)",
        "report(regclass, text, text, text)",
        "is_written_here(xid8, xid)",
        "trigger_body(text, text, text)",
        "problem_of_column(regclass, text)",
        "string_to_array(text, text)",
        "pg_partition_tree(regclass)",
    ] {
        shadows += &format!("create function evil.{function} returns text {fails};");
    }
    shadows += &format!("create function evil.fail(text) returns bool {fails};");
    attempt(writer, &shadows).await.unwrap();

    let mut shadows = String::new();
    for schema in ["evil", "pg_temp"] {
        for name in ["text", "bool", "boolean", "int8", "bigint", "xid", "xid8", "name", "void"] {
            shadows += &format!(
                "create domain {schema}.\"{name}\" as pg_catalog.text
                     check (evil.fail(value::pg_catalog.text) is null);"
            );
        }
        for relation in ["fence", "accounts", "status", "pg_class", "pg_trigger", "pg_proc"] {
            shadows += &format!("create table {schema}.{relation} (nothing pg_catalog.int4);");
        }
    }
    shadows += "create collation evil.\"C\" from pg_catalog.\"POSIX\";";
    attempt(writer, &shadows).await.unwrap();
}

#[tokio::test]
async fn nothing_that_the_caller_puts_in_the_search_path_is_used() {
    let (server, mut owner) = accounts().await;
    attempt(&mut owner, WRITER).await.unwrap();
    shadow_everything(&mut session_of(&server, "writer").await).await;
    attempt(&mut owner, "grant usage on schema evil to public").await.unwrap();

    let paths =
        ["evil, pg_catalog", "pg_temp, evil, pg_catalog", "evil, fence, pg_temp, pg_catalog"];
    for path in paths {
        for role in ["writer", "postgres"] {
            // A new session each, as functions are compiled once.
            let mut writer = session_of(&server, role).await;
            let temporary = "
                create temp table fence (nothing pg_catalog.int4);
                create temp table accounts (nothing pg_catalog.int4);
                create domain pg_temp.text as pg_catalog.text check (evil.fail(value) is null);
                create domain pg_temp.bool as pg_catalog.bool check (evil.fail('') is null);
                create domain pg_temp.int8 as pg_catalog.int8 check (evil.fail('') is null);
                create domain pg_temp.xid as pg_catalog.text check (evil.fail(value) is null);";
            attempt(&mut writer, temporary).await.unwrap();
            attempt(&mut writer, &format!("set search_path = {path}")).await.unwrap();

            // The negative control: what names no schema does use them.
            for used in [
                "select 'a'::pg_catalog.text = 'b'::pg_catalog.text",
                "select 1::pg_catalog.int8 > 2::pg_catalog.int8",
                "select pg_current_xact_id()",
                "select 'a'::text",
            ] {
                assert_eq!(attempt(&mut writer, used).await.unwrap_err(), "EV001", "{used}");
            }

            let update = "
                update public.accounts set balance = 7
                where account_id operator(pg_catalog.=) 'alice'";
            let insert = "insert into public.accounts values ('carol')";
            for (before, write, expected) in [
                ("", update, Err(TOKEN_REQUIRED)),
                ("select fence.present(33, 'a');", update, Err(STALE)),
                ("select fence.present(34, 'b');", update, Err(HOLDER_CONFLICT)),
                ("select fence.present(34, 'a');", update, Ok(())),
                ("select fence.present(0, 'a');", insert, Err("ZF003")),
                ("select fence.present(null, 'a');", insert, Err("ZF003")),
                ("select fence.present(1, 'a');", insert, Ok(())),
                ("select fence.claim('alice', 33, 'a');", "", Err(STALE)),
                ("select fence.claim('alice', 34, 'b');", "", Err(HOLDER_CONFLICT)),
                ("select fence.claim('alice', 34, 'a');", update, Ok(())),
                ("select fence.claim('alice', 35, 'b');", update, Ok(())),
                (
                    "select fence.claim('bob', 1), fence.claim('bob', 1);",
                    update,
                    Err(TOKEN_REQUIRED),
                ),
                ("select fence.claim('', 1);", update, Err("ZF003")),
                ("", "truncate public.accounts", Err("ZF005")),
            ] {
                let done = attempt_and_roll_back(&mut writer, &format!("{before}{write}")).await;
                let done = done.as_ref().map(|_| ()).map_err(String::as_str);
                assert_eq!(done, expected, "{role}, {path}: {before}{write}");
            }
        }

        // Neither do changes of tables, nor the views.
        let mut owner = session(&server).await;
        attempt(&mut owner, &format!("set search_path = {path}")).await.unwrap();
        for done in [
            "select fence.protect('public.accounts', 'account_id')",
            "select * from fence.status",
            "select * from fence.fences",
            "select fence.unprotect('public.accounts')",
        ] {
            attempt_and_roll_back(&mut owner, done).await.expect(done);
        }
    }
    assert_eq!(
        number(&mut session(&server).await, "select balance from accounts limit 1").await,
        100
    );
}

/// Otherwise the types of the fence's arguments could be somebody's domains, whose checks run as the installer.
#[tokio::test]
async fn catalog_must_be_in_front_of_the_installers_path() {
    for (path, is_right) in [
        ("evil, pg_catalog", false),
        ("public, pg_catalog", false),
        ("public, evil", true),
        ("pg_catalog, evil", true),
        ("''", true),
    ] {
        let server = testbed::Postgres::start().await.unwrap();
        let mut owner = session(&server).await;
        let trap = format!(
            "create schema evil; create domain evil.xid8 as pg_catalog.xid8;
             create temp table noise (id int); set search_path = {path}"
        );
        attempt(&mut owner, &trap).await.unwrap();
        let installed = fence::postgres::install(&mut owner).await;
        assert_eq!(installed.is_ok(), is_right, "{path}: {installed:?}");
    }
}

/// The fence was installed under a search path that others can write to.
#[tokio::test]
async fn views_made_under_a_writable_schema_use_nothing_of_it() {
    let (server, mut owner) = accounts().await;
    attempt(&mut owner, WRITER).await.unwrap();
    shadow_everything(&mut session_of(&server, "writer").await).await;
    attempt(&mut owner, "set search_path = public, evil").await.unwrap();
    attempt(&mut owner, "drop view fence.status, fence.fences").await.unwrap();
    for file in files() {
        attempt(&mut owner, &fs::read_to_string(file).unwrap()).await.unwrap();
    }
    for view in ["select * from fence.status", "select * from fence.fences"] {
        attempt(&mut owner, view).await.expect(view);
    }
    // The negative control: where the catalog has no exact operator, the operator of this path is
    // used.
    let used = "select 1::oid = 1::int";
    assert_eq!(attempt(&mut owner, used).await.unwrap_err(), "EV001");
    assert!(is_true(&mut owner, "select problem is null from fence.status").await);
}
