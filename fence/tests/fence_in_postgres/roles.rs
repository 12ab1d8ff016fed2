//! A role that may write a protected table, and nothing more.

use fence::postgres;
use testbed::Postgres;

use super::{
    HOLDER_CONFLICT, NO_PRIVILEGE, STALE, TOKEN_REQUIRED, accounts, attempt, attempt_and_roll_back,
    number, session, session_of,
};

pub(super) const UPDATE: &str = "update accounts set balance = 7 where account_id = 'alice'";

pub(super) const WRITER: &str = "
    create role writer login;
    grant usage on schema fence to writer;
    grant all on accounts to writer;
    grant create on database postgres to writer;
    grant create on schema public to writer;";

#[tokio::test]
async fn writer_writes_under_its_token_and_can_not_touch_the_fence() {
    let (server, mut owner) = accounts().await;
    attempt(&mut owner, WRITER).await.unwrap();
    let mut writer = session_of(&server, "writer").await;
    for (before, expected) in [
        ("select 1", Err(TOKEN_REQUIRED)),
        ("select fence.present(33, 'a')", Err(STALE)),
        ("select fence.claim('alice', 34, 'b')", Err(HOLDER_CONFLICT)),
        ("select fence.present(34, 'a')", Ok(1)),
        ("select fence.claim('alice', 34, 'a')", Ok(1)),
    ] {
        let done = attempt(&mut writer, &format!("{before}; {UPDATE}")).await;
        // The count is of both statements.
        assert_eq!(done.as_ref().map(|_| 1).map_err(String::as_str), expected, "{before}");
    }
    for forbidden in [
        "select * from fence.fence",
        "select holder from fence.fence",
        "select * from fence.fences",
        "select * from fence.fence for update",
        "update fence.fence set token = 1",
        "delete from fence.fence",
        "insert into fence.fence values ('x', 1, '', '3')",
        "truncate fence.fence",
        "drop table fence.fence",
        "lock table fence.fence",
        "copy fence.fence to stdout",
        "alter table fence.fence disable trigger all",
        "create table fence.mine ()",
        "create function fence.accepts(int, text, int, text) returns boolean language sql
         as 'select true'",
        "create or replace function fence.accepts(bigint, text, bigint, text) returns boolean
         language sql as 'select true'",
        "alter function fence.claim set search_path = evil",
        "drop function fence.verify",
        "select fence.claim_or_reject('alice', 35, '')",
        "alter table accounts disable trigger all",
        "drop trigger fence_rows on accounts",
        "set session_replication_role = replica",
    ] {
        let rejected = attempt_and_roll_back(&mut writer, forbidden).await;
        assert_eq!(rejected.unwrap_err(), NO_PRIVILEGE, "{forbidden}");
    }
    for forbidden in
        ["select fence.unprotect('accounts')", "select fence.protect('accounts', 'account_id')"]
    {
        let rejected = attempt_and_roll_back(&mut writer, forbidden).await;
        assert_eq!(rejected.unwrap_err(), NO_PRIVILEGE, "{forbidden}");
    }
    assert_eq!(attempt(&mut writer, "truncate accounts").await.unwrap_err(), "ZF005");
    assert_eq!(attempt(&mut writer, UPDATE).await.unwrap_err(), TOKEN_REQUIRED);
}

#[tokio::test]
async fn role_without_the_schema_can_not_write() {
    let (server, mut owner) = accounts().await;
    let role = "create role stranger login; grant all on accounts to stranger";
    attempt(&mut owner, role).await.unwrap();
    let mut stranger = session_of(&server, "stranger").await;
    attempt(&mut stranger, "select * from accounts").await.unwrap();
    for write in [
        UPDATE,
        "delete from accounts",
        "select fence.claim('alice', 34, 'a')",
        "set fence.token = '34'; set fence.holder = 'a'; delete from accounts",
    ] {
        let rejected = attempt(&mut stranger, write).await;
        assert_eq!(rejected.unwrap_err(), NO_PRIVILEGE, "{write}");
    }
}

#[tokio::test]
async fn owner_of_a_table_protects_it_without_other_rights() {
    let (server, mut installer) = accounts().await;
    attempt(&mut installer, WRITER).await.unwrap();
    let mut owner = session_of(&server, "writer").await;
    let own = "
        create table own (id text); insert into own values ('x');
        select fence.protect('own', 'id'); select fence.protect('own', 'id')";
    attempt(&mut owner, own).await.unwrap();
    for database in [&mut owner, &mut installer] {
        assert_eq!(attempt(database, "delete from own").await.unwrap_err(), TOKEN_REQUIRED);
    }
    let delete = "select fence.unprotect('own'); delete from own";
    attempt(&mut owner, delete).await.unwrap();
}

/// The delete of the owner's row cascades with the rights of the table's owner.
#[tokio::test]
async fn cascade_is_checked_for_every_role() {
    let (server, mut owner) = accounts().await;
    attempt(&mut owner, WRITER).await.unwrap();
    let setup = "
        create table parents (account_id text primary key);
        insert into parents values ('alice'), ('bob'), ('carol');
        grant all on parents to writer; revoke all on accounts from writer;
        alter table accounts add foreign key (account_id) references parents
            on delete cascade on update cascade;";
    attempt(&mut owner, setup).await.unwrap();
    let mut writer = session_of(&server, "writer").await;
    for write in [
        "delete from parents where account_id = 'alice'",
        "update parents set account_id = 'alice/2' where account_id = 'alice'",
    ] {
        for (before, expected) in [
            ("select 1", Err(TOKEN_REQUIRED)),
            ("select fence.present(33, 'a')", Err(STALE)),
            ("select fence.present(34, 'a')", Ok(())),
        ] {
            let done = attempt_and_roll_back(&mut writer, &format!("{before}; {write}")).await;
            assert_eq!(done.as_ref().map(|_| ()).map_err(String::as_str), expected, "{write}");
        }
    }
}

#[tokio::test]
async fn default_privileges_open_no_fence() {
    let server = Postgres::start().await.unwrap();
    let mut owner = session(&server).await;
    let setup = "
        create role writer login;
        alter default privileges grant all on tables to writer;
        alter default privileges grant all on tables to public;
        alter default privileges grant all on sequences to writer, public;
        alter default privileges grant all on functions to writer with grant option;
        alter default privileges grant all on schemas to writer, public;";
    attempt(&mut owner, setup).await.unwrap();
    postgres::install(&mut owner).await.unwrap();
    attempt(&mut owner, "select fence.claim('alice', 34, 'a')").await.unwrap();
    let mut writer = session_of(&server, "writer").await;
    let claim = "select fence.claim('alice', 35, 'b')";
    assert_eq!(attempt(&mut writer, claim).await.unwrap_err(), NO_PRIVILEGE);
    // The administrator's word counts.
    attempt(&mut owner, "grant usage on schema fence to writer").await.unwrap();
    attempt(&mut writer, claim).await.unwrap();
    for forbidden in [
        "update fence.fence set token = 1",
        "delete from fence.fence",
        "select holder from fence.fence",
        "select * from fence.fences",
        "select * from fence.status",
        "update fence.reports set role = 'nobody'",
        "create function fence.reject_malformed(text, text, text) returns void language sql as ''",
        "create table fence.mine ()",
    ] {
        let rejected = attempt(&mut writer, forbidden).await.unwrap_err();
        assert_eq!(rejected, NO_PRIVILEGE, "{forbidden}");
    }
    let granted = "select count(*) from pg_proc, aclexplode(proacl) as acl
        where pronamespace = 'fence'::regnamespace and acl.grantee = 'writer'::regrole";
    assert_eq!(number(&mut owner, granted).await, 0);
}
