//! Installing the fence, again, and for users who may only use it.

use std::path::PathBuf;

use fence::mariadb;
use sqlx::{Connection, MySqlConnection};

use super::{
    ACCOUNTS, HOLDER_CONFLICT, STALE, TOKEN_REQUIRED, accounts, attempt, attempt_all,
    mariadb_command,
};

#[tokio::test]
async fn installing_again_keeps_fences_and_protection() {
    let (server, mut database) = accounts().await;
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations/mariadb/fence/0001_fence.sql");
    let file = PathBuf::from(file);
    for _ in 0..2 {
        mariadb_command(&server, &file, &["--delimiter=//"]).unwrap();
        mariadb::install(&mut database).await.unwrap();
    }
    let update = "update accounts set balance = 7 where account_id = 'alice'";
    let stale = attempt_all(&mut database, &["call fence_present(33, 'a')", update]).await;
    assert_eq!(stale.unwrap_err(), STALE);

    // And the file alone is enough.
    attempt(&mut database, "create database other").await.unwrap();
    attempt(&mut database, "use other").await.unwrap();
    let script = tempfile::NamedTempFile::new().unwrap();
    let statements = format!("use other//\n{}", std::fs::read_to_string(&file).unwrap());
    std::fs::write(script.path(), statements).unwrap();
    for _ in 0..2 {
        let script = script.path().to_owned();
        mariadb_command(&server, &script, &["--delimiter=//"]).unwrap();
    }
    for statement in ACCOUNTS {
        attempt(&mut database, statement).await.unwrap();
    }
    let stale = attempt_all(&mut database, &["call fence_present(33, 'a')", update]).await;
    assert_eq!(stale.unwrap_err(), STALE);
}

#[tokio::test]
async fn writer_writes_under_its_token_and_can_not_touch_the_fence() {
    let (server, mut root) = accounts().await;
    for statement in [
        // As it comes, the database `test` is open to all.
        "delete from mysql.db",
        "flush privileges",
        "create user writer@localhost",
        "grant all on test.accounts to writer@localhost",
        "grant execute on procedure test.fence_claim to writer@localhost",
        "grant execute on procedure test.fence_present to writer@localhost",
    ] {
        attempt(&mut root, statement).await.expect(statement);
    }
    let url = server.url().replace("root@", "writer@");
    let mut writer = MySqlConnection::connect(&url).await.unwrap();
    let update = "update accounts set balance = 7 where account_id = 'alice'";
    for (before, expected) in [
        ("select 1", Err(TOKEN_REQUIRED)),
        ("call fence_present(33, 'a')", Err(STALE)),
        ("call fence_claim('alice', 34, 'b')", Err(HOLDER_CONFLICT)),
        ("call fence_present(34, 'a')", Ok(())),
        ("call fence_claim('alice', 34, 'a')", Ok(())),
    ] {
        let done = attempt_all(&mut writer, &[before, update]).await;
        assert_eq!(done.as_ref().map(|_| ()).map_err(String::as_str), expected, "{before}");
    }
    for forbidden in [
        "select * from fence",
        "select token from fence for update",
        "update fence set token = 1",
        "delete from fence",
        "insert into fence values ('x', 1, '', '')",
        "replace into fence values ('alice', 1, '', '')",
        "truncate fence",
        "drop table fence",
        "create or replace table fence (id int)",
        "create trigger t before update on fence for each row set new.token = 1",
        "lock tables fence write",
        "drop procedure fence_require",
        "create or replace procedure fence_require(r text) select 1",
        "create procedure mine() delete from fence",
    ] {
        assert_eq!(attempt(&mut writer, forbidden).await.unwrap_err(), "42000", "{forbidden}");
    }
}
