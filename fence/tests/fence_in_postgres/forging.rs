//! What lets a row pass is that this transaction wrote the fence's row. No session can forge that,
//! and nobody's expression runs with the rights of another.

use std::collections::BTreeSet;

use testbed::Postgres;

use super::{
    MALFORMED, NO_PRIVILEGE, STALE, TOKEN_REQUIRED, accounts, attempt, attempt_and_roll_back,
    files, is_true, messages, number, psql,
    roles::{UPDATE, WRITER},
    session, session_of,
};

/// A role with a table of its own, and a function that notes with whose rights it runs.
const MALLORY: &str = "
    create role mallory login;
    grant usage on schema fence to mallory;
    grant create on schema public to mallory;
    create table ran (as_role text); grant all on ran to public;
    create sequence runs; grant all on sequence runs to public;
    set role mallory;
    create table mine (id text); insert into mine values ('x');
    create function evil(id text) returns text language plpgsql
        as 'begin perform nextval(''public.runs''); insert into public.ran values (current_user); return id; end';
    select fence.protect('mine', 'public.evil(id)', 'MODE');
    grant all on mine to public;
    reset role;
    delete from ran;";
const RAN: &str = "select count(*) from ran where as_role <> 'mallory'";

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

/// Neither as it is, nor behind a cast, a policy, a deferred trigger, or a literal, whose type is checked
/// when it is parsed.
#[tokio::test]
async fn administrator_runs_no_expression_of_a_tables_owner() {
    let (server, mut admin) = accounts().await;
    attempt(&mut admin, &MALLORY.replace("MODE", "report")).await.unwrap();
    let traps = "
        set role mallory;
        create type kind as enum ('red');
        create function kind_as_text(kind) returns text language sql as
            'select nextval(''public.runs''); insert into public.ran values (current_user); select ''red''::text';
        create cast (kind as text) with function kind_as_text(kind);
        create table cast_ (id kind); insert into cast_ values ('red');
        create function sees() returns boolean language plpgsql as
            'begin perform nextval(''public.runs''); insert into public.ran values (current_user); return true; end';
        create table policy_ (id text); insert into policy_ values ('x');
        alter table policy_ enable row level security;
        alter table policy_ force row level security;
        create policy sees on policy_ using (sees());
        create domain seen as text check (sees());
        create table literal_ (id text);
        reset role; delete from ran; create role deputy login in role mallory";
    attempt(&mut admin, traps).await.unwrap();
    psql(&server.url(), &files()).unwrap();
    // A rejection takes back rows, but no number of a sequence.
    const RUNS: &str = "select case when is_called then last_value else 0 end from runs";
    let before = number(&mut admin, RUNS).await;
    // A superuser has no policies.
    let mut deputy = session_of(&server, "deputy").await;
    attempt(&mut deputy, "select fence.protect('policy_', 'id')").await.unwrap();
    assert_eq!(number(&mut admin, RUNS).await, before);
    // The negative control.
    attempt(&mut deputy, "select count(*) from policy_").await.unwrap();
    assert_eq!(number(&mut admin, RUNS).await, before + 1);
    attempt(&mut admin, "delete from ran").await.unwrap();
    for done in ["select * from fence.status", "select fence.unprotect('mine')"] {
        attempt(&mut admin, done).await.expect(done);
        assert_eq!(number(&mut admin, "select count(*) from ran").await, 0, "{done}");
    }
    for expression in [
        "select fence.protect('mine', 'public.evil(id)')",
        "select fence.protect('mine', 'public.evil(id)', 'report')",
        "select fence.protect('cast_', 'id')",
        "select fence.protect('literal_', '(''{x}''::public.seen[])::text')",
    ] {
        let before = number(&mut admin, RUNS).await;
        assert_eq!(attempt(&mut admin, expression).await.unwrap_err(), NO_PRIVILEGE);
        assert_eq!(number(&mut admin, RUNS).await, before, "{expression}");
        // The negative control: the owner does run it, and so finds rows that have no resource.
        let mut mallory = session_of(&server, "mallory").await;
        attempt(&mut mallory, expression).await.expect(expression);
        let ran = "select count(*) > 0 from ran where as_role = 'mallory'";
        assert!(is_true(&mut admin, ran).await, "{expression}");
        assert_eq!(number(&mut admin, RAN).await, 0, "{expression}");
        attempt(&mut admin, "delete from ran").await.unwrap();
    }
    // And so the owner finds a mistake.
    let mut mallory = session_of(&server, "mallory").await;
    let mistake = "select fence.protect('mine', 'public.no_such_function(id)')";
    assert_eq!(attempt(&mut mallory, mistake).await.unwrap_err(), "42883");
}

/// In the mode `report`, the function behind the trigger has the rights of the table's owner.
#[tokio::test]
async fn reporting_table_runs_its_expression_as_its_owner() {
    let (server, mut admin) = accounts().await;
    attempt(&mut admin, &MALLORY.replace("MODE", "enforce")).await.unwrap();
    // Default privileges, as many databases have them, don't let others execute that function.
    attempt(&mut admin, "alter default privileges grant execute on functions to mallory")
        .await
        .unwrap();
    let mut mallory = session_of(&server, "mallory").await;
    let protect = "select fence.protect('mine', 'public.evil(id)', 'report')";
    attempt(&mut mallory, protect).await.unwrap();
    let write = "delete from ran; select fence.present(1); update mine set id = 'y'";
    attempt(&mut admin, write).await.unwrap();
    assert_eq!(number(&mut admin, RAN).await, 0);
    assert!(is_true(&mut admin, "select count(*) > 0 from ran").await);
    // Nobody makes that function a trigger of another table, whose columns are of other types.
    attempt(&mut admin, "select fence.protect('accounts', 'account_id', 'report')").await.unwrap();
    let borrow = "
        create trigger borrowed after insert on mine for each row execute function fence_accounts()";
    assert_eq!(attempt(&mut mallory, borrow).await.unwrap_err(), NO_PRIVILEGE);
}

#[tokio::test]
async fn registry_takes_only_tables_of_the_current_role() {
    let (server, mut admin) = accounts().await;
    attempt(&mut admin, &MALLORY.replace("MODE", "enforce")).await.unwrap();
    let mut mallory = session_of(&server, "mallory").await;
    for table in ["public.accounts", "public.not_there_yet", "accounts", "pg_catalog.pg_class"] {
        let insert = format!("insert into fence.protected values ('{table}', 'id', 'report')");
        assert_eq!(attempt(&mut mallory, &insert).await.unwrap_err(), NO_PRIVILEGE, "{table}");
    }
    // A trigger of hers that an administrator's write fires doesn't see the administrator.
    let trap = "
        create function trap() returns trigger language plpgsql security definer as $$
            begin
                update fence.protected set mode = 'report', resource = 'public.evil(id)';
                return new;
            end $$;
        create table bait (id text);
        create trigger trap before insert on bait for each row execute function trap()";
    attempt(&mut mallory, trap).await.unwrap();
    attempt(&mut admin, "insert into bait values ('x')").await.unwrap();
    let untouched = "
        select count(*) from fence.protected
        where relation = 'public.accounts' and resource = 'account_id' and mode = 'enforce'";
    assert_eq!(number(&mut session(&server).await, untouched).await, 1);
}
