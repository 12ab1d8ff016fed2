//! Nobody but the installer owns, or creates, anything in the schema `fence`.

use std::fs;

use fence::postgres;
use testbed::Postgres;

use super::{
    HOLDER_CONFLICT, MALFORMED, NO_PRIVILEGE, STALE, TOKEN_REQUIRED, attempt,
    attempt_and_roll_back, files, pid, psql, roles::WRITER, session, session_of, until_it_waits,
};

/// A better match for `reject_malformed('resource', null, null)` than the fence's own.
const BETTER_MATCH: &str = "
    create function fence.reject_malformed(text, text, text) returns void language plpgsql
    as $$ begin raise sqlstate 'EV001' using message = current_user; end $$";
const UNTYPED_CALL: &str = "select fence.reject_malformed('resource', null, null)";

/// Functions of the fence's names, with other types for their arguments.
const OTHER_TYPES: &str = "
    do $do$
    declare
        signature text;
    begin
        for signature in
            with recursive choice (type, other) as (
                values ('text', 'text'), ('text', 'name'), ('text', 'varchar'),
                    ('bigint', 'bigint'), ('bigint', 'integer'), ('bigint', 'text'),
                    ('oid', 'oid'), ('oid', 'regclass'), ('oid', 'text'),
                    ('regclass', 'regclass'), ('regclass', 'oid'), ('regclass', 'text'),
                    ('aclitem[]', 'aclitem[]'), ('xid8', 'xid8'), ('xid', 'xid')
            ),
            combination as (
                select proname, proargtypes, pronargs, 0 as place, null::text as arguments
                from pg_proc where pronamespace = 'fence'::regnamespace and pronargs > 0
                union all
                select proname, proargtypes, pronargs, place + 1, concat_ws(', ', arguments, other)
                from combination
                join choice on type = format_type(proargtypes[place], null) and place < pronargs
            )
            select format('fence.%I(%s)', proname, arguments) from combination
            where place = pronargs
                and to_regprocedure(format('fence.%I(%s)', proname, arguments)) is null
        loop
            execute format(
                'create function %s returns text language plpgsql as %L',
                signature, 'begin raise sqlstate ''EV001'' using message = current_user; end');
        end loop;
    end
    $do$";

#[tokio::test]
async fn nobody_else_creates_a_function_that_the_fence_would_call() {
    let (server, mut owner) = super::accounts().await;
    attempt(&mut owner, WRITER).await.unwrap();
    let mut writer = session_of(&server, "writer").await;
    assert_eq!(attempt(&mut writer, BETTER_MATCH).await.unwrap_err(), NO_PRIVILEGE);
    assert_eq!(attempt(&mut writer, UNTYPED_CALL).await.unwrap_err(), MALFORMED);

    // The negative control: a role that may create in the schema takes the call over.
    attempt(&mut owner, "grant all on schema fence to writer").await.unwrap();
    attempt(&mut writer, BETTER_MATCH).await.unwrap();
    assert_eq!(attempt(&mut writer, UNTYPED_CALL).await.unwrap_err(), "EV001");
    // The next application names what was created, and then takes the right away.
    let rejected = psql(&server.url(), &files()).unwrap_err();
    assert!(
        rejected.contains("fence.reject_malformed(text,text,text) belongs to writer"),
        "{rejected}"
    );
    attempt(&mut owner, "drop function fence.reject_malformed(text, text, text)").await.unwrap();
    psql(&server.url(), &files()).unwrap();
    assert_eq!(attempt(&mut writer, BETTER_MATCH).await.unwrap_err(), NO_PRIVILEGE);
    assert_eq!(attempt(&mut writer, UNTYPED_CALL).await.unwrap_err(), MALFORMED);
}

/// The application can't see it, so it must not be called: the fence's calls have exact types.
#[tokio::test]
async fn function_that_is_committed_after_the_application_is_not_called() {
    let (server, mut owner) = super::accounts().await;
    let setup = format!("{WRITER} grant create on schema fence to writer");
    attempt(&mut owner, &setup).await.unwrap();
    let mut writer = session_of(&server, "writer").await;
    attempt(&mut writer, "begin").await.unwrap();
    attempt(&mut writer, OTHER_TYPES).await.unwrap();
    psql(&server.url(), &files()).unwrap();
    attempt(&mut writer, "commit").await.unwrap();

    const UPDATE: &str = "update accounts set balance = 7 where account_id = 'alice'";
    for role in ["writer", "postgres"] {
        for (call, expected) in [
            ("select fence.verify(null)", Err(MALFORMED)),
            ("select fence.verify('alice'::text)", Err(TOKEN_REQUIRED)),
            ("select fence.claim('alice'::text, 33::bigint, 'a'::text)", Err(STALE)),
            ("select fence.claim('alice'::text, 34::bigint, 'b'::text)", Err(HOLDER_CONFLICT)),
            ("select fence.claim(''::text, 34::bigint, 'a'::text)", Err(MALFORMED)),
            ("select fence.claim('alice'::text, 34::bigint, 'a'::text)", Ok(())),
            ("select fence.claim('new'::text, 34::bigint, 'a'::text)", Ok(())),
            ("select fence.present(0::bigint, 'a'::text)", Err(MALFORMED)),
            ("select fence.present(34::bigint, 'a'::text)", Ok(())),
        ] {
            // A session of its own, because functions are compiled once.
            let mut session = session_of(&server, role).await;
            let statements =
                if expected.is_ok() { format!("{call}; {UPDATE}") } else { call.to_owned() };
            let done = attempt_and_roll_back(&mut session, &statements).await;
            let done = done.as_ref().map(|_| ()).map_err(String::as_str);
            let expected = if call.contains("'new'") { Err(TOKEN_REQUIRED) } else { expected };
            assert_eq!(done, expected, "{role}: {call}");
        }
    }

    // Nor by what a table's owner calls, or by its writers for it.
    for statement in [
        "select fence.protect('accounts'::regclass, 'account_id'::text, 'report'::text, 'account/'::text)",
        UPDATE,
        "select 1 / (select count(*) from fence.reports)",
        "select 1 / (select count(*) from fence.status where problem is null)",
        "select fence.protect('accounts'::regclass, 'account_id'::text, 'enforce'::text)",
        "select fence.unprotect('accounts'::regclass)",
        "begin; delete from fence.reports; select fence.forget('alice'::text); rollback",
    ] {
        attempt(&mut session(&server).await, statement).await.expect(statement);
    }
    // The negative control: it is there.
    let untyped = "select fence.claim('alice', 35, 'a')";
    assert_eq!(attempt(&mut owner, untyped).await.unwrap_err(), "EV001");
    let rejected = psql(&server.url(), &files()).unwrap_err();
    assert!(rejected.contains("belongs to writer"), "{rejected}");
}

/// The files would replace its body, but not its owner, who could replace it again.
#[tokio::test]
async fn function_that_another_role_creates_between_two_files_is_found() {
    let server = Postgres::start().await.unwrap();
    let mut installer = session(&server).await;
    let setup = "
        create role other login;
        create schema fence;
        grant usage, create on schema fence to other";
    attempt(&mut installer, setup).await.unwrap();
    let mut other = session_of(&server, "other").await;
    // Each file has a transaction of its own.
    let files: Vec<_> = files().iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let (rights, earlier) = files.split_last().unwrap();
    attempt(&mut installer, &earlier[0]).await.unwrap();
    let theirs = "
        create function fence.claim_or_reject(resource text, token bigint, holder text)
        returns void language sql as ''";
    attempt(&mut other, theirs).await.unwrap();
    for file in &earlier[1..] {
        attempt(&mut installer, file).await.unwrap();
    }
    assert_eq!(attempt(&mut installer, rights).await.unwrap_err(), "55000");
    // The negative control: without it, the same files are applied.
    let drop = "drop function fence.claim_or_reject(text, bigint, text)";
    attempt(&mut other, drop).await.unwrap();
    for file in &files {
        attempt(&mut installer, file).await.unwrap();
    }
}

/// A trigger on the fence's tables runs inside of a claim, with the installer's rights.
#[tokio::test]
async fn application_takes_away_the_right_to_create_triggers_on_its_tables() {
    const TRAP: &str = "
        create or replace trigger trap before insert or update on fence.fence
        for each row execute function trap()";
    let (server, mut owner) = super::accounts().await;
    attempt(&mut owner, WRITER).await.unwrap();
    let setup = "
        grant all on all tables in schema fence to writer;
        create function trap() returns trigger language plpgsql
        as $$ begin raise sqlstate 'EV001' using message = current_user; end $$";
    attempt(&mut owner, setup).await.unwrap();
    let mut writer = session_of(&server, "writer").await;
    // The negative control.
    attempt(&mut writer, TRAP).await.unwrap();
    let claim = "select fence.claim('alice', 34, 'a')";
    assert_eq!(attempt(&mut owner, claim).await.unwrap_err(), "EV001");
    // Another may call code in its condition alone, and so leave no trace.
    let hidden = "
        create function evil(text) returns bool language sql as 'select false';
        drop trigger trap on fence.fence;
        create trigger trap before insert or update on fence.fence for each row
        when (evil(new.resource)) execute function fence.reject_removal()";
    for trap in ["select 1", hidden] {
        attempt(&mut owner, trap).await.unwrap();
        let rejected = psql(&server.url(), &files()).unwrap_err();
        let named = "the trigger trap on fence.fence is not of the fence";
        assert!(rejected.contains(named), "{rejected}");
    }
    attempt(&mut owner, "drop trigger trap on fence.fence").await.unwrap();

    psql(&server.url(), &files()).unwrap();
    assert_eq!(attempt(&mut writer, TRAP).await.unwrap_err(), NO_PRIVILEGE);
    attempt(&mut owner, claim).await.unwrap();
}

/// The application sees no trigger of another transaction before its commit, so it waits for it.
#[tokio::test]
async fn trigger_that_is_not_committed_yet_is_not_overlooked() {
    let (server, mut owner) = super::accounts().await;
    let trap = "
        create function trap() returns trigger language plpgsql as 'begin return new; end'";
    let setup = format!("{WRITER} grant all on all tables in schema fence to writer; {trap}");
    attempt(&mut owner, &setup).await.unwrap();
    let mut writer = session_of(&server, "writer").await;
    let create = "
        begin;
        create trigger trap before insert on fence.fence for each row execute function trap()";
    attempt(&mut writer, create).await.unwrap();

    let mut installer = session(&server).await;
    let installing = pid(&mut installer).await;
    let applied = tokio::spawn(async move { postgres::install(&mut installer).await });
    until_it_waits(&mut owner, installing).await;
    attempt(&mut writer, "commit").await.unwrap();
    let rejected = applied.await.unwrap().unwrap_err().to_string();
    assert!(rejected.contains("the trigger trap on fence.fence is not of the fence"), "{rejected}");
}

/// Such as the names of people in a directory.
#[tokio::test]
async fn names_of_roles_may_need_quotes() {
    let server = Postgres::start().await.unwrap();
    let roles = r#"
        create role "Ann@x.org" login;
        grant create on database postgres to "Ann@x.org";
        grant create on schema public to "Ann@x.org" "#;
    attempt(&mut session(&server).await, roles).await.unwrap();
    let mut ann = session_of(&server, "Ann@x.org").await;
    postgres::install(&mut ann).await.unwrap();
    let protect = "create table notes (id int); select fence.protect('notes', 'id')";
    attempt(&mut ann, protect).await.unwrap();
}

/// The function of the earlier owner stays, because another role can't drop it.
#[tokio::test]
async fn new_owner_of_a_table_protects_it_again() {
    let server = Postgres::start().await.unwrap();
    let mut owner = session(&server).await;
    postgres::install(&mut owner).await.unwrap();
    let roles = "
        create role ann login; create role bob login;
        create schema notes; grant all on schema notes to ann, bob;
        grant usage on schema fence to ann, bob";
    attempt(&mut owner, roles).await.unwrap();
    let protect = "select fence.protect('notes.notes', 'id', prefix => 'note/')";
    let mut ann = session_of(&server, "ann").await;
    attempt(&mut ann, "create table notes.notes (id int)").await.unwrap();
    attempt(&mut ann, protect).await.unwrap();
    attempt(&mut owner, "alter table notes.notes owner to bob").await.unwrap();
    let mut bob = session_of(&server, "bob").await;
    attempt(&mut bob, protect).await.unwrap();
    let problem = "select problem from fence.status";
    let problem: Option<String> = sqlx::query_scalar(problem).fetch_one(&mut owner).await.unwrap();
    assert_eq!(problem, None);
    let insert = "insert into notes.notes values (1)";
    assert_eq!(attempt(&mut bob, insert).await.unwrap_err(), TOKEN_REQUIRED);
    attempt(&mut bob, "select fence.unprotect('notes.notes')").await.unwrap();
    attempt(&mut bob, insert).await.unwrap();
}

#[tokio::test]
async fn schema_of_another_owner_is_rejected() {
    for schema in [
        "create schema fence authorization writer",
        "create schema fence; grant create on schema fence to writer;
         set role writer; create table fence.notes (version bigint); reset role",
    ] {
        let server = Postgres::start().await.unwrap();
        let mut owner = session(&server).await;
        attempt(&mut owner, "create role writer login").await.unwrap();
        attempt(&mut owner, schema).await.unwrap();

        let rejected = psql(&server.url(), &files()).unwrap_err();
        assert!(rejected.contains("belongs to writer"), "{rejected}");
        let rejected = postgres::install(&mut owner).await.unwrap_err();
        assert!(rejected.to_string().contains("belongs to writer"), "{rejected}");
        // The role that owns it may install it, and everything then is its own.
        let own = "alter schema fence owner to writer; grant create on database postgres to writer";
        attempt(&mut owner, own).await.unwrap();
        attempt(&mut owner, "drop table if exists fence.notes").await.unwrap();
        let mut writer = session_of(&server, "writer").await;
        postgres::install(&mut writer).await.unwrap();
        attempt(&mut writer, "select fence.claim('alice', 34)").await.unwrap();
    }
}
