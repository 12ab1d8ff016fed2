//! A session may set its user variables, also those of the fence.

use super::{FILES, TOKEN_REQUIRED, accounts, attempt, attempt_all, run, session};

const UPDATE: &str = "update accounts set balance = balance + 1 where account_id = 'alice'";
const CLAIM: &str = "call fence.claim('alice', 34, 'a')";

#[tokio::test]
async fn no_variable_replaces_a_claim() {
    let (server, _database) = accounts().await;
    for (forged, offers) in [
        // What an earlier statement left, and its timestamp.
        ("set timestamp = unix_timestamp(sysdate(6))", &["begin", CLAIM, UPDATE, "commit"][..]),
        (
            "set timestamp = 1000.5; set @fence_statement = @@timestamp, @fence_row = 'alice'",
            &["begin", CLAIM, UPDATE, "commit"],
        ),
        // A claim in autocommit has no transaction.
        ("set timestamp = 1000.5; set @fence_statement = @@timestamp, @fence_name = ''", &[CLAIM]),
        ("set @fence_presented_in = '', @fence_token = 34, @fence_holder = 'a'", &[CLAIM]),
        ("set @fence_claimed = 'alice'", &["begin", CLAIM, UPDATE, "commit"]),
    ] {
        let mut database = session(&server).await;
        for statement in forged.split("; ").chain(offers.iter().copied()) {
            attempt(&mut database, statement).await.expect(statement);
        }
        for statement in forged.split("; ").filter(|set| !set.contains("sysdate")) {
            attempt(&mut database, statement).await.expect(statement);
        }
        let rejected = attempt(&mut database, UPDATE).await;
        assert_eq!(rejected, Err(TOKEN_REQUIRED.to_owned()), "{forged}");
    }
}

/// Nor does the number of a transaction that is over, of this session or of another.
#[tokio::test]
async fn number_of_another_transaction_does_not_count() {
    let (server, mut first) = accounts().await;
    for statement in ["begin", CLAIM, "call fence.present(34, 'a')", UPDATE, "commit"] {
        attempt(&mut first, statement).await.unwrap();
    }
    let number: u64 = sqlx::query_scalar("select claimed_by from fence.resources")
        .fetch_one(&mut first)
        .await
        .unwrap();
    let mut second = session(&server).await;
    for earlier in number - 5..=number {
        for database in [&mut first, &mut second] {
            let forged = format!(
                "set @fence_presented_in = {earlier}, @fence_token = 34, @fence_holder = 'a'"
            );
            for statement in [&forged, "begin"] {
                attempt(database, statement).await.unwrap();
            }
            assert_eq!(
                attempt(database, UPDATE).await,
                Err(TOKEN_REQUIRED.to_owned()),
                "{earlier}"
            );
            attempt(database, "rollback").await.unwrap();
        }
    }
}

/// A session that switches the checks of foreign keys off, as a restore does, would prove everything.
#[tokio::test]
async fn session_without_foreign_key_checks_writes_nothing() {
    let (server, mut database) = accounts().await;
    for checks in ["foreign_key_checks = 0", "foreign_key_checks = 0, unique_checks = 0"] {
        attempt(&mut database, &format!("set {checks}")).await.unwrap();
        // The session's last transaction has claimed the resource.
        for statement in ["begin", CLAIM, "commit"] {
            attempt(&mut database, statement).await.unwrap();
        }
        for offer in ["select 1", CLAIM, "call fence.present(34, 'a')"] {
            let rejected = attempt_all(&mut database, &[offer, UPDATE]).await;
            assert_eq!(rejected, Err("ZF006".to_owned()), "{checks}, {offer}");
        }
    }
    // It may still lack unique_checks, also while a table is empty, where InnoDB then inserts without a look at rows.
    for statement in [
        "set foreign_key_checks = 1",
        "begin",
        CLAIM,
        "delete from accounts where account_id = 'alice'",
    ] {
        attempt(&mut database, statement).await.expect(statement);
    }
    let insert = "insert into accounts values ('alice', 1)";
    attempt(&mut database, insert).await.unwrap();
    attempt(&mut database, "commit").await.unwrap();

    // A report, or a function that goes on, leaves no claim behind that it did not prove.
    let caught = "
        create table reported (account_id varchar(40));
        create function sneak(id varchar(40)) returns int modifies sql data
        begin
            declare continue handler for sqlexception begin end;
            insert into accounts values (id, 1);
            return 0;
        end";
    run(&server, "test", caught).unwrap();
    attempt(&mut database, "call fence.report('test.reported')").await.unwrap();
    super::protect(&mut database, "test.reported", "account_id").await;
    for write in ["insert into reported values ('alice'), ('brandnew')", "select sneak('alice')"] {
        for statement in [
            "begin",
            "call fence.present(1, 'h')",
            "set foreign_key_checks = 0",
            write,
            "set foreign_key_checks = 1",
        ] {
            attempt(&mut database, statement).await.expect(statement);
        }
        let rejected = attempt(&mut database, UPDATE).await;
        assert_eq!(rejected, Err("ZF001".to_owned()), "{write}");
        attempt(&mut database, "rollback").await.unwrap();
    }
    let forged = "select count(*) from fence.resources where resource = 'brandnew'";
    assert_eq!(super::number(&mut database, forged).await, 0);

    // The negative control: without this condition, a write without a claim passes.
    let condition = "if not @@foreign_key_checks then";
    assert!(FILES[1].contains(condition));
    // The file itself would notice a check that proves everything, but only in such a session.
    run(&server, "test", &FILES[1].replace(condition, "if false then")).unwrap();
    let forged = "
        set foreign_key_checks = 0, @fence_transaction =
            (select claimed_by from fence.resources where resource = 'alice')";
    attempt(&mut database, forged).await.unwrap();
    attempt_all(&mut database, &[UPDATE]).await.unwrap();
}
