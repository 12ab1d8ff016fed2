//! Installing the fence, again, and over the fence of another build.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use fence::mariadb;
use sqlx::{Connection, MySqlConnection, migrate::Migrator};
use testbed::MariaDb;

use super::{
    ACCOUNTS, FILES, STALE, TOKEN_REQUIRED, accounts, attempt, attempt_all, number, protect, run,
    session,
};

const UPDATE: &str = "update accounts set balance = 7 where account_id = 'alice'";
const GRANTS: &str = "
    select count(*) from mysql.procs_priv where user = 'writer' and routine_name in
        ('claim', 'present', 'protect_sql')";

#[tokio::test]
async fn installing_again_keeps_fences_protection_and_grants() {
    let (server, mut database) = accounts().await;
    for statement in [
        "create user writer@localhost",
        "grant execute on procedure fence.claim to writer@localhost",
        "grant execute on procedure fence.present to writer@localhost",
        "grant execute on procedure fence.protect_sql to writer@localhost",
    ] {
        attempt(&mut database, statement).await.expect(statement);
    }
    for _ in 0..2 {
        // A rejection holds after each file.
        for file in FILES {
            run(&server, "test", file).unwrap();
            let claim = "call fence.claim('alice', 33, 'a')";
            assert_eq!(attempt(&mut database, claim).await.unwrap_err(), STALE);
        }
        mariadb::install(&mut database).await.unwrap();
    }
    let stale = attempt_all(&mut database, &["call fence.present(33, 'a')", UPDATE]).await;
    assert_eq!(stale.unwrap_err(), STALE);
    assert_eq!(number(&mut database, GRANTS).await, 3);
    assert_eq!(number(&mut database, "select cast(fence.version() as signed)").await, 7);
    // The mode of the session stays as it was.
    let mode = "select @@sql_mode like '%NO_AUTO_CREATE_USER%'";
    assert_eq!(number(&mut database, mode).await, 1);

    // Damaged objects of the fence are repaired.
    for damage in [
        "drop procedure fence.prove",
        "create or replace procedure fence.transaction(out number bigint) set number = 1",
        "drop view fence.status",
        "drop table fence.proofs",
        "drop function fence.session",
        "delete from fence.proofs",
    ] {
        attempt(&mut database, damage).await.expect(damage);
        mariadb::install(&mut database).await.unwrap();
        assert_eq!(
            attempt_all(&mut database, &[UPDATE]).await.unwrap_err(),
            TOKEN_REQUIRED,
            "{damage}"
        );
        let claim = "call fence.claim('alice', 34, 'a')";
        attempt_all(&mut database, &[claim, UPDATE]).await.expect(damage);
        let well = "select count(*) from fence.status where problem is null";
        assert_eq!(number(&mut database, well).await, 1, "{damage}");
    }
    attempt(&mut database, "drop procedure fence.claim").await.unwrap();
    // The negative control: with the procedure, the grant is gone.
    assert_eq!(number(&mut database, GRANTS).await, 2);

    // The client alone is enough, also with the fence's own database selected.
    attempt(&mut database, "drop database fence").await.unwrap();
    attempt(&mut database, "create database fence").await.unwrap();
    for file in FILES.iter().chain(&FILES) {
        run(&server, "fence", file).unwrap();
    }
    protect(&mut database, "test.accounts", "account_id").await;
    attempt(&mut database, "call fence.claim('alice', 34, 'a')").await.unwrap();
    let stale = attempt_all(&mut database, &["call fence.present(33, 'a')", UPDATE]).await;
    assert_eq!(stale.unwrap_err(), STALE);
}

/// Begins, runs both statements, and commits. Returns whether the transaction was accepted; a deadlock or a timeout is
/// retried.
async fn transact(session: &mut MySqlConnection, offer: &'static str) -> Result<(), sqlx::Error> {
    const INCREMENT: &str = "update accounts set balance = balance + 1 where account_id = 'alice'";
    loop {
        let mut done = Ok(());
        for statement in ["begin", offer, INCREMENT, "commit"] {
            if done.is_ok() {
                done = sqlx::raw_sql(statement).execute(&mut *session).await.map(|_| ());
            }
        }
        if done.is_err() {
            sqlx::raw_sql("rollback").execute(&mut *session).await?;
        }
        match done {
            Err(error) if mariadb::is_contention(&error) => {}
            done => return done,
        }
    }
}

/// So will a later version be applied over this one. A procedure is replaced once no transaction uses it, and those that
/// begin meanwhile wait. One that they wait for may wait for them: then `innodb_lock_wait_timeout` decides.
#[tokio::test]
async fn applying_the_files_while_clients_write_loses_no_write_and_accepts_no_wrong_one() {
    let (server, mut database) = accounts().await;
    attempt(&mut database, "set global innodb_lock_wait_timeout = 1").await.unwrap();
    let (server, applied) = (&server, &AtomicBool::new(false));
    let client = |offer: &'static str, expected: Option<&'static str>| async move {
        let (mut session, mut outcomes) = (session(server).await, 0);
        while !applied.load(Ordering::Relaxed) {
            let done = transact(&mut session, offer).await;
            let code = done.err().map(|error| {
                error.as_database_error().unwrap().code().expect("a code").into_owned()
            });
            assert_eq!(code.as_deref(), expected, "{offer}");
            outcomes += 1;
        }
        outcomes
    };
    let installer = async {
        for _ in 0..5 {
            mariadb::install(&mut database).await.unwrap();
        }
        applied.store(true, Ordering::Relaxed);
    };
    let (claimed, presented, stale, without, ()) = tokio::join!(
        client("call fence.claim('alice', 34, 'a')", None),
        client("call fence.present(34, 'a')", None),
        client("call fence.present(33, 'a')", Some(STALE)),
        client("select 1", Some(TOKEN_REQUIRED)),
        installer
    );
    assert!(claimed > 0 && presented > 0 && stale > 0 && without > 0);
    assert_eq!(number(&mut database, super::BALANCE).await, 100 + claimed + presented);
}

#[tokio::test]
async fn installer_needs_no_global_rights() {
    let server = MariaDb::start().await.unwrap();
    let mut root = session(&server).await;
    for statement in [
        "delete from mysql.db",
        "flush privileges",
        "create user installer@localhost",
        "grant all on fence.* to installer@localhost",
        "grant all on test.* to installer@localhost",
    ] {
        attempt(&mut root, statement).await.unwrap();
    }
    let url = server.url().replace("root@", "installer@");
    let mut installer = MySqlConnection::connect(&url).await.unwrap();
    mariadb::install(&mut installer).await.unwrap();
    for statement in ACCOUNTS {
        attempt(&mut installer, statement).await.unwrap();
    }
    protect(&mut installer, "test.accounts", "account_id").await;
    assert_eq!(attempt_all(&mut root, &[UPDATE]).await.unwrap_err(), TOKEN_REQUIRED);
    let claim = "call fence.claim('alice', 34, 'a')";
    attempt_all(&mut root, &[claim, UPDATE]).await.unwrap();
    // Without PROCESS, it sees all but a tablespace that was discarded.
    let problems = "select count(*) from fence.status where problem is not null";
    assert_eq!(number(&mut installer, problems).await, 0);
    attempt(&mut root, "drop trigger accounts_fence_insert").await.unwrap();
    assert_eq!(number(&mut installer, problems).await, 1);
}

/// As `sqlx migrate run --source migrations/mariadb/fence` does.
#[tokio::test]
async fn migration_tool_applies_the_files_to_a_bare_server() {
    let server = MariaDb::start().await.unwrap();
    let mut database = session(&server).await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations/mariadb/fence");
    let migrator = Migrator::new(folder).await.unwrap();
    for _ in 0..2 {
        migrator.run(&mut database).await.unwrap();
    }
    for statement in ACCOUNTS {
        attempt(&mut database, statement).await.unwrap();
    }
    protect(&mut database, "test.accounts", "account_id").await;
    assert_eq!(attempt_all(&mut database, &[UPDATE]).await.unwrap_err(), TOKEN_REQUIRED);
    let claim = "call fence.claim('alice', 34, 'a')";
    attempt_all(&mut database, &[claim, UPDATE]).await.unwrap();
}

/// The earliest fence lay in the application's database, and later ones answered a lower version, or none.
#[tokio::test]
async fn fence_of_another_build_is_left_as_it_is() {
    let old_table = "create table fence.resources (
        resource varchar(512) primary key, token bigint, holder varchar(128), claimed_by varchar(80))";
    for (earlier, found) in [
        (
            &["create procedure test.fence_claim() select 1"][..],
            "`test` has the fence of an earlier build",
        ),
        (
            &[
                "create database fence",
                "create function fence.version() returns int return 6",
                old_table,
                "insert into fence.resources values ('alice', 34, 'a', 'x')",
            ],
            "its version is 6 instead of 7",
        ),
        (&["create database fence", old_table], "its version is 0 instead of 7"),
        (
            &["create database fence", "create function fence.version() returns int return 1000"],
            "its version is 1000 instead of 7",
        ),
    ] {
        let server = MariaDb::start().await.unwrap();
        let mut database = session(&server).await;
        for statement in earlier {
            attempt(&mut database, statement).await.expect(statement);
        }
        let all = "
            select count(*) from information_schema.routines where routine_schema in ('test', 'fence')
            union all
            select count(*) from information_schema.tables where table_schema in ('test', 'fence')";
        let before: Vec<i64> = sqlx::query_scalar(all).fetch_all(&mut database).await.unwrap();
        let rejected = mariadb::install(&mut database).await.unwrap_err().to_string();
        assert!(rejected.contains(found) && rejected.contains("Nothing was changed"), "{rejected}");
        let rejected = run(&server, "test", FILES[0]).unwrap_err();
        assert!(rejected.contains(found) && rejected.contains("README"), "{rejected}");
        let after: Vec<i64> = sqlx::query_scalar(all).fetch_all(&mut database).await.unwrap();
        assert_eq!(before, after, "{found}");
    }
}

/// As migrations/README.md describes it.
#[tokio::test]
async fn fences_of_another_build_are_carried_over_by_hand() {
    let server = MariaDb::start().await.unwrap();
    let mut database = session(&server).await;
    for statement in ACCOUNTS.iter().chain(&[
        "create database fence",
        "create function fence.version() returns int return 6",
        "create table fence.resources (
            resource varchar(512) primary key, token bigint, holder varchar(128), claimed_by varchar(80))",
        "insert into fence.resources values ('alice', 34, 'a', 'x')",
        "create database fence_before",
        "rename table fence.resources to fence_before.resources",
        "drop database fence",
    ]) {
        attempt(&mut database, statement).await.expect(statement);
    }
    mariadb::install(&mut database).await.unwrap();
    let carry = "insert into fence.resources (resource, token, holder)
        select resource, token, holder from fence_before.resources";
    attempt(&mut database, carry).await.unwrap();
    protect(&mut database, "test.accounts", "account_id").await;
    for (offer, expected) in [
        ("call fence.claim('alice', 33, 'a')", Err(STALE.to_owned())),
        ("select 1", Err(TOKEN_REQUIRED.to_owned())),
        ("call fence.claim('alice', 34, 'a')", Ok(())),
    ] {
        assert_eq!(attempt_all(&mut database, &[offer, UPDATE]).await, expected, "{offer}");
    }
}
