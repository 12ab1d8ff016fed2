//! Installing the fence, again, and beside others.

use std::process::Command;

use fence::postgres;
use sqlx::{Connection, PgConnection};
use testbed::Postgres;

use super::{STALE, accounts, attempt, files, number, psql, session};

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
async fn installing_again_keeps_fences_and_protection() {
    let (server, mut database) = accounts().await;
    psql(&server.url(), &files()).unwrap();
    postgres::install(&mut database).await.unwrap();
    let stale = "
        select fence.present(33, 'a'); update accounts set balance = 7 where account_id = 'alice'";
    assert_eq!(attempt(&mut database, stale).await.unwrap_err(), STALE);
}

#[tokio::test]
async fn restored_database_is_as_protected_as_the_one_that_was_dumped() {
    let (server, mut database) = accounts().await;
    let other = "
        create table orders (id int, year int) partition by list (year);
        create table orders_1 partition of orders for values in (1);
        select fence.protect('orders', $$e'back\\\\slash' || \"id\"$$)";
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
            where checks_rows and rejects_truncate
                and resource = any (array['account_id', $$e'back\\\\slash' || \"id\"$$])";
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
