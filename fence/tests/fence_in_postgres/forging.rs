//! What lets a row pass is that this transaction wrote the fence's row. No session can forge that,
//! and nobody's code runs with the rights of another.

use std::collections::BTreeSet;

use testbed::Postgres;

use super::{
    MALFORMED, NO_PRIVILEGE, STALE, TOKEN_REQUIRED, accounts, attempt, attempt_and_roll_back,
    files, messages, number, psql,
    roles::{UPDATE, WRITER},
    session, session_of,
};

/// A role whose table calls her function wherever a table can. A rejection takes back rows, but no number of a
/// sequence: so that counts the calls.
const MALLORY: &str = "
    create role mallory login; create role deputy login in role mallory;
    grant usage on schema fence to mallory;
    grant create on schema public to mallory;
    create sequence runs; grant all on sequence runs to public;
    set role mallory;
    create function evil(id text) returns text language plpgsql immutable
        as 'begin perform nextval(''public.runs''); return id; end';
    create type kind as enum ('red');
    create function kind_as_text(kind) returns text language sql immutable as 'select public.evil(''red'')';
    create cast (kind as text) with function kind_as_text(kind);
    create domain word as text check (public.evil(value) is not null);
    create table mine (
        id text default public.evil('x') check (public.evil(id) is not null),
        name text generated always as (public.evil(id)) stored,
        kind kind default 'red', word word default 'x');
    alter table mine enable row level security;
    alter table mine force row level security;
    create policy sees on mine using (public.evil(id) = public.evil('x'));
    create function trap() returns trigger language plpgsql
        as 'begin perform public.evil(''x''); return new; end';
    create trigger trap before insert or update or delete on mine for each row execute function trap();
    create trigger truncate before truncate on mine for each statement execute function trap();
    insert into mine values ('x');
    reset role;";
const RUNS: &str = "select last_value from runs";

#[tokio::test]
async fn nothing_that_a_session_can_read_and_set_lets_a_row_pass() {
    let (server, mut owner) = accounts().await;
    attempt(&mut owner, &format!("{WRITER} grant pg_read_all_data to writer")).await.unwrap();
    let mut writer = session_of(&server, "writer").await;
    // Every setting that the fence's functions mention.
    let names = "
        select distinct match[1] from pg_proc
        cross join lateral regexp_matches(prosrc, '''(fence\\.[a-z_]+)''', 'g') as match
        where pronamespace = 'fence'::regnamespace and starts_with(match[1], 'fence.')";
    let names: Vec<String> = sqlx::query_scalar(names).fetch_all(&mut writer).await.unwrap();
    assert!(names.contains(&"fence.presented".to_owned()), "{names:?}");
    for name in names {
        for value in ["'alice'", "'on'", "pg_current_xact_id()::text", "fence.presented(33)"] {
            let value = value.replace("fence.presented(33)", "pg_current_xact_id() || ' 33 a'");
            let forged = format!("select set_config('{name}', {value}, true); {UPDATE}");
            let rejected = attempt_and_roll_back(&mut writer, &forged).await.unwrap_err();
            assert!(
                [TOKEN_REQUIRED, STALE, MALFORMED].contains(&rejected.as_str()),
                "{forged}: {rejected}"
            );
        }
    }
    // Every constant of the plans that a session can print.
    let constants = printed_constants(&server, &format!("begin; {UPDATE}"));
    assert!(
        constants.contains("fence.presented"),
        "the plans in the check are printed: {constants:?}"
    );
    for name in constants {
        let forged = format!("select set_config('{name}', 'alice', true); {UPDATE}");
        let rejected = attempt_and_roll_back(&mut writer, &forged).await.unwrap_err();
        assert_eq!(rejected, TOKEN_REQUIRED, "{forged}");
    }
    // The negative control: a secret name in a plan is among them.
    let secret = "
        create function secret_name() returns text language plpgsql immutable
        as 'begin return ''own.secret''; end'";
    attempt(&mut owner, secret).await.unwrap();
    let use_it = "select current_setting(secret_name(), true)";
    assert!(printed_constants(&server, use_it).contains("own.secret"));

    // The negative control of the check: the right token does let it pass.
    let right = format!(
        "select set_config('fence.presented', pg_current_xact_id() || ' 34 a', true); {UPDATE}"
    );
    attempt_and_roll_back(&mut writer, &right).await.unwrap();
}

/// What could name a setting among the constants in the plans of statements, as PostgreSQL prints them:
/// `:constvalue 14 [ 56 0 0 0 111 119 … ]`, a length of four bytes and the text.
fn printed_constants(server: &Postgres, statements: &str) -> BTreeSet<String> {
    let printed = messages(
        server,
        &format!(
            "set client_min_messages = log; set debug_pretty_print = off;
             set debug_print_plan = on; {statements}"
        ),
    );
    let constants = printed.split(":constvalue ").skip(1);
    let bytes = constants.filter_map(|constant| {
        let (_, rest) = constant.split_once('[')?;
        let (bytes, _) = rest.split_once(']')?;
        bytes.split_whitespace().map(|byte| byte.parse::<i16>().ok()).collect::<Option<Vec<_>>>()
    });
    let texts = bytes.filter_map(|bytes| {
        let bytes: Vec<u8> = bytes.into_iter().skip(4).map(|byte| byte as u8).collect();
        let is_of_a_name = |byte: char| byte.is_ascii_alphanumeric() || "._$".contains(byte);
        String::from_utf8(bytes)
            .ok()
            .filter(|text| text.contains('.') && text.chars().all(is_of_a_name))
    });
    texts.collect()
}

#[tokio::test]
async fn claim_in_a_savepoint_that_was_rolled_back_lets_no_row_pass() {
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
    // A claim before the savepoint still counts, and so does one in a savepoint that was released.
    let kept = format!(
        "begin; select fence.claim('alice', 34, 'a'); {UPDATE}; savepoint s;
         update accounts set balance = 7 where account_id = 'alice'; rollback to s; {UPDATE};
         savepoint t; select fence.present(1, 'b');
         update accounts set balance = 7 where account_id = 'bob'; release t;
         update accounts set balance = 7; rollback"
    );
    attempt(&mut owner, &kept).await.unwrap();
}

/// `protect` evaluates nothing of the table. A superuser has no policies, so a deputy of the owner tries, too.
#[tokio::test]
async fn administrator_who_protects_a_strangers_table_runs_none_of_its_code() {
    let (server, mut admin) = accounts().await;
    attempt(&mut admin, MALLORY).await.unwrap();
    let mut deputy = session_of(&server, "deputy").await;
    let before = number(&mut admin, RUNS).await;
    for role in ["deputy", "postgres"] {
        let mut role = session_of(&server, role).await;
        for done in [
            "select fence.protect('mine', 'id')",
            "select fence.protect('mine', 'id', prefix => '''||public.evil(id)||''')",
            "select fence.protect('mine', 'name', 'report')",
            "select fence.protect('mine', 'name')",
        ] {
            attempt(&mut role, done).await.expect(done);
        }
        for column in ["kind", "word", "public.evil(id)"] {
            let protect = format!("select fence.protect('mine', '{column}')");
            assert_eq!(attempt(&mut role, &protect).await.unwrap_err(), "22023", "{column}");
        }
    }
    psql(&server.url(), &files()).unwrap();
    let other = "select * from fence.status; select fence.unprotect('mine')";
    attempt(&mut admin, other).await.unwrap();
    assert_eq!(number(&mut admin, RUNS).await, before);
    // The negative control: each of these does run it.
    for run in [
        "select count(*) from mine",
        "insert into mine default values",
        "truncate mine",
        "select 'red'::kind::text",
        "select 'x'::word",
    ] {
        let before = number(&mut admin, RUNS).await;
        attempt(&mut deputy, run).await.expect(run);
        assert!(number(&mut admin, RUNS).await > before, "{run}");
    }
}

/// In the mode `report`, it has the rights of the table's owner. Default privileges, as many databases have them, let
/// others execute functions.
#[tokio::test]
async fn nobody_makes_the_check_of_a_table_a_trigger_of_another() {
    let (server, mut admin) = accounts().await;
    let setup = format!(
        "{MALLORY} alter default privileges grant execute on functions to mallory;
         select fence.protect('accounts', 'account_id', 'report')"
    );
    attempt(&mut admin, &setup).await.unwrap();
    let mut mallory = session_of(&server, "mallory").await;
    let borrow = "
        create trigger borrowed after insert on mine for each row execute function fence_accounts()";
    assert_eq!(attempt(&mut mallory, borrow).await.unwrap_err(), NO_PRIVILEGE);
    // The negative control.
    attempt(&mut admin, "grant execute on function fence_accounts() to mallory").await.unwrap();
    attempt(&mut mallory, borrow).await.unwrap();
}

#[tokio::test]
async fn registry_takes_only_tables_of_the_current_role() {
    let (server, mut admin) = accounts().await;
    attempt(&mut admin, MALLORY).await.unwrap();
    let mut mallory = session_of(&server, "mallory").await;
    for table in ["public.accounts", "public.not_there_yet", "accounts", "pg_catalog.pg_class"] {
        let insert =
            format!("insert into fence.protected values ('{table}', 'id', '', 'report', '')");
        assert_eq!(attempt(&mut mallory, &insert).await.unwrap_err(), NO_PRIVILEGE, "{table}");
    }
    // A trigger of hers that an administrator's write fires doesn't see the administrator.
    let trap = "
        create function update_all() returns trigger language plpgsql security definer as $$
            begin
                update fence.protected set mode = 'report', prefix = 'other/';
                return new;
            end $$;
        create table bait (id text);
        create trigger update_all before insert on bait for each row execute function update_all()";
    attempt(&mut mallory, trap).await.unwrap();
    attempt(&mut admin, "insert into bait values ('x')").await.unwrap();
    let untouched = "
        select count(*) from fence.protected
        where relation = 'public.accounts' and prefix = '' and mode = 'enforce'";
    assert_eq!(number(&mut session(&server).await, untouched).await, 1);
}
