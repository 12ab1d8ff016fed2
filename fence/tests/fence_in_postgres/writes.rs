//! Every way to write a row, and to move one from a resource to another.

use sqlx::{AssertSqlSafe, postgres::PgDatabaseError};

use super::{
    HOLDER_CONFLICT, MALFORMED, STALE, TOKEN_REQUIRED, TRUNCATE_REJECTED, accounts, attempt,
    attempt_and_roll_back, fence, number,
};

const WRITES: &[&str] = &[
    "insert into TABLE values (2, 'alice', 7)",
    "insert into TABLE values (1, 'alice', 7) on conflict (entry_id) do update set amount = 7",
    "insert into TABLE select 2, account_id, 7 from owners where account_id = 'alice'",
    "update TABLE set amount = 7 where account_id = 'alice'",
    "update TABLE set amount = amount where account_id = 'alice'",
    "delete from TABLE where account_id = 'alice'",
    "delete from owners where account_id = 'alice'",
    "with moved as (delete from TABLE returning *) insert into owners select 'z' from moved",
    "merge into TABLE t using owners o on t.account_id = o.account_id
     when matched then update set amount = 7",
    "merge into TABLE t using owners o on t.account_id = o.account_id when matched then delete",
    "merge into TABLE t using (values ('alice')) v (id) on false
     when not matched then insert values (2, id, 7)",
    "do $$ begin update TABLE set amount = 7; end $$",
];

const ENTRIES: &str = "
    create table owners (account_id text primary key);
    insert into owners values ('alice');
    create table TABLE (
        entry_id bigint primary key, account_id text references owners on delete cascade,
        amount bigint
    );
    insert into TABLE values (1, 'alice', 100);";

#[tokio::test]
async fn no_kind_of_write_passes_without_a_valid_token() {
    let (_server, mut database) = fence().await;
    attempt(&mut database, &ENTRIES.replace("TABLE", "entries")).await.unwrap();
    attempt(&mut database, "select fence.protect('entries', 'account_id')").await.unwrap();
    attempt(&mut database, "select fence.claim('alice', 34, 'a')").await.unwrap();

    let version = number(&mut database, "select current_setting('server_version_num')::bigint");
    let has_merge = version.await >= 150_000;
    for write in WRITES.iter().filter(|write| has_merge || !write.starts_with("merge")) {
        let write = write.replace("TABLE", "entries");
        for (before, expected) in [
            ("", Err(TOKEN_REQUIRED)),
            ("select fence.claim('bob', 34, 'a');", Err(TOKEN_REQUIRED)),
            ("select fence.present(33, 'a');", Err(STALE)),
            ("select fence.present(34, 'b');", Err(HOLDER_CONFLICT)),
            ("select fence.present(34, '');", Err(HOLDER_CONFLICT)),
            ("select fence.present(34, 'a');", Ok(())),
            ("select fence.present(35, 'b');", Ok(())),
            ("select fence.claim('alice', 34, 'a');", Ok(())),
            ("select fence.claim('alice', 35, 'b');", Ok(())),
        ] {
            let done = attempt_and_roll_back(&mut database, &format!("{before}{write}")).await;
            assert_eq!(done.as_ref().map(|_| ()).map_err(String::as_str), expected, "{write}");
        }
    }
    assert_eq!(number(&mut database, "select amount from entries").await, 100);
}

/// The negative control of the test above: the same writes pass.
#[tokio::test]
async fn every_kind_of_write_passes_where_no_table_is_protected() {
    let (_server, mut database) = fence().await;
    attempt(&mut database, &ENTRIES.replace("TABLE", "entries")).await.unwrap();
    let version = number(&mut database, "select current_setting('server_version_num')::bigint");
    let has_merge = version.await >= 150_000;
    for write in WRITES.iter().filter(|write| has_merge || !write.starts_with("merge")) {
        let write = write.replace("TABLE", "entries");
        attempt_and_roll_back(&mut database, &write).await.expect(&write);
    }
}

#[tokio::test]
async fn copy_takes_a_valid_token() {
    let (_server, mut database) = accounts().await;
    for (before, expected) in [
        ("begin", Err(TOKEN_REQUIRED)),
        ("begin; select fence.present(33, 'a')", Err(STALE)),
        ("begin; select fence.present(34, 'b')", Err(HOLDER_CONFLICT)),
        ("begin; select fence.present(34, 'a')", Ok(1)),
    ] {
        attempt(&mut database, before).await.unwrap();
        // It adds a second row of alice's; only the resource matters.
        attempt(&mut database, "alter table accounts drop constraint accounts_pkey").await.unwrap();
        let mut copy = database.copy_in_raw("copy accounts from stdin").await.unwrap();
        copy.send(b"alice\t7\n".as_slice()).await.unwrap();
        let done = copy.finish().await;
        let code =
            done.map_err(|error| error.as_database_error().unwrap().code().unwrap().into_owned());
        assert_eq!(code.as_ref().copied().map_err(String::as_str), expected, "{before}");
        attempt(&mut database, "rollback").await.unwrap();
    }
}

#[tokio::test]
async fn superuser_as_a_replica_is_rejected_too() {
    let (_server, mut database) = accounts().await;
    // An ordinary trigger doesn't fire in such a session.
    let ordinary = "
        create table seen (); create function see() returns trigger language plpgsql
        as 'begin insert into seen default values; return null; end';
        create trigger see after update on accounts for each row execute function see();
        set session_replication_role = replica";
    attempt(&mut database, ordinary).await.unwrap();
    let update = "update accounts set balance = 7 where account_id = 'alice'";
    assert_eq!(attempt(&mut database, update).await.unwrap_err(), TOKEN_REQUIRED);
    let stale = format!("select fence.present(33, 'a'); {update}");
    assert_eq!(attempt(&mut database, &stale).await.unwrap_err(), STALE);
    let truncate = "truncate accounts";
    assert_eq!(attempt(&mut database, truncate).await.unwrap_err(), TRUNCATE_REJECTED);
    let valid = format!("select fence.present(34, 'a'); {update}");
    attempt(&mut database, &valid).await.unwrap();
    assert_eq!(number(&mut database, "select count(*) from seen").await, 0);
}

#[tokio::test]
async fn moved_row_needs_the_tokens_of_both_resources() {
    let (_server, mut database) = accounts().await;
    attempt(&mut database, "select fence.claim('carol', 50, 'c')").await.unwrap();
    let moved = "update accounts set account_id = 'carol' where account_id = 'alice'";
    for (before, expected) in [
        ("select fence.claim('alice', 34, 'a')", Err(TOKEN_REQUIRED)),
        ("select fence.claim('carol', 50, 'c')", Err(TOKEN_REQUIRED)),
        ("select fence.present(34, 'a')", Err(STALE)),
        ("select fence.claim('alice', 34, 'a'), fence.present(49, 'c')", Err(STALE)),
        ("select fence.claim('carol', 50, 'c'), fence.present(33, 'a')", Err(STALE)),
        ("select fence.claim('alice', 34, 'a'), fence.claim('carol', 50, 'c')", Ok(())),
        ("select fence.claim('carol', 50, 'c'), fence.present(34, 'a')", Ok(())),
    ] {
        let done = attempt_and_roll_back(&mut database, &format!("{before}; {moved}")).await;
        assert_eq!(done.as_ref().map(|_| ()).map_err(String::as_str), expected, "{before}");
    }
}

#[tokio::test]
async fn row_that_a_later_trigger_moves_needs_the_tokens_of_both_resources() {
    let (_server, mut database) = accounts().await;
    // Its name comes after that of any trigger of the fence.
    let mover = "
        select fence.claim('carol', 50, 'c');
        create function move() returns trigger language plpgsql
        as $$ begin new.account_id = 'carol'; return new; end $$;
        create trigger zz_move before insert or update on accounts
        for each row execute function move();";
    attempt(&mut database, mover).await.unwrap();
    let alice = "select fence.claim('alice', 34, 'a');";
    let both = "select fence.claim('alice', 34, 'a'), fence.claim('carol', 50, 'c');";
    for write in [
        "update accounts set balance = 7 where account_id = 'alice'",
        "insert into accounts values ('alice', 7)",
    ] {
        let rejected = attempt_and_roll_back(&mut database, &format!("{alice}{write}")).await;
        assert_eq!(rejected.unwrap_err(), TOKEN_REQUIRED);
        attempt_and_roll_back(&mut database, &format!("{both}{write}")).await.unwrap();
    }
}

#[tokio::test]
async fn row_that_another_tables_trigger_writes_needs_its_token() {
    let (_server, mut database) = accounts().await;
    let other = "
        create table orders (account_id text, moves_to text);
        create function charge() returns trigger language plpgsql as $$ begin
            update accounts set account_id = new.moves_to where account_id = new.account_id;
            return null;
        end $$;
        create trigger charge after insert on orders for each row execute function charge();";
    attempt(&mut database, other).await.unwrap();
    let order = "insert into orders values ('alice', 'carol')";
    for (before, expected) in [
        ("select 1", Err(TOKEN_REQUIRED)),
        ("select fence.claim('alice', 34, 'a')", Err(TOKEN_REQUIRED)),
        ("select fence.present(33, 'a')", Err(STALE)),
        ("select fence.present(34, 'a')", Ok(())),
    ] {
        let done = attempt_and_roll_back(&mut database, &format!("{before}; {order}")).await;
        assert_eq!(done.as_ref().map(|_| ()).map_err(String::as_str), expected, "{before}");
    }
}

#[tokio::test]
async fn malformed_offers_are_rejected() {
    let (_server, mut database) = fence().await;
    let setup = "
        create table notes (account_id text, note text);
        select fence.protect('notes', 'account_id');";
    attempt(&mut database, setup).await.unwrap();
    for (before, account, expected) in [
        ("select 1", "null", MALFORMED),
        ("select 1", "''", MALFORMED),
        ("select 1", "repeat('x', 513)", MALFORMED),
        ("select fence.present(34)", "null", MALFORMED),
        ("select fence.present(34)", "''", MALFORMED),
        ("select fence.present(34)", "repeat('x', 513)", MALFORMED),
        ("select fence.present(0)", "'alice'", MALFORMED),
        ("select fence.present(1000000000000000)", "'alice'", MALFORMED),
        ("select fence.present(34, 'ż')", "'alice'", MALFORMED),
        ("select fence.present(34, 'a b')", "'alice'", MALFORMED),
        ("select fence.present(34, e'a\\n')", "'alice'", MALFORMED),
        ("select fence.present(null)", "'alice'", MALFORMED),
        ("select fence.present(34, null)", "'alice'", MALFORMED),
        ("select fence.claim('alice', 0)", "'alice'", MALFORMED),
        ("select fence.claim('alice', -1)", "'alice'", MALFORMED),
        ("select fence.claim('alice', 1000000000000000)", "'alice'", MALFORMED),
        ("select fence.claim('alice', 9223372036854775807)", "'alice'", MALFORMED),
        ("select fence.claim('alice', null)", "'alice'", MALFORMED),
        ("select fence.claim(null, 34)", "'alice'", MALFORMED),
        ("select fence.claim('', 34)", "'alice'", MALFORMED),
        ("select fence.claim(repeat('ż', 257), 34)", "'alice'", MALFORMED),
        ("select fence.claim('alice', 34, null)", "'alice'", MALFORMED),
        ("select fence.claim('alice', 34, repeat('m', 129))", "'alice'", MALFORMED),
        ("select fence.claim('alice', 34, e'a\\n')", "'alice'", MALFORMED),
        ("select fence.claim('alice', 34)", "null", MALFORMED),
    ] {
        let insert = format!("{before}; insert into notes values ({account})");
        assert_eq!(attempt(&mut database, &insert).await.unwrap_err(), expected, "{insert}");
    }
    assert_eq!(number(&mut database, "select count(*) from notes").await, 0);
    assert_eq!(number(&mut database, "select count(*) from fence.fences").await, 0);
    for (offer, message, detail) in [
        ("fence.present(0)", "the token is malformed", r#"{"resource" : null, "token" : 0}"#),
        (
            "fence.present(34, 'a b')",
            "the holder is malformed",
            r#"{"resource" : null, "token" : 34}"#,
        ),
        (
            "fence.claim('', 0)",
            "the resource is malformed: it has 0 bytes",
            r#"{"resource" : "", "token" : 0}"#,
        ),
        (
            "fence.claim('alice', 34, 'a b')",
            "the holder is malformed",
            r#"{"resource" : "alice", "token" : 34}"#,
        ),
    ] {
        let statement = AssertSqlSafe(format!("select {offer}"));
        let rejected = sqlx::query(statement).execute(&mut database).await.unwrap_err();
        let rejected = rejected.as_database_error().unwrap().downcast_ref::<PgDatabaseError>();
        assert_eq!(rejected.message(), message, "{offer}");
        assert_eq!(rejected.detail(), Some(detail), "{offer}");
    }
}
