//! Installing the fence, again, and beside others.

use std::process::Command;

use fence::postgres;
use sqlx::{Connection, PgConnection};
use testbed::Postgres;

use super::{
    NO_PRIVILEGE, STALE, TOKEN_REQUIRED, accounts, attempt, files, is_true, messages, number, psql,
    session, session_of,
};

async fn assert_it_works(server: &Postgres) {
    let mut database = session(server).await;
    attempt(&mut database, "select fence.claim('alice', 34, 'a')").await.unwrap();
    let stale = "select fence.claim('alice', 33, 'a')";
    assert_eq!(attempt(&mut database, stale).await.unwrap_err(), STALE);
}

#[tokio::test]
async fn psql_and_install_may_follow_each_other() {
    enum By {
        Psql,
        Install,
    }
    for order in [[By::Psql, By::Psql, By::Install], [By::Install, By::Install, By::Psql]] {
        let server = Postgres::start().await.unwrap();
        for by in order {
            match by {
                By::Psql => {
                    psql(&server.url(), &files()).unwrap();
                }
                By::Install => postgres::install(&mut session(&server).await).await.unwrap(),
            }
            assert_it_works(&server).await;
        }
    }
}

#[tokio::test]
async fn several_processes_may_install_at_once() {
    let server = Postgres::start().await.unwrap();
    let install = async || postgres::install(&mut session(&server).await).await.unwrap();
    tokio::join!(install(), install(), install(), install());
    assert_it_works(&server).await;
}

#[tokio::test]
async fn install_has_all_files() {
    let (_server, mut installed) = accounts().await;
    let other = Postgres::start().await.unwrap();
    psql(&other.url(), &files()).unwrap();
    let lines = files().into_iter().map(|file| std::fs::read_to_string(file).unwrap());
    assert!(lines.collect::<String>().lines().all(|line| line.len() <= 120));
    let functions = "
        select count(*) from pg_proc where pronamespace = 'fence'::regnamespace";
    let by_psql = number(&mut session(&other).await, functions).await;
    assert_eq!(number(&mut installed, functions).await, by_psql);
}

const IN_USE: &str = "
    create role monitor login;
    grant usage on schema fence to monitor;
    grant select on fence.status, fence.fences to monitor;
    grant select (resource) on fence.fence to monitor with grant option;
    revoke execute on function fence.version(), fence.protect(regclass, text, text, text) from public;
    grant execute on function fence.protect(regclass, text, text, text) to monitor;
    create view unprotected as select protected from fence.status where problem is not null;";

#[tokio::test]
async fn installing_again_keeps_fences_protection_and_grants() {
    let (server, mut database) = accounts().await;
    attempt(&mut database, IN_USE).await.unwrap();
    psql(&server.url(), &files()).unwrap();
    postgres::install(&mut database).await.unwrap();
    let stale = "
        select fence.present(33, 'a'); update accounts set balance = 7 where account_id = 'alice'";
    assert_eq!(attempt(&mut database, stale).await.unwrap_err(), STALE);
    // A view over the view still stands.
    assert_eq!(number(&mut database, "select count(*) from unprotected").await, 0);

    let mut monitor = session_of(&server, "monitor").await;
    for granted in [
        "select * from fence.status",
        "select * from fence.fences",
        "select resource from fence.fence",
    ] {
        attempt(&mut monitor, granted).await.expect(granted);
    }
    for revoked in ["select token from fence.fence", "select fence.version()"] {
        assert_eq!(attempt(&mut monitor, revoked).await.unwrap_err(), "42501", "{revoked}");
    }
    let executable = "
        select not has_function_privilege('public', 'fence.protect(regclass, text, text, text)', 'execute')
            and has_function_privilege('monitor', 'fence.protect(regclass, text, text, text)', 'execute')
            and has_column_privilege(
                'monitor', 'fence.fence', 'resource', 'select with grant option')";
    assert!(is_true(&mut database, executable).await);
}

/// An administrator may keep a function of its own beside the fence's.
#[tokio::test]
async fn function_of_the_administrator_keeps_its_grants() {
    let (server, mut owner) = accounts().await;
    let own = "
        create role writer login; create role monitor login;
        grant usage on schema fence to writer, monitor;
        create function fence.drain() returns integer language sql as 'select 1';
        revoke execute on function fence.drain() from public;
        grant execute on function fence.drain() to monitor";
    attempt(&mut owner, own).await.unwrap();
    for _ in 0..2 {
        psql(&server.url(), &files()).unwrap();
        postgres::install(&mut owner).await.unwrap();
        let call = "select fence.drain()";
        let done = attempt(&mut session_of(&server, "writer").await, call).await;
        assert_eq!(done.unwrap_err(), NO_PRIVILEGE);
        attempt(&mut session_of(&server, "monitor").await, call).await.unwrap();
    }
}

/// As where a provider runs the server.
#[tokio::test]
async fn owner_of_the_database_needs_no_superuser() {
    let server = Postgres::start().await.unwrap();
    let mut superuser = session(&server).await;
    attempt(&mut superuser, "create role keeper login").await.unwrap();
    attempt(&mut superuser, "create database app owner keeper").await.unwrap();
    let url = server.url_of("app").replace("postgres://postgres@", "postgres://keeper@");
    psql(&url, &files()).unwrap();
    let mut keeper = PgConnection::connect(&url).await.unwrap();
    let protect = "
        create table accounts (account_id text primary key, balance bigint);
        create table orders (id bigint); insert into orders values (7);
        select fence.protect('accounts', 'account_id'),
            fence.protect('orders', 'id', 'report', prefix => 'order/'), fence.claim('alice', 34, 'a')";
    attempt(&mut keeper, protect).await.unwrap();
    psql(&url, &files()).unwrap();
    postgres::install(&mut keeper).await.unwrap();

    let stale = "select fence.present(33, 'a'); insert into accounts values ('alice', 7)";
    assert_eq!(attempt(&mut keeper, stale).await.unwrap_err(), STALE);
    attempt(&mut keeper, "delete from orders").await.unwrap();
    let reported =
        "select count(*) from fence.reports where detail::json ->> 'resource' = 'order/7'";
    assert_eq!(number(&mut keeper, reported).await, 1);
    let intact = "select count(*) from fence.status where problem is null";
    assert_eq!(number(&mut keeper, intact).await, 2);
    assert_eq!(attempt(&mut keeper, "delete from fence.fence").await.unwrap_err(), "ZF006");
    assert_eq!(number(&mut keeper, "select fence.forget('alice')").await, 1);
    attempt(&mut keeper, "select fence.unprotect('accounts')").await.unwrap();
}

/// As a later version will be applied over this one.
#[tokio::test]
async fn files_that_are_applied_while_clients_write_lose_nothing() {
    let (server, mut owner) = accounts().await;
    attempt(&mut owner, "select fence.protect('accounts', 'account_id', 'report')").await.unwrap();
    let protect =
        "create table strict (like accounts including all); insert into strict values ('alice');
        select fence.protect('strict', 'account_id')";
    attempt(&mut owner, protect).await.unwrap();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut clients = Vec::new();
    for _ in 0..3 {
        let (mut client, stopped) = (session(&server).await, stopped.clone());
        clients.push(tokio::spawn(async move {
            let (mut written, mut rejected) = (0, 0);
            while !*stopped.borrow() {
                // The first row is reported, because nothing was claimed yet.
                let write = "
                    begin; update accounts set balance = balance + 1 where account_id = 'alice';
                    select fence.claim('alice', 34, 'a');
                    update strict set balance = balance + 1 where account_id = 'alice'; commit";
                attempt(&mut client, write).await.unwrap();
                written += 1;
                let stale = "select fence.claim('alice', 33, 'a')";
                assert_eq!(attempt(&mut client, stale).await.unwrap_err(), STALE);
                let unclaimed = attempt(&mut client, "delete from strict").await;
                assert_eq!(unclaimed.unwrap_err(), TOKEN_REQUIRED);
                rejected += 1;
            }
            (written, rejected)
        }));
    }
    for _ in 0..5 {
        psql(&server.url(), &files()).unwrap();
        postgres::install(&mut owner).await.unwrap();
    }
    stop.send(true).unwrap();
    let mut written = 0;
    for client in clients {
        let (writes, rejections) = client.await.unwrap();
        assert!(writes > 0 && rejections > 0);
        written += writes;
    }
    let balances =
        "select max(s.balance) from strict s join accounts a on a.balance - 100 = s.balance";
    assert_eq!(number(&mut owner, balances).await, written);
}

#[tokio::test]
async fn another_build_is_recognised_before_anything_changes() {
    let version = |number| {
        format!("create function fence.version() returns int language sql as 'select {number}'")
    };
    let first = "create function fence.require(resource text) returns void language sql as ''";
    for (build, found) in [
        (first.to_owned(), "version is 1"),
        (version(2), "version is 2"),
        (version(6), "version is 6"),
        (version(8), "version is 8"),
    ] {
        let server = Postgres::start().await.unwrap();
        let mut owner = session(&server).await;
        let table = "
            create schema fence;
            create table fence.fence (
                resource text primary key, token bigint, holder text, claimed_by xid8);
            insert into fence.fence values ('alice', 34, 'a', '3');
            create table accounts (account_id text);
            create function fence.refuse_truncate() returns trigger language plpgsql
                as 'begin raise exception using errcode = ''ZF005''; end';
            create trigger fence_truncate before truncate on accounts
                for each statement execute function fence.refuse_truncate()";
        attempt(&mut owner, &format!("{table}; {build}")).await.unwrap();
        let by_psql = psql(&server.url(), &files()).unwrap_err();
        let by_install = postgres::install(&mut owner).await.unwrap_err().to_string();
        for rejected in [&by_psql, &by_install] {
            assert!(rejected.contains("another build") && rejected.contains(found), "{rejected}");
        }
        let functions = "select count(*) from pg_proc where pronamespace = 'fence'::regnamespace";
        assert_eq!(number(&mut owner, functions).await, 2);

        // As the error says, by the name of the README's section.
        assert!(by_psql.contains("migrations/README.md, \"Applying the files\""), "{by_psql}");
        let (before, carry) = (
            ["lock table fence.fence", "alter schema fence rename to fence_before"],
            [
                "insert into fence.fence select resource, token, holder, claimed_by from fence_before.fence",
                "drop schema fence_before cascade",
                "select fence.protect(",
            ],
        );
        let guide = include_str!("../../../migrations/README.md");
        let (_, section) = guide.split_once("## Applying the files").unwrap();
        let (section, _) = section.split_once("## ").unwrap();
        for step in before.iter().chain(&carry) {
            assert!(
                section.contains(step.trim_start_matches("select ").trim_end_matches('(')),
                "{step}"
            );
        }
        attempt(&mut owner, &format!("begin; {}; commit", before.join("; "))).await.unwrap();
        psql(&server.url(), &files()).unwrap();
        let carry = format!("{}'accounts', 'account_id')", carry.join("; "));
        attempt(&mut owner, &carry).await.unwrap();
        assert_eq!(number(&mut owner, "select fence.version()::bigint").await, 7);
        let rejected = attempt(&mut owner, "insert into accounts values ('alice')").await;
        assert_eq!(rejected.unwrap_err(), TOKEN_REQUIRED);
        assert_it_works(&server).await;
    }
}

/// An encoding that has few characters.
#[tokio::test]
async fn fence_can_be_installed_in_a_database_in_latin1() {
    let server = Postgres::start().await.unwrap();
    let create =
        "create database narrow encoding latin1 template template0 lc_collate 'C' lc_ctype 'C'";
    attempt(&mut session(&server).await, create).await.unwrap();
    let mut narrow = PgConnection::connect(&server.url_of("narrow")).await.unwrap();
    postgres::install(&mut narrow).await.unwrap();
    attempt(&mut narrow, "select fence.claim('alice', 34)").await.unwrap();
}

#[tokio::test]
async fn files_are_applied_in_a_transaction_only() {
    let server = Postgres::start().await.unwrap();
    let first = std::fs::read_to_string(&files()[0]).unwrap();
    // psql sends one statement at a time.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), first).unwrap();
    let rejected = messages(&server, &format!("\\i {}", file.path().display()));
    assert!(rejected.contains("must be applied in a transaction"), "{rejected}");
}

/// No `void`, no `regclass`: some drivers read only common types.
#[tokio::test]
async fn every_answer_is_of_a_common_type() {
    let (_server, mut database) = accounts().await;
    let called = "
        select count(*) from pg_proc
        where oid in ('fence.claim(text, bigint, text)'::regprocedure,
            'fence.present(bigint, text)'::regprocedure, 'fence.forget(text)'::regprocedure,
            'fence.protect(regclass, text, text, text)'::regprocedure,
            'fence.unprotect(regclass)'::regprocedure)
            and prorettype in ('bigint'::regtype, 'text'::regtype)";
    assert_eq!(number(&mut database, called).await, 5);
    assert_eq!(number(&mut database, "select fence.claim('alice', 35)").await, 35);
    assert_eq!(number(&mut database, "select fence.claim('alice', 35)").await, 35);
    assert_eq!(number(&mut database, "select fence.present(36)").await, 36);
    let uncommon = "
        select count(*) from information_schema.columns
        where table_schema = 'fence' and table_name in ('status', 'fences')
            and data_type not in ('text', 'bigint', 'ARRAY')";
    assert_eq!(number(&mut database, uncommon).await, 0);
}

#[tokio::test]
async fn token_that_is_days_below_the_fence_hints_at_another_counter() {
    let (_server, mut database) = accounts().await;
    attempt(&mut database, "select fence.claim('bob', 1795000000000)").await.unwrap();
    for (claim, expected) in [
        ("select fence.claim('bob', 33)", "a counter started anew"),
        ("select fence.claim('bob', 1794900000000)", "two lock services"),
        ("select fence.claim('bob', 1794999999999)", "granted to another client"),
        ("select fence.claim('alice', 33)", "granted to another client"),
    ] {
        let rejected = sqlx::query(claim).execute(&mut database).await.unwrap_err();
        let rejected = rejected.as_database_error().unwrap();
        let rejected = rejected.downcast_ref::<sqlx::postgres::PgDatabaseError>();
        assert_eq!(rejected.code(), STALE);
        assert!(rejected.hint().unwrap().contains(expected), "{claim}: {:?}", rejected.hint());
    }
}

#[tokio::test]
async fn restored_database_is_as_protected_as_the_one_that_was_dumped() {
    let (server, mut database) = accounts().await;
    let other = "
        create table orders (id int, year int) partition by list (year);
        create table orders_1 partition of orders for values in (1);
        select fence.protect('orders', 'id', prefix => e'back\\\\slash')";
    attempt(&mut database, other).await.unwrap();
    attempt(&mut database, "create database restored").await.unwrap();
    let restored_url = server.url().replace("/postgres?", "/restored?");

    let file = tempfile::NamedTempFile::new().unwrap();
    let mut dump = Command::new("pg_dump");
    dump.arg("--dbname").arg(server.url()).arg("--file").arg(file.path());
    assert!(dump.status().expect("postgresql-client has pg_dump").success());
    let mut restore = Command::new("psql");
    restore.args(["--set", "ON_ERROR_STOP=1", "--no-psqlrc", "--quiet", "--file"]);
    restore.arg(file.path()).arg(&restored_url);
    assert!(restore.output().unwrap().status.success());

    let mut restored = PgConnection::connect(&restored_url).await.unwrap();
    for database in [&mut database, &mut restored] {
        let protected = "
            select count(*) from fence.status
            where problem is null
                and (resource_column, prefix) in (('account_id', ''), ('id', e'back\\\\slash'))";
        assert_eq!(number(database, protected).await, 3);
        let stale = "select fence.present(33, 'a'); delete from accounts";
        assert_eq!(attempt(database, stale).await.unwrap_err(), STALE);
    }
}

#[tokio::test]
async fn fences_show_no_holder_whole() {
    let (_server, mut database) = accounts().await;
    let claims = "
        select fence.claim('alice', 35, '0123456789abcdef'), fence.claim('none', 1),
            fence.claim('short', 1, '0123456789abcde')";
    attempt(&mut database, claims).await.unwrap();
    let shown = "
        select count(*) from fence.fences
        where (resource, token, holder) in
            (('alice', 35, '01234567...'), ('none', 1, ''), ('short', 1, '...'))";
    assert_eq!(number(&mut database, shown).await, 3);
}

#[tokio::test]
async fn settings_of_the_installer_change_nothing() {
    let server = Postgres::start().await.unwrap();
    let mut installer = session(&server).await;
    let settings = "
        set standard_conforming_strings = off; set quote_all_identifiers = on;
        set datestyle = 'SQL, DMY'; set check_function_bodies = on";
    attempt(&mut installer, settings).await.unwrap();
    postgres::install(&mut installer).await.unwrap();
    let table = "create table notes (id text); select fence.protect('notes', 'id')";
    attempt(&mut installer, table).await.unwrap();
    let status = "select problem is null from fence.status";
    assert!(is_true(&mut session(&server).await, status).await);
    assert_it_works(&server).await;
}
