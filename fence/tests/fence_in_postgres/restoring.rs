//! What is left after a dump, a replication, or a tool that rebuilds tables, and what repairs it.

use std::process::{Command, Stdio};

use fence::postgres;
use sqlx::{Connection, PgConnection};
use testbed::Postgres;

use super::{
    NO_PRIVILEGE, PATIENCE, STALE, TOKEN_REQUIRED, accounts, attempt, files, number, problem, psql,
    roles::{UPDATE, WRITER},
    session_of,
};

const PROTECT: &str = "select fence.protect('accounts', 'account_id')";
const CLAIM: &str = "select fence.claim('alice', 34, 'a')";
const STALE_CLAIM: &str = "select fence.claim('alice', 33, 'a')";

/// Restores what `pg_dump` prints with these arguments into another database of the server.
async fn restored(server: &Postgres, arguments: &[&str], database: &str) -> PgConnection {
    let mut dump = Command::new("pg_dump");
    dump.args(arguments).arg(server.url()).stdout(Stdio::piped());
    let mut dump = dump.spawn().expect("postgresql-client has pg_dump");
    let mut restore = Command::new("psql");
    restore.args(["--set", "ON_ERROR_STOP=1", "--no-psqlrc", "--quiet"]);
    restore.arg(server.url_of(database)).stdin(dump.stdout.take().unwrap());
    let restore = restore.output().unwrap();
    assert!(dump.wait().unwrap().success());
    assert!(restore.status.success(), "{}", String::from_utf8_lossy(&restore.stderr));
    PgConnection::connect(&server.url_of(database)).await.unwrap()
}

#[tokio::test]
async fn schema_alone_is_a_working_fence() {
    let (server, mut database) = accounts().await;
    attempt(&mut database, "create database other").await.unwrap();
    let mut other = restored(&server, &["--schema-only"], "other").await;
    attempt(&mut other, CLAIM).await.unwrap();
    assert_eq!(attempt(&mut other, STALE_CLAIM).await.unwrap_err(), STALE);
    let insert = "insert into accounts values ('alice')";
    assert_eq!(attempt(&mut other, insert).await.unwrap_err(), TOKEN_REQUIRED);
    attempt(&mut other, &format!("{CLAIM}; {insert}")).await.unwrap();
    assert_eq!(problem(&mut other, "accounts").await.as_deref(), Some("unregistered"));
    attempt(&mut other, PROTECT).await.unwrap();
    assert_eq!(problem(&mut other, "accounts").await, None);
}

/// The fences stay behind: an old token is accepted, and the status warns of it.
#[tokio::test]
async fn data_without_its_fences_is_shown() {
    let (server, mut database) = accounts().await;
    attempt(&mut database, "create database other").await.unwrap();
    psql(&server.url_of("other"), &files()).unwrap();
    let mut other =
        restored(&server, &["--schema=public", "--clean", "--if-exists"], "other").await;
    attempt(&mut other, STALE_CLAIM).await.unwrap();
    assert_eq!(problem(&mut other, "accounts").await.as_deref(), Some("unregistered"));
    // The negative control: both schemas together.
    attempt(&mut database, "create database whole").await.unwrap();
    let mut whole = restored(
        &server,
        &["--schema=public", "--schema=fence", "--clean", "--if-exists"],
        "whole",
    )
    .await;
    assert_eq!(attempt(&mut whole, STALE_CLAIM).await.unwrap_err(), STALE);
    assert_eq!(problem(&mut whole, "accounts").await, None);
}

#[tokio::test]
async fn subscriber_has_the_fences_that_reached_it() {
    let server = Postgres::start_with(&["wal_level=logical"]).await.unwrap();
    let mut publisher = PgConnection::connect(&server.url()).await.unwrap();
    postgres::install(&mut publisher).await.unwrap();
    attempt(&mut publisher, "create database subscriber").await.unwrap();
    let mut subscriber = restored(&server, &["--schema-only"], "subscriber").await;
    attempt(&mut publisher, "create publication fences for table fence.fence").await.unwrap();
    let slot = "select pg_create_logical_replication_slot('fences', 'pgoutput')";
    attempt(&mut publisher, slot).await.unwrap();
    // Both databases are on one server, where a subscription can't create its slot by itself.
    let folder = server.url().split("host=").nth(1).unwrap().to_owned();
    let subscribe = format!(
        "create subscription fences
         connection 'host={folder} port=5432 dbname=postgres user=postgres'
         publication fences with (create_slot = false, slot_name = 'fences')"
    );
    attempt(&mut subscriber, &subscribe).await.unwrap();
    attempt(&mut publisher, CLAIM).await.unwrap();
    let arrived = async {
        while number(&mut subscriber, "select count(*) from fence.fence").await == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, arrived).await.unwrap();
    assert_eq!(attempt(&mut subscriber, STALE_CLAIM).await.unwrap_err(), STALE);
    let drop = "
        alter subscription fences disable; alter subscription fences set (slot_name = none);
        drop subscription fences";
    for statement in drop.split(';') {
        attempt(&mut subscriber, statement).await.unwrap();
    }
    attempt(&mut subscriber, CLAIM).await.unwrap();
}

#[tokio::test]
async fn rebuilt_table_is_missing_until_its_owner_protects_it() {
    let (server, mut owner) = accounts().await;
    let rebuild = "
        create table new_accounts (like accounts including all);
        insert into new_accounts select * from accounts;
        drop table accounts;
        alter table new_accounts rename to accounts";
    attempt(&mut owner, rebuild).await.unwrap();
    assert_eq!(problem(&mut owner, "accounts").await.as_deref(), Some("missing"));
    attempt(&mut owner, UPDATE).await.unwrap();
    // Installing the files again protects no table.
    psql(&server.url(), &files()).unwrap();
    postgres::install(&mut owner).await.unwrap();
    assert_eq!(problem(&mut owner, "accounts").await.as_deref(), Some("missing"));
    attempt(&mut owner, PROTECT).await.unwrap();
    assert_eq!(problem(&mut owner, "accounts").await, None);
    assert_eq!(attempt(&mut owner, UPDATE).await.unwrap_err(), TOKEN_REQUIRED);
}

#[tokio::test]
async fn dropped_and_renamed_tables_stop_nothing() {
    let (server, mut owner) = accounts().await;
    attempt(&mut owner, WRITER).await.unwrap();
    let mut writer = session_of(&server, "writer").await;
    let tables = "
        create table first (id text); create table second (id text);
        select fence.protect('first', 'id'), fence.protect('second', 'id');
        drop table first; alter table second rename to third";
    attempt(&mut writer, tables).await.unwrap();
    attempt(&mut owner, "drop table accounts").await.unwrap();
    for mut role in [owner, writer] {
        let all = "
            create table fourth (id text); select fence.protect('fourth', 'id');
            select fence.unprotect('fourth'); drop table fourth; select fence.claim('bob', 1)";
        attempt(&mut role, all).await.unwrap();
    }
    psql(&server.url(), &files()).unwrap();
    let mut owner = PgConnection::connect(&server.url()).await.unwrap();
    assert_eq!(number(&mut owner, "select count(*) from fence.status").await, 1);
    assert_eq!(problem(&mut owner, "third").await.as_deref(), Some("unregistered"));
    attempt(&mut owner, "select fence.protect('third', 'id')").await.unwrap();
    assert_eq!(problem(&mut owner, "third").await, None);
    // Another table of the old name is missed, until somebody says that it needs no protection.
    attempt(&mut owner, "create table first (id text)").await.unwrap();
    assert_eq!(problem(&mut owner, "first").await.as_deref(), Some("missing"));
    attempt(&mut owner, "select fence.unprotect('first')").await.unwrap();
    assert_eq!(number(&mut owner, "select count(*) from fence.status").await, 1);
}

#[tokio::test]
async fn table_that_inherits_is_shown() {
    let (_server, mut owner) = accounts().await;
    let children = "
        create table child () inherits (accounts); create table grandchild () inherits (child)";
    attempt(&mut owner, children).await.unwrap();
    for (table, expected) in
        [("accounts", None), ("child", Some("missing")), ("grandchild", Some("missing"))]
    {
        assert_eq!(problem(&mut owner, table).await.as_deref(), expected, "{table}");
    }
    // The negative control of the status: its rows are really not checked.
    attempt(&mut owner, "insert into child values ('alice', 1)").await.unwrap();
}

#[tokio::test]
async fn applying_the_files_again_repairs_the_fence() {
    let (server, mut owner) = accounts().await;
    let damage = "
        create or replace function fence.verify(resource text) returns boolean
            language sql as 'select true';
        create or replace function fence.is_written_here(claimed_by xid8, xmin xid)
            returns boolean language sql as 'select true';
        drop view fence.status; drop view fence.fences;
        drop function fence.present, fence.forget;
        drop trigger reject_removal on fence.fence;
        drop policy owner_of_the_table on fence.protected;
        alter policy owner_of_the_table on fence.reports using (true);
        alter table fence.reports disable row level security";
    let right = "
        select count(*) from pg_class where oid in ('fence.protected'::regclass, 'fence.reports'::regclass)
            and relrowsecurity and exists (
                select from pg_policy
                where polrelid = pg_class.oid and pg_get_expr(polqual, polrelid) = 'fence.owns(relation)')";
    for by_psql in [true, false] {
        attempt(&mut owner, damage).await.unwrap();
        attempt(&mut owner, UPDATE).await.unwrap();
        if by_psql {
            psql(&server.url(), &files()).unwrap();
        } else {
            postgres::install(&mut owner).await.unwrap();
        }
        assert_eq!(attempt(&mut owner, UPDATE).await.unwrap_err(), TOKEN_REQUIRED);
        let stale = format!("select fence.present(33, 'a'); {UPDATE}");
        assert_eq!(attempt(&mut owner, &stale).await.unwrap_err(), STALE);
        assert_eq!(attempt(&mut owner, "truncate fence.fence").await.unwrap_err(), "ZF006");
        assert_eq!(number(&mut owner, right).await, 2);
        assert_eq!(problem(&mut owner, "accounts").await, None);
    }
}

/// The default privileges may have changed since the first application.
#[tokio::test]
async fn repair_gives_what_it_creates_the_rights_of_a_first_application() {
    let (server, mut owner) = accounts().await;
    attempt(&mut owner, WRITER).await.unwrap();
    let damage = "
        create role mallory login; create role auditor;
        grant usage on schema fence to mallory;
        grant select on fence.fences to auditor;
        revoke execute on function fence.version() from public;
        alter default privileges grant all on tables to mallory;
        alter default privileges revoke all on functions from public;
        alter default privileges grant all on functions to mallory;
        drop table fence.reports;
        drop table fence.fence cascade;
        drop function fence.present";
    attempt(&mut owner, damage).await.unwrap();
    psql(&server.url(), &files()).unwrap();
    attempt(&mut owner, CLAIM).await.unwrap();
    let mut mallory = session_of(&server, "mallory").await;
    for forbidden in [
        "update fence.fence set token = 1",
        "select * from fence.fence",
        "truncate fence.reports",
        // What the administrator took away stays so.
        "select fence.version()",
    ] {
        assert_eq!(
            attempt(&mut mallory, forbidden).await.unwrap_err(),
            NO_PRIVILEGE,
            "{forbidden}"
        );
    }
    let report = "select fence.protect('accounts', 'account_id', 'report')";
    attempt(&mut owner, report).await.unwrap();
    let mut writer = session_of(&server, "writer").await;
    let late = format!("select fence.present(33, 'a'); {UPDATE}");
    attempt(&mut writer, &late).await.unwrap();
    assert_eq!(number(&mut owner, "select count(*) from fence.reports").await, 1);
    let granted = "select has_table_privilege('auditor', 'fence.fences', 'select')::int::bigint";
    // The view was dropped with the table, and is new.
    assert_eq!(number(&mut owner, granted).await, 0);
    attempt(&mut owner, "grant select on fence.fences to auditor").await.unwrap();
    psql(&server.url(), &files()).unwrap();
    assert_eq!(number(&mut owner, granted).await, 1);
}

#[tokio::test]
async fn protection_of_a_table_that_has_another_owner_is_shown_until_it_is_renewed() {
    let (_server, mut owner) = accounts().await;
    for mode in ["enforce", "report"] {
        let protect = format!("select fence.protect('accounts', 'account_id', '{mode}')");
        attempt(&mut owner, &protect).await.unwrap();
        assert_eq!(problem(&mut owner, "accounts").await, None);
        let give = format!(
            "create role {mode}; grant usage on schema fence to {mode};
             grant all on schema public to {mode}; alter table accounts owner to {mode}"
        );
        attempt(&mut owner, &give).await.unwrap();
        assert_eq!(problem(&mut owner, "accounts").await.as_deref(), Some("different"), "{mode}");
        attempt(&mut owner, &protect).await.unwrap();
        assert_eq!(problem(&mut owner, "accounts").await, None);
    }
}
