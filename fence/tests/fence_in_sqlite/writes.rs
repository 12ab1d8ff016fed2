//! Every way to write a row, and to move one from a resource to another.

use super::*;

const WRITES: [&str; 18] = [
    "insert into accounts values ('carol', 7)",
    "insert or ignore into accounts values ('carol', 7)",
    "insert or replace into accounts values ('carol', 7)",
    "insert or replace into accounts values ('alice', 7)",
    "replace into accounts values ('alice', 7)",
    "insert or rollback into accounts values ('carol', 7)",
    "insert or fail into accounts values ('carol', 7)",
    "insert into accounts values ('alice', 7) on conflict do update set balance = 7",
    "insert into accounts select 'carol', balance from accounts where account_id = 'alice'",
    "update accounts set balance = 7 where account_id = 'alice'",
    "update or ignore accounts set balance = 7 where account_id = 'alice'",
    "update or fail accounts set balance = 7 where account_id = 'alice' returning balance",
    "update or replace accounts set account_id = 'alice' where account_id = 'alice'",
    "update accounts set balance = o.rowid from owners o where account_id = o.owner_id",
    "update balances set balance = 7 where account_id = 'alice'",
    "delete from accounts where account_id = 'alice'",
    "update owners set owner_id = 'carol'",
    "delete from owners",
];

/// A table whose rows a foreign key deletes, and a view through which a trigger of others writes.
const OTHERS: &str = "
    insert into fence_claim values ('carol', 34, 'a');
    create table owners (owner_id text primary key);
    insert into owners values ('alice');
    create table entries (
        entry_id integer primary key,
        owner_id text references owners on update cascade on delete cascade
    );
    insert into entries values (1, 'alice');
    create trigger entries_fence_delete after delete on entries
    begin insert into fence_require values ('entries', old.owner_id); end;
    create trigger entries_fence_update after update on entries
    begin insert into fence_require values ('entries', old.owner_id), ('entries', new.owner_id); end;
    create view balances as select * from accounts;
    create trigger balances_update instead of update on balances
    begin
        update or ignore accounts set balance = new.balance where account_id = old.account_id;
    end;";

/// Triggers that are written by hand, and printed ones, on tables of each kind.
const SHAPES: [&str; 5] = [
    "",
    "insert into fence_protect values ('accounts', 'account_id');",
    "insert into fence_protect values ('accounts', 'substr(account_id, 1)');",
    "drop table accounts;
    create table accounts (account_id text primary key, balance integer default 0) without rowid;
    insert into accounts values ('alice', 100), ('bob', 100);
    insert into fence_protect values ('accounts', 'account_id');",
    "drop table accounts;
    create table accounts (
        account_id text primary key collate nocase, balance integer default 0,
        twice integer as (2 * balance) stored
    ) strict;
    insert into accounts values ('alice', 100), ('bob', 100);
    insert into fence_protect values ('accounts', 'account_id');",
];

#[tokio::test]
async fn no_kind_of_write_passes_without_a_valid_token() {
    for shape in SHAPES {
        let mut database = accounts().await;
        attempt(&mut database, &format!("{shape}{OTHERS}")).await.unwrap();
        execute_printed_sql(&mut database).await.unwrap();
        for write in WRITES {
            for (offered, expected) in [
                (String::new(), Err(TOKEN_REQUIRED)),
                (presented(33, "a"), Err(STALE)),
                (presented(34, "b"), Err(HOLDER_CONFLICT)),
                (presented(34, ""), Err(HOLDER_CONFLICT)),
                (presented(34, "a"), Ok(())),
                (presented(35, "b"), Ok(())),
            ] {
                let done = attempt_and_roll_back(&mut database, &format!("{offered}{write}")).await;
                let done = done.as_ref().copied().map_err(String::as_str);
                assert_eq!(done, expected, "{shape}{write}");
            }
        }
        assert_eq!(number(&mut database, "select sum(balance) from accounts").await, 200);

        // The negative control: without the triggers, each of them passes.
        let unprotected = "
            drop trigger accounts_fence_insert; drop trigger accounts_fence_update;
            drop trigger accounts_fence_delete; drop trigger entries_fence_update;
            drop trigger entries_fence_delete;";
        attempt(&mut database, unprotected).await.unwrap();
        for write in WRITES {
            attempt_and_roll_back(&mut database, write).await.expect(write);
        }
    }
}

/// A row that REPLACE deletes, because another row takes its unique value, is a row of its own
/// resource.
#[tokio::test]
async fn replaced_rows_need_the_tokens_of_their_own_resources() {
    for without_rowid in ["", " without rowid"] {
        let mut database = accounts().await;
        let table = format!(
            "create table mail (account_id text primary key, address text unique){without_rowid};
             insert into mail values ('alice', 'a'), ('bob', 'b');
             insert into fence_protect values ('mail', 'account_id');"
        );
        attempt(&mut database, &table).await.unwrap();
        execute_printed_sql(&mut database).await.unwrap();
        let bob = "insert into fence_presented (resource, token) values ('bob', 1);";
        for write in [
            "replace into mail values ('alice', 'b')",
            "update or replace mail set address = 'b' where account_id = 'alice'",
            "insert into mail values ('alice', 'c') on conflict (account_id) do update
             set account_id = 'bob' where account_id = 'alice'",
        ] {
            let alone = attempt_and_roll_back(&mut database, &format!("{PRESENT}{write}")).await;
            assert!(alone.is_err(), "{write}");
        }
        for write in [
            "replace into mail values ('alice', 'b')",
            "update or replace mail set address = 'b' where account_id = 'alice'",
        ] {
            let alone = attempt_and_roll_back(&mut database, &format!("{PRESENT}{write}")).await;
            assert_eq!(alone.unwrap_err(), TOKEN_REQUIRED, "{write}");
            let both = format!("{PRESENT}{bob}{write}");
            attempt_and_roll_back(&mut database, &both).await.expect(write);
            // The negative control: without recursive triggers, nobody asks for bob's token.
            let careless = "pragma recursive_triggers = off; drop trigger fence_require_a_token;
                create trigger fence_require_a_token instead of insert on fence_require begin
                    select raise(abort, 'ZF004') where new.resource = 'bob';
                end;";
            let unasked = format!("{careless}{PRESENT}{write}");
            attempt_and_roll_back(&mut database, &unasked).await.expect(write);
            attempt(&mut database, "pragma recursive_triggers = on").await.unwrap();
        }
    }
}

/// A rejection of the last row takes back the first ones, whatever the conflict clause says.
#[tokio::test]
async fn rejected_statement_changes_no_row() {
    let mut database = accounts().await;
    for clause in ["abort", "fail", "ignore", "replace"] {
        for write in [
            "insert or {} into accounts values ('alice2', 1), ('alice', 7), ('carol', 7)",
            "update or {} accounts set balance = 7 where account_id in ('alice', 'bob')",
        ] {
            let write = write.replace("{}", clause);
            attempt(&mut database, "begin immediate").await.unwrap();
            let rejected = attempt(&mut database, &format!("{PRESENT}{write}")).await;
            attempt(&mut database, &format!("{WITHDRAW} commit")).await.unwrap();
            assert!(rejected.is_err(), "{write}");
            let balances = "select group_concat(account_id || balance, ' ') from accounts";
            assert_eq!(texts(&mut database, balances).await, ["alice100 bob100"], "{write}");
        }
    }
}

#[tokio::test]
async fn moved_row_needs_the_tokens_of_both_resources_and_leaves_each_its_own() {
    let mut database = accounts().await;
    attempt(&mut database, "insert into fence_claim values ('carol', 50, 'c')").await.unwrap();
    let carol = "insert into fence_presented (resource, token, holder) values ('carol', 50, 'c');";
    let moved = "update accounts set account_id = 'carol' where account_id = 'alice';";
    for presented in [PRESENT, carol] {
        let write = format!("{presented}{moved}");
        let rejected = attempt_and_roll_back(&mut database, &write).await;
        assert_eq!(rejected.unwrap_err(), TOKEN_REQUIRED, "{presented}");
    }
    let write = format!("begin immediate; {PRESENT}{carol}{moved}{WITHDRAW} commit");
    attempt(&mut database, &write).await.unwrap();
    for (fence, token) in [
        ("select token from fence where resource = 'alice' and holder = 'a'", 34),
        ("select token from fence where resource = 'carol' and holder = 'c'", 50),
    ] {
        assert_eq!(number(&mut database, fence).await, token);
    }
}

#[tokio::test]
async fn malformed_offers_are_rejected() {
    let mut database = accounts().await;
    let long = format!("'{}'", "m".repeat(129));
    for (resource, token, holder) in [
        ("'bob'", "0", "'a'"),
        ("'bob'", "0", "''"),
        ("'bob'", "-1", "'a'"),
        ("'bob'", "34.0", "'a'"),
        ("'bob'", "'34'", "'a'"),
        ("'bob'", "x'22'", "'a'"),
        ("'bob'", "null", "'a'"),
        ("'bob'", "1000000000000000", "'a'"),
        ("'bob'", "9223372036854775807", "'a'"),
        ("'bob'", "34", "null"),
        ("'bob'", "34", "'a b'"),
        ("'bob'", "34", "'ż'"),
        ("'bob'", "34", "'a' || char(10)"),
        ("'bob'", "34", "'a' || char(0)"),
        ("'bob'", "34", "'a' || char(0) || 'ż'"),
        ("'bob'", "34", "x'61'"),
        ("'bob'", "34", "7"),
        ("'bob'", "34", long.as_str()),
        ("''", "34", "'a'"),
        ("null", "34", "'a'"),
        ("7", "34", "'a'"),
        ("x'61'", "34", "'a'"),
        ("printf('%.513c', 'x')", "34", "'a'"),
        ("printf('%.257c', 'x') || printf('%.128c', 'ż')", "34", "'a'"),
    ] {
        let claim = format!("insert into fence_claim values ({resource}, {token}, {holder})");
        let rejected = attempt(&mut database, &claim).await;
        assert_eq!(rejected, Err(MALFORMED.to_owned()), "{claim}");
    }
    // A row without a resource.
    let nothing = format!("{PRESENT}insert into accounts values (null, 7)");
    let rejected = attempt_and_roll_back(&mut database, &nothing).await;
    assert_eq!(rejected.unwrap_err(), MALFORMED);
    assert_eq!(number(&mut database, "select count(*) from fence").await, 1);
}
