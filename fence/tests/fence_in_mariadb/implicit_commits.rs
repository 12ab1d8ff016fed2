//! Statements that end a transaction without saying so. Which ones do depends on the version, so each is tried.

use std::collections::BTreeSet;

use super::{TOKEN_REQUIRED, accounts, attempt, session};

const CLAIM: &str = "call fence.claim('alice', 34, 'a')";
const UPDATE: &str = "update test.accounts set balance = balance + 1 where account_id = 'alice'";

/// All kinds of statements. Some fail here, and end the transaction nevertheless.
const STATEMENTS: &[&str] = &[
    "select 1",
    "commit",
    "rollback",
    "begin",
    "start transaction",
    "start transaction with consistent snapshot",
    "set autocommit = 0",
    "set autocommit = 1",
    "set @x = 1",
    "set names utf8mb4",
    "set session sql_mode = @@sql_mode",
    "set password = ''",
    "set default role none",
    "set role none",
    "set global max_connections = 151",
    "savepoint s",
    "backup stage start; backup stage end",
    "backup lock test.accounts; backup unlock",
    "backup unlock",
    "lock tables accounts write, fence.resources write; unlock tables",
    "unlock tables",
    "create temporary sequence ts",
    "create temporary table tt (id int)",
    "create temporary table tt like accounts",
    "create temporary table tt select 1 as x",
    "create or replace temporary table tt (id int)",
    "drop temporary table if exists tt",
    "alter table tt add column y int",
    "create sequence sq",
    "alter sequence sq restart 5",
    "select next value for sq",
    "drop sequence sq",
    "create table t1 (id int)",
    "create table t1 (id int)",
    "create table if not exists t1 (id int)",
    "create table t2 like t1",
    "create table t3 select 1 as x",
    "alter table t1 add column y int",
    "create index i on t1 (id)",
    "drop index i on t1",
    "rename table t1 to t4",
    "truncate table t4",
    "analyze table t4",
    "check table t4",
    "optimize table t4",
    "repair table t4",
    "checksum table t4",
    "analyze select 1",
    "analyze format=json select 1",
    "drop table t4",
    "drop table if exists nope",
    "create view v as select 1",
    "alter view v as select 2",
    "drop view v",
    "create database dd",
    "alter database dd character set latin1",
    "drop database dd",
    "create procedure pp() select 1",
    "alter procedure pp comment 'x'",
    "drop procedure pp",
    "create function ff() returns int return 1",
    "alter function ff comment 'x'",
    "select ff()",
    "drop function ff",
    "create trigger tr before insert on t3 for each row set @y = 1",
    "drop trigger tr",
    "create event e on schedule every 1 day do select 1",
    "alter event e disable",
    "drop event e",
    "create server s foreign data wrapper mysql options (host 'x')",
    "alter server s options (host 'y')",
    "drop server s",
    "create user u",
    "alter user u identified by 'x'",
    "rename user u to w",
    "grant select on *.* to w",
    "revoke select on *.* from w",
    "drop user w",
    "create role r",
    "grant r to root@localhost",
    "revoke r from root@localhost",
    "drop role r",
    "flush tables",
    "flush status",
    "flush privileges",
    "flush local logs",
    "flush tables with read lock; unlock tables",
    "reset query cache",
    "reset master",
    "install soname 'nope'",
    "install plugin x soname 'nope'",
    "uninstall plugin nope",
    "cache index t3 in default",
    "load index into cache t3",
    "change master to master_host='x'",
    "start slave",
    "stop slave",
    "reset slave",
    "purge binary logs to 'x'",
    "handler accounts open; handler accounts close",
    "show tables",
    "show create table accounts",
    "show engine innodb status",
    "show status like 'com_%'",
    "describe accounts",
    "explain select 1",
    "help 'select'",
    "do 1",
    "do release_lock('x')",
    "prepare p from 'do 1'; execute p; deallocate prepare p",
    "execute immediate 'commit'",
    "execute immediate 'create or replace table t9 (id int)'",
    "xa recover",
    "use test",
    "insert into t3 values (2)",
    "delete from t3",
    "replace into t3 values (1)",
    "load data local infile '/dev/null' into table t3",
    "call fence.claim('bob', 34, 'b')",
    "call fence.present(34, 'a')",
    "signal sqlstate '45000'",
    "get diagnostics @n = number",
    "binlog ''",
    "drop table t2, t3, t9",
];

/// A claim holds its fence's row until its transaction ends. So another session sees whether it has ended.
#[tokio::test]
async fn claim_lasts_exactly_as_long_as_its_transaction_whatever_ends_it() {
    let (server, _database) = accounts().await;
    let mut watcher = session(&server).await;
    let fence = "select 1 from fence.resources where resource = 'alice' for update nowait";
    for begin in ["begin", "set autocommit = 0"] {
        let mut ending = BTreeSet::new();
        for &statements in STATEMENTS {
            let mut database = session(&server).await;
            for statement in [begin, CLAIM, UPDATE] {
                attempt(&mut database, statement).await.expect(statement);
            }
            for statement in statements.split("; ") {
                // It may be wrong, or out of place.
                let _ = sqlx::raw_sql(statement).execute(&mut database).await;
            }
            let has_ended = attempt(&mut watcher, fence).await.is_ok();
            if has_ended {
                ending.insert(statements);
            }
            let expected = if has_ended { Err(TOKEN_REQUIRED.to_owned()) } else { Ok(1) };
            let written = attempt(&mut database, UPDATE).await;
            assert_eq!(written, expected, "{begin}; {statements}");
        }
        // The control: both kinds were there.
        for statement in ["commit", "backup unlock", "create temporary sequence ts", "flush status"]
        {
            assert!(ending.contains(statement), "{begin}; {statement}");
        }
        for statement in
            ["select 1", "set @x = 1", "create temporary table tt (id int)", "savepoint s"]
        {
            assert!(!ending.contains(statement), "{begin}; {statement}");
        }
    }
}
