//! Every way to write a row, and to move one from a resource to another.

use fence::{RejectionReason, mariadb};

use super::{
    HOLDER_CONFLICT, MALFORMED, STALE, TOKEN_REQUIRED, accounts, attempt, attempt_all,
    mariadb_command, number, protect,
};

#[tokio::test]
async fn no_kind_of_write_passes_without_a_valid_token() {
    let (server, mut database) = accounts().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let writes = [
        "insert into accounts select 'carol', balance from accounts where account_id = 'alice'",
        "insert ignore into accounts values ('carol', 7)",
        "insert into accounts values ('alice', 7) on duplicate key update balance = 7",
        "replace into accounts values ('alice', 7)",
        "replace into accounts values ('carol', 7)",
        "update accounts set balance = 7 where account_id = 'alice'",
        "update ignore accounts set balance = 7 where account_id = 'alice'",
        "update accounts a join accounts b on a.account_id = 'alice' set a.balance = 7",
        "update accounts set account_id = 'carol' where account_id = 'alice'",
        "delete from accounts where account_id = 'alice'",
        "delete ignore from accounts where account_id = 'alice'",
        "delete a from accounts a join accounts b on a.account_id = 'alice'",
        "delete from accounts order by account_id limit 1",
    ];
    attempt(&mut database, "call fence.claim('carol', 34, 'a')").await.unwrap();
    for write in writes {
        for (before, expected) in [
            ("select 1", Err(TOKEN_REQUIRED)),
            ("call fence.claim('bob', 34, 'a')", Err(TOKEN_REQUIRED)),
            ("call fence.present(33, 'a')", Err(STALE)),
            ("call fence.present(34, 'b')", Err(HOLDER_CONFLICT)),
            ("call fence.present(34, '')", Err(HOLDER_CONFLICT)),
            ("call fence.present(34, 'a')", Ok(())),
            ("call fence.present(35, 'b')", Ok(())),
        ] {
            let done = attempt_all(&mut database, &[before, write]).await;
            assert_eq!(done.as_ref().map(|_| ()).map_err(String::as_str), expected, "{write}");
        }
        let claims = ["call fence.claim('alice', 34, 'a')", "call fence.claim('carol', 34, 'a')"];
        attempt_all(&mut database, &[claims[0], claims[1], write]).await.expect(write);
        assert_eq!(number(&mut database, "select sum(balance) div 1 from accounts").await, 200);
    }

    // A file is loaded like the others, though what fails in it may be ignored.
    let load = |how: &str| {
        format!("load data local infile '{}' {how} into table accounts", file.path().display())
    };
    std::fs::write(file.path(), "carol\t7\n").unwrap();
    for how in ["", "ignore", "replace"] {
        let run = |token: &str| {
            let statements = format!("begin; {token} {}; commit;", load(how));
            mariadb_command(&server, &statements, &["--local-infile=1", "test"])
        };
        assert!(run("").unwrap_err().contains(TOKEN_REQUIRED), "{how}");
        assert!(run("call fence.present(33, 'a');").unwrap_err().contains(STALE), "{how}");
        assert_eq!(number(&mut database, "select count(*) from accounts").await, 2);
        run("call fence.present(34, 'a');").unwrap();
        assert_eq!(number(&mut database, "select count(*) from accounts").await, 3);
        let delete = "delete from accounts where account_id = 'carol'";
        for statement in ["begin", "call fence.present(34, 'a')", delete, "commit"] {
            attempt(&mut database, statement).await.unwrap();
        }
    }

    // The negative control: without the triggers, each of them passes.
    for event in ["insert", "update", "delete"] {
        let drop = format!("drop trigger accounts_fence_{event}");
        attempt(&mut database, &drop).await.unwrap();
    }
    for write in writes {
        attempt_all(&mut database, &["delete from accounts where account_id = 'carol'", write])
            .await
            .expect(write);
    }
}

#[tokio::test]
async fn moved_row_needs_the_tokens_of_both_resources() {
    let (_server, mut database) = accounts().await;
    attempt(&mut database, "call fence.claim('carol', 50, 'c')").await.unwrap();
    attempt(&mut database, "create table orders (account_id varchar(40), moves_to varchar(40))")
        .await
        .unwrap();
    let charge = "
        create trigger charge after insert on orders for each row
        update accounts set account_id = new.moves_to where account_id = new.account_id";
    attempt(&mut database, charge).await.unwrap();
    let mover = "
        create trigger move before update on accounts for each row
        set new.account_id = if(new.balance = 1000, 'carol', new.account_id)";
    attempt(&mut database, mover).await.unwrap();
    for moved in [
        "update accounts set account_id = 'carol' where account_id = 'alice'",
        "update accounts set balance = 1000 where account_id = 'alice'",
        "insert into orders values ('alice', 'carol')",
    ] {
        for (offers, expected) in [
            (["select 1", "call fence.claim('alice', 34, 'a')"], Err(TOKEN_REQUIRED)),
            (["select 1", "call fence.claim('carol', 50, 'c')"], Err(TOKEN_REQUIRED)),
            (["select 1", "call fence.present(34, 'a')"], Err(STALE)),
            (["call fence.claim('alice', 34, 'a')", "call fence.present(49, 'c')"], Err(STALE)),
            (["call fence.claim('carol', 50, 'c')", "call fence.present(33, 'a')"], Err(STALE)),
            (["call fence.claim('carol', 50, 'c')", "call fence.present(34, 'a')"], Ok(())),
            (["call fence.claim('alice', 34, 'a')", "call fence.claim('carol', 50, 'c')"], Ok(())),
        ] {
            let done = attempt_all(&mut database, &[offers[0], offers[1], moved]).await;
            assert_eq!(done.as_ref().map(|_| ()).map_err(String::as_str), expected, "{moved}");
        }
    }
}

/// MariaDB has several texts for a value of these types, such as 42 and 000042. A row has one of them.
#[tokio::test]
async fn resource_of_a_row_is_the_same_text_in_each_write() {
    let (_server, mut database) = accounts().await;
    attempt(&mut database, "set time_zone = '+00:00'").await.unwrap();
    for (column, value, resource) in [
        ("int(6) zerofill", "42", "42"),
        ("float", "0.1", "0.10000000149011612"),
        ("year", "0", "0"),
        ("timestamp(3)", "'2020-01-02 03:04:05.123'", "1577934245.123000"),
        ("decimal(5, 2)", "1", "1.00"),
    ] {
        let table = format!("create or replace table typed (id {column}, n int)");
        attempt(&mut database, &table).await.unwrap();
        let insert = format!("insert into typed values ({value}, 1)");
        attempt(&mut database, &insert).await.unwrap();
        protect(&mut database, "test.typed", "id").await;
        let claim = format!("call fence.claim('{resource}', 34, 'a')");
        for write in [&insert, "update typed set n = n + 1", "delete from typed"] {
            let written = attempt_all(&mut database, &[&claim, write]).await;
            assert_eq!(written.err(), None, "{column}: {write}");
            // The negative control.
            let written = attempt_all(&mut database, &[write]).await;
            assert_eq!(written.unwrap_err(), TOKEN_REQUIRED, "{column}: {write}");
        }
    }
}

#[tokio::test]
async fn row_moves_to_and_from_no_resource_under_no_token() {
    let (_server, mut database) = accounts().await;
    let files = "create table files (n int, resource varchar(40));
        insert into files values (1, 'alice'), (2, null)";
    attempt(&mut database, files).await.unwrap();
    protect(&mut database, "test.files", "resource").await;
    let claim = "call fence.claim('alice', 34, 'a')";
    for (change, expected) in [
        ("update files set resource = 'alice' where n = 1", None),
        ("update files set resource = null where n = 1", Some(MALFORMED)),
        ("update files set resource = 'alice' where n = 2", Some(MALFORMED)),
        ("insert into files values (4, null)", Some(MALFORMED)),
        ("delete from files where n = 2", Some(MALFORMED)),
    ] {
        let done = attempt_all(&mut database, &[claim, change]).await;
        assert_eq!(done.err().as_deref(), expected, "{change}");
    }
}

#[tokio::test]
async fn malformed_offers_are_rejected() {
    let (_server, mut database) = accounts().await;
    let too_long = (format!("'{}'", "m".repeat(129)), format!("'{}'", "x".repeat(513)));
    for (resource, token, holder) in [
        ("'bob'", "0", "'a'"),
        ("'bob'", "0", "''"),
        ("'bob'", "-1", "'a'"),
        ("'bob'", "34.5", "'a'"),
        ("'bob'", "'034'", "'a'"),
        ("'bob'", "' 34'", "'a'"),
        ("'bob'", r"'34\n'", "'a'"),
        ("'bob'", "'34a'", "'a'"),
        ("'bob'", "''", "'a'"),
        ("'bob'", "1000000000000000", "'a'"),
        ("'bob'", "null", "'a'"),
        ("'bob'", "34", "null"),
        ("'bob'", "34", "'a b'"),
        ("'bob'", "34", r"'a\n'"),
        ("'bob'", "34", r"'\0'"),
        ("''", "34", "'a'"),
        ("null", "34", "'a'"),
        ("repeat('ż', 257)", "34", "'a'"),
    ] {
        let claim = format!("call fence.claim({resource}, {token}, {holder})");
        assert_eq!(attempt(&mut database, &claim).await.unwrap_err(), MALFORMED, "{claim}");
        if resource != "'bob'" {
            continue;
        }
        let present = format!("call fence.present({token}, {holder})");
        let write = "update accounts set balance = 7 where account_id = 'bob'";
        let rejected = attempt_all(&mut database, &[&present, write]).await;
        assert_eq!(rejected.unwrap_err(), MALFORMED, "{present}");
    }
    for claim in [
        format!("call fence.claim('bob', 34, {})", too_long.0),
        format!("call fence.claim({}, 34, 'a')", too_long.1),
        "call fence.claim('bob', 34, 'ż')".to_owned(),
    ] {
        assert_eq!(attempt(&mut database, &claim).await.unwrap_err(), MALFORMED, "{claim}");
    }
    assert_eq!(number(&mut database, "select count(*) from fence.resources").await, 1);
}

/// A client that forgets the holder has no other sign of its mistake.
#[tokio::test]
async fn conflict_with_an_empty_holder_asks_whether_it_was_left_out() {
    let (_server, mut database) = accounts().await;
    attempt(&mut database, "call fence.claim('bob', 999999999999999, '')").await.unwrap();
    for (claim, asks) in [
        ("call fence.claim('alice', 34, '')", true),
        ("call fence.claim('bob', 999999999999999, 'b')", true),
        ("call fence.claim('alice', 34, 'b')", false),
    ] {
        let conflict = sqlx::raw_sql(claim).execute(&mut database).await.unwrap_err();
        let rejection = mariadb::rejection(&conflict).expect(claim);
        assert_eq!(rejection.reason, RejectionReason::HolderConflict, "{claim}");
        assert_eq!(conflict.to_string().contains("left out?"), asks, "{conflict}");
    }
}

/// Changes that fire no trigger in MariaDB, for which the rights DROP, ALTER and REFERENCES are withheld. `migrations/README.md` names them.
#[tokio::test]
async fn truncate_and_cascades_are_not_seen() {
    let (_server, mut database) = accounts().await;
    for statement in [
        "create table owners (account_id varchar(40) primary key)",
        "insert into owners values ('alice'), ('bob')",
        "alter table accounts add foreign key (account_id) references owners (account_id)
         on delete cascade",
        "delete from owners where account_id = 'alice'",
    ] {
        attempt(&mut database, statement).await.expect(statement);
    }
    assert_eq!(number(&mut database, "select count(*) from accounts").await, 1);
    attempt(&mut database, "truncate accounts").await.unwrap();
    assert_eq!(number(&mut database, "select count(*) from accounts").await, 0);

    // Partitions, which need DROP and ALTER.
    for statement in [
        "create table parts (account_id varchar(40)) partition by key (account_id) partitions 1",
        "create table others (account_id varchar(40))",
        "insert into others values ('carol'), ('dave')",
    ] {
        attempt(&mut database, statement).await.expect(statement);
    }
    super::protect(&mut database, "test.parts", "account_id").await;
    let rows = "select count(*) from parts";
    for (statement, expected) in [
        ("alter table parts exchange partition p0 with table others", 2),
        ("alter table parts truncate partition p0", 0),
    ] {
        attempt(&mut database, statement).await.expect(statement);
        assert_eq!(number(&mut database, rows).await, expected, "{statement}");
    }
}

/// A function or trigger that goes on after the rejection. `migrations/README.md` says so.
#[tokio::test]
async fn handler_that_goes_on_keeps_the_rejected_row() {
    let (_server, mut database) = accounts().await;
    let goes_on = "
        create function goes_on() returns int begin
            declare continue handler for sqlexception begin end;
            update accounts set balance = 7 where account_id = 'alice';
            return 1;
        end";
    attempt(&mut database, goes_on).await.unwrap();
    attempt(&mut database, "do goes_on()").await.unwrap();
    assert_eq!(number(&mut database, super::BALANCE).await, 7);
    // A procedure undoes the statement.
    let procedure = goes_on.replace("function goes_on() returns int", "procedure goes_on()");
    let procedure = procedure.replace("= 7", "= 8").replace("return 1;", "");
    attempt(&mut database, &procedure).await.unwrap();
    attempt(&mut database, "call goes_on()").await.unwrap();
    assert_eq!(number(&mut database, super::BALANCE).await, 7);
}
