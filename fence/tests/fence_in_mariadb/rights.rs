//! Users who may only use the fence can't change it.

use sqlx::{Connection, MySqlConnection};
use testbed::MariaDb;

use super::{
    HOLDER_CONFLICT, STALE, TOKEN_REQUIRED, accounts, attempt, attempt_all, number, session,
};

const UPDATE: &str = "update accounts set balance = 7 where account_id = 'alice'";

/// A user with all rights in the application's database, TRIGGER excepted.
async fn writer(server: &MariaDb, procedures: [&str; 2]) -> MySqlConnection {
    let mut root = session(server).await;
    for statement in [
        // As it comes, the database `test` is open to all.
        "delete from mysql.db",
        "flush privileges",
        "create user writer@localhost",
        "grant all on test.* to writer@localhost",
        "revoke trigger on test.* from writer@localhost",
    ] {
        attempt(&mut root, statement).await.expect(statement);
    }
    for procedure in procedures {
        let grant = format!("grant execute on procedure {procedure} to writer@localhost");
        attempt(&mut root, &grant).await.unwrap();
    }
    session_of_writer(server).await
}

async fn session_of_writer(server: &MariaDb) -> MySqlConnection {
    MySqlConnection::connect(&server.url().replace("root@", "writer@")).await.unwrap()
}

#[tokio::test]
async fn writer_writes_under_its_token_and_can_not_touch_the_fence() {
    let (server, _root) = accounts().await;
    let mut writer = writer(&server, ["fence.claim", "fence.present"]).await;
    for (before, expected) in [
        ("select 1", Err(TOKEN_REQUIRED)),
        ("call fence.present(33, 'a')", Err(STALE)),
        ("call fence.claim('alice', 34, 'b')", Err(HOLDER_CONFLICT)),
        ("call fence.present(34, 'a')", Ok(())),
        ("call fence.claim('alice', 34, 'a')", Ok(())),
    ] {
        let done = attempt_all(&mut writer, &[before, UPDATE]).await;
        assert_eq!(done.as_ref().map(|_| ()).map_err(String::as_str), expected, "{before}");
    }
    for forbidden in [
        "select * from fence.resources",
        "select token from fence.resources for update",
        "update fence.resources set token = 1",
        "delete from fence.resources",
        "insert into fence.resources values ('x', 1, '', 0, 0)",
        "replace into fence.resources values ('alice', 1, '', 0, 0)",
        "delete from fence.proofs",
        "insert into fence.proofs () values ()",
        "insert into fence.anchors values (1)",
        "insert into fence.numbers (id) values (1)",
        "truncate fence.resources",
        "drop table fence.resources",
        "create or replace table fence.resources (id int)",
        "create temporary table fence.resources (id int)",
        "create trigger fence.t before update on fence.resources for each row set new.token = 1",
        "lock tables fence.resources write",
        "drop procedure fence.prove",
        "create or replace procedure fence.prove(r text, out p boolean) set p = true",
        "create or replace procedure fence.check_both(t text, r text, m text) select 1",
        "create procedure fence.mine() select 1",
        "select * from fence.fences",
        "select * from fence.status",
        "select * from fence.reports",
        "update fence.protected set mode = 'report'",
        "call fence.report('test.accounts')",
        "call fence.unprotect('test.accounts')",
        "call fence.forget('alice')",
        "call fence.check_both('test.accounts', 'alice', 'alice')",
        "call fence.prove('alice', @proven)",
        "call fence.transaction(@number)",
        "call fence.claim_in(1, 'alice', 35, 'a')",
        "do fence.session()",
        "create or replace trigger accounts_fence_update after update on accounts
         for each row set @x = 1",
        "drop trigger accounts_fence_update",
        "drop database fence",
    ] {
        let rejected = attempt(&mut writer, forbidden).await.unwrap_err();
        assert!(["42000", "HY000"].contains(&rejected.as_str()), "{forbidden}: {rejected}");
    }
    assert_eq!(attempt_all(&mut writer, &[UPDATE]).await.unwrap_err(), TOKEN_REQUIRED);
}

/// Nor does a temporary table of the same name.
#[tokio::test]
async fn rights_on_the_applications_database_do_not_lower_the_fence() {
    const STALE_CLAIM: &str = "call fence.claim('alice', 1, 'a')";
    let (server, mut root) = accounts().await;
    let mut writer = writer(&server, ["fence.claim", "fence.present"]).await;
    for lowers in [
        "create temporary table fence (resource varchar(40), token bigint)",
        "create temporary table resources (resource varchar(40), token bigint)",
        "create temporary table proofs (resource varchar(40), claimed_on bigint)",
        "create table protected (protected varchar(40), mode varchar(40))",
        "use test",
    ] {
        attempt(&mut writer, lowers).await.expect(lowers);
        assert_eq!(attempt(&mut writer, STALE_CLAIM).await.unwrap_err(), STALE, "{lowers}");
        assert_eq!(
            attempt_all(&mut writer, &[UPDATE]).await.unwrap_err(),
            TOKEN_REQUIRED,
            "{lowers}"
        );
    }
    // The negative control: with rights on the database `fence`, and so with rights on everything.
    for (lowers, database) in
        [("update fence.resources set token = 1", "fence.*"), ("select 1", "*.*")]
    {
        attempt(&mut root, &format!("grant all on {database} to writer@localhost")).await.unwrap();
        let mut writer = session_of_writer(&server).await;
        attempt(&mut writer, lowers).await.expect(lowers);
        attempt(&mut writer, STALE_CLAIM).await.expect("the negative control is accepted");
    }
    assert_eq!(number(&mut root, "select token from fence.resources").await, 1);
}
