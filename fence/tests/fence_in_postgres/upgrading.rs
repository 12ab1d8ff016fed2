//! From the first version to this one, and from this one to itself: nothing is lost.

use std::fs;

use fence::postgres;
use sqlx::{PgConnection, migrate::Migrator};
use tempfile::TempDir;
use testbed::Postgres;

use super::{
    STALE, TOKEN_REQUIRED, TRUNCATE_REJECTED, attempt, attempt_and_roll_back, files, first_version,
    is_true, messages, number, psql, session, session_of,
};

/// As `fence::postgres::install` did when there was nothing else to install.
async fn install_first_version(database: &mut PgConnection) {
    let folder = TempDir::new().unwrap();
    for file in first_version() {
        fs::copy(&file, folder.path().join(file.file_name().unwrap())).unwrap();
    }
    let mut migrator = Migrator::new(folder.path()).await.unwrap();
    migrator.create_schema("fence");
    migrator.dangerous_set_table_name("fence.migrations");
    migrator.run(database).await.unwrap();
}

const IN_USE: &str = "
    create table accounts (account_id text primary key, balance bigint not null default 0);
    insert into accounts values ('alice', 100), ('bob', 100);
    select fence.protect('accounts', 'account_id');
    create table orders (id bigint, year int) partition by list (year);
    create table orders_1 partition of orders for values in (1);
    select fence.protect('orders', $$'order/' || id$$);
    select fence.claim('alice', 34, 'a');
    create role monitor login;
    grant usage on schema fence to monitor;
    grant select on fence.status, fence.fences to monitor;
    grant select (resource) on fence.fence to monitor with grant option;
    revoke execute on function fence.protect(regclass, text) from public;
    grant execute on function fence.protect(regclass, text) to monitor;
    create view unprotected as select protected from fence.status where not checks_rows;";

async fn assert_nothing_is_lost(server: &Postgres) {
    let mut owner = session(server).await;
    for (write, expected) in [
        ("select fence.present(33, 'a'); delete from accounts", STALE),
        ("insert into orders values (1, 1)", TOKEN_REQUIRED),
        ("truncate orders_1", TRUNCATE_REJECTED),
        ("select fence.claim('alice', 33, 'z')", STALE),
    ] {
        let rejected = attempt_and_roll_back(&mut owner, write).await;
        assert_eq!(rejected.unwrap_err(), expected, "{write}");
    }
    let valid = "
        select fence.claim('alice', 34, 'a');
        update accounts set balance = 7 where account_id = 'alice'";
    attempt_and_roll_back(&mut owner, valid).await.unwrap();
    let status = "select count(*) from fence.status where checks_rows and rejects_truncate";
    assert_eq!(number(&mut owner, status).await, 3);
    // A view over the view still stands, and sees the new one.
    assert_eq!(number(&mut owner, "select count(*) from unprotected").await, 0);
    let disabled = "
        begin; alter table accounts disable trigger fence_rows;
        create temp table seen on commit drop as select * from unprotected";
    attempt(&mut owner, disabled).await.unwrap();
    assert_eq!(number(&mut owner, "select count(*) from seen").await, 1);
    attempt(&mut owner, "rollback").await.unwrap();

    let mut monitor = session_of(server, "monitor").await;
    for granted in [
        "select * from fence.status",
        "select * from fence.fences",
        "select resource from fence.fence",
    ] {
        attempt(&mut monitor, granted).await.expect(granted);
    }
    let rejected = attempt(&mut monitor, "select token from fence.fence").await;
    assert_eq!(rejected.unwrap_err(), "42501");
    let executable = "
        select not has_function_privilege('public', 'fence.protect(regclass, text)', 'execute')
            and has_function_privilege('monitor', 'fence.protect(regclass, text)', 'execute')
            and has_column_privilege(
                'monitor', 'fence.fence', 'resource', 'select with grant option')";
    assert!(is_true(&mut owner, executable).await);
}

#[tokio::test]
async fn first_version_is_upgraded_in_use() {
    for by_psql in [false, true] {
        let server = Postgres::start().await.unwrap();
        let mut owner = session(&server).await;
        if by_psql {
            psql(&server.url(), &first_version()).unwrap();
        } else {
            install_first_version(&mut owner).await;
        }
        attempt(&mut owner, IN_USE).await.unwrap();
        assert_eq!(attempt(&mut owner, "select fence.version()").await.unwrap_err(), "42883");
        if by_psql {
            psql(&server.url(), &files()).unwrap();
        } else {
            postgres::install(&mut owner).await.unwrap();
        }
        assert_nothing_is_lost(&server).await;

        assert_eq!(number(&mut owner, "select fence.version()::bigint").await, 2);
        let old = "select count(*) from fence.status where version < fence.version()";
        assert_eq!(number(&mut owner, old).await, 3);
        // As migrations/README.md says.
        let again = "
            select fence.protect(relation, resource, mode) from fence.protected
            where version < fence.version()";
        attempt(&mut owner, again).await.unwrap();
        assert_eq!(number(&mut owner, old).await, 0);
        let constraints = "select count(*) from pg_constraint where contype = 't'";
        assert_eq!(number(&mut owner, constraints).await, 3);
        assert_nothing_is_lost(&server).await;
        // Whatever comes after that, in any order.
        psql(&server.url(), &files()).unwrap();
        postgres::install(&mut owner).await.unwrap();
        psql(&server.url(), &files()).unwrap();
        assert_nothing_is_lost(&server).await;
    }
}

/// The negative control: applied again, the first version takes the grants away.
#[tokio::test]
async fn first_version_alone_takes_grants_away() {
    let server = Postgres::start().await.unwrap();
    let mut owner = session(&server).await;
    psql(&server.url(), &first_version()).unwrap();
    attempt(&mut owner, IN_USE).await.unwrap();
    let may_select = "select has_table_privilege('monitor', 'fence.status', 'select')";
    assert!(is_true(&mut owner, may_select).await);
    psql(&server.url(), &first_version()).unwrap();
    assert!(!is_true(&mut owner, may_select).await);
}

/// A failure on the way, without a transaction around the files, loses no grant either.
#[tokio::test]
async fn application_that_was_cut_short_is_completed_by_the_next() {
    let server = Postgres::start().await.unwrap();
    let mut owner = session(&server).await;
    psql(&server.url(), &files()).unwrap();
    attempt(&mut owner, IN_USE).await.unwrap();
    psql(&server.url(), &files()[..3]).unwrap();
    psql(&server.url(), &files()[..1]).unwrap();
    psql(&server.url(), &files()).unwrap();
    assert_nothing_is_lost(&server).await;
}

/// The old files alone would bring back the old protection.
#[tokio::test]
async fn first_version_does_not_replace_a_later_one() {
    let (server, _owner) = super::accounts().await;
    let rejected = psql(&server.url(), &first_version()).unwrap_err();
    assert!(rejected.contains("cannot drop columns from view"), "{rejected}");
}

#[tokio::test]
async fn rows_without_a_valid_resource_are_counted() {
    let (server, mut owner) = super::fence().await;
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
