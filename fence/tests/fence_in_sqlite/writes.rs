//! Every way to write a row, and to move one from a resource to another.

use super::*;

#[tokio::test]
async fn no_kind_of_write_passes_without_a_valid_token() {
    let mut database = accounts().await;
    let setup = "
        insert into fence_claim values ('carol', 34, 'a');
        create table owners (owner_id text primary key);
        insert into owners values ('alice');
        create table entries (
            entry_id integer primary key, owner_id text references owners on delete cascade
        );
        insert into entries values (1, 'alice');
        create trigger entries_fence_delete after delete on entries
        begin insert into fence_require values (old.owner_id); end;";
    attempt(&mut database, setup).await.unwrap();
    let writes = [
        "insert into accounts values ('carol', 7)",
        "insert or ignore into accounts values ('carol', 7)",
        "insert or replace into accounts values ('carol', 7)",
        "insert or replace into accounts values ('alice', 7)",
        "replace into accounts values ('alice', 7)",
        "insert or rollback into accounts values ('carol', 7)",
        "insert or fail into accounts values ('carol', 7)",
        "insert into accounts values ('alice', 7) on conflict do update set balance = 7",
        "update accounts set balance = 7 where account_id = 'alice'",
        "update or ignore accounts set balance = 7 where account_id = 'alice'",
        "update or replace accounts set account_id = 'alice' where account_id = 'alice'",
        "update accounts set balance = o.rowid from owners o where account_id = o.owner_id",
        "delete from accounts where account_id = 'alice'",
        "delete from owners",
    ];
    for write in writes {
        for (offered, expected) in [
            (String::new(), Err(TOKEN_REQUIRED)),
            (presented(33, "a"), Err(STALE)),
            (presented(34, "b"), Err(HOLDER_CONFLICT)),
            (presented(34, ""), Err(HOLDER_CONFLICT)),
            (presented(34, "a"), Ok(())),
            (presented(35, "b"), Ok(())),
        ] {
            let done = attempt_and_roll_back(&mut database, &format!("{offered}{write}")).await;
            assert_eq!(done.as_ref().copied().map_err(String::as_str), expected, "{write}");
        }
    }
    assert_eq!(number(&mut database, "select sum(balance) from accounts").await, 200);

    // The negative control: without the triggers, each of them passes.
    let unprotected = "
        drop trigger accounts_fence_insert; drop trigger accounts_fence_update;
        drop trigger accounts_fence_delete; drop trigger entries_fence_delete;";
    attempt(&mut database, unprotected).await.unwrap();
    for write in writes {
        attempt_and_roll_back(&mut database, write).await.expect(write);
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
        let refused = attempt_and_roll_back(&mut database, &write).await;
        assert_eq!(refused.unwrap_err(), TOKEN_REQUIRED, "{presented}");
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
async fn malformed_offers_are_refused() {
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
        let refused = attempt(&mut database, &claim).await;
        assert_eq!(refused, Err(MALFORMED.to_owned()), "{claim}");
    }
    // A row without a resource.
    let nothing = format!("{PRESENT}insert into accounts values (null, 7)");
    let refused = attempt_and_roll_back(&mut database, &nothing).await;
    assert_eq!(refused.unwrap_err(), MALFORMED);
    assert_eq!(number(&mut database, "select count(*) from fence").await, 1);
}
