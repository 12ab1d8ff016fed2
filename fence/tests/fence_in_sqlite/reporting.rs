//! A table in report mode rejects nothing, and records what it would reject.

use super::*;

const REPORTED: &str =
    "select protected || ' ' || resource || ' ' || code from fence_reports order by 1";

/// The table `accounts` with printed triggers, in report mode.
async fn reporting() -> SqliteConnection {
    let mut database = accounts().await;
    attempt(&mut database, "insert into fence_report values ('accounts', 'account_id')")
        .await
        .unwrap();
    execute_printed_sql(&mut database).await.unwrap();
    assert_eq!(problem(&mut database).await, "");
    database
}

#[tokio::test]
async fn report_mode_records_each_write_that_enforcement_rejects() {
    let moved = "update accounts set account_id = 'carol' where account_id = 'alice'";
    let victim = "replace into accounts select account_id, 7 from accounts";
    for (write, settings, expected) in [
        (UPDATE, "on", &["accounts alice ZF004"][..]),
        ("insert into accounts values ('carol', 7)", "on", &["accounts carol ZF004"]),
        ("delete from accounts", "on", &["accounts alice ZF004", "accounts bob ZF004"]),
        (moved, "on", &["accounts alice ZF004", "accounts carol ZF004"]),
        ("insert into accounts values (null, 7)", "on", &["accounts  ZF003"]),
        (victim, "on", &["accounts alice ZF004", "accounts bob ZF004"]),
        (victim, "off", &["accounts alice ZF006", "accounts bob ZF006"]),
    ] {
        let mut database = reporting().await;
        let settings = format!("pragma recursive_triggers = {settings}");
        attempt(&mut database, &settings).await.unwrap();
        attempt(&mut database, write).await.expect(write);
        assert_eq!(texts(&mut database, REPORTED).await, expected, "{write}");
        assert_eq!(number(&mut database, "select count(*) from accounts where balance = 100 and account_id in ('alice', 'bob')").await < 2, !write.contains("insert"), "{write}");

        // What enforcement says to the same write.
        let mut database = reporting().await;
        attempt(&mut database, &settings).await.unwrap();
        attempt(&mut database, "insert into fence_enforce values ('Accounts')").await.unwrap();
        assert_eq!(problem(&mut database).await, "");
        let code = attempt(&mut database, write).await.unwrap_err();
        assert!(expected[0].ends_with(&code), "{write}: {code}");
        assert!(texts(&mut database, REPORTED).await.is_empty(), "{write}");
    }
}

#[tokio::test]
async fn report_mode_records_no_valid_write() {
    let mut database = reporting().await;
    let valid = format!("begin immediate; {PRESENT}{UPDATE}{WITHDRAW} commit");
    attempt(&mut database, &valid).await.unwrap();
    assert!(texts(&mut database, REPORTED).await.is_empty());
    // The rule holds for what is presented and claimed.
    assert_eq!(attempt(&mut database, &presented(33, "a")).await.unwrap_err(), STALE);
    // Nor does it touch other tables, or triggers that are written by hand.
    let other = "
        create table others (id text);
        create trigger others_fence_insert after insert on others
        begin insert into fence_require values ('others', new.id); end;
        insert into others values ('alice');";
    assert_eq!(attempt(&mut database, other).await.unwrap_err(), TOKEN_REQUIRED);
}

#[tokio::test]
async fn reports_are_limited() {
    let mut database = reporting().await;
    let many = "
        with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < 1100)
        insert into accounts select 'account ' || n, n from numbers;";
    attempt(&mut database, many).await.unwrap();
    attempt(&mut database, "update accounts set balance = 7").await.unwrap();
    let rows = "select count(*) from fence_reports";
    assert_eq!(number(&mut database, rows).await, 1000);

    // A row that is there is written at most once a minute, and also at the limit.
    let write = "update accounts set balance = 8 where account_id = 'account 1'";
    for (last_at, is_written) in [("2020-01-01 00:00:00", 1), ("2999-01-01 00:00:00", 0)] {
        let seen = format!("update fence_reports set last_at = '{last_at}'");
        attempt(&mut database, &seen).await.unwrap();
        attempt(&mut database, write).await.unwrap();
        let fresh = "select count(*) from fence_reports where last_at between first_at and '2998'";
        assert_eq!(number(&mut database, fresh).await, is_written, "{last_at}");
    }
    attempt(&mut database, "delete from fence_reports").await.unwrap();
}

/// The conflict clause of a statement overrides those inside the triggers that it fires.
#[tokio::test]
async fn no_conflict_clause_turns_a_report_into_a_rejection() {
    let mut database = reporting().await;
    for clause in ["abort", "fail", "ignore", "replace", "rollback"] {
        for write in [
            "insert or {} into accounts values ('carol', 7)",
            "update or {} accounts set balance = balance + 1 where account_id = 'alice'",
        ] {
            for _ in 0..2 {
                let write = format!(
                    "begin; {}; delete from accounts where account_id = 'carol'; commit",
                    write.replace("{}", clause)
                );
                attempt(&mut database, &write).await.expect(&write);
            }
        }
    }
    assert_eq!(
        number(&mut database, "select balance from accounts where account_id = 'alice'").await,
        110
    );
    assert_eq!(
        texts(&mut database, REPORTED).await,
        ["accounts alice ZF004", "accounts carol ZF004"]
    );
}

#[tokio::test]
async fn mode_is_changed_on_a_live_table() {
    let mut database = reporting().await;
    attempt(&mut database, UPDATE).await.unwrap();
    for (change, expected) in [
        ("insert into fence_enforce values ('accounts')", Err(TOKEN_REQUIRED.to_owned())),
        ("insert into fence_report values ('accounts', 'account_id')", Ok(())),
        (
            "insert into fence_protect values ('accounts', 'account_id')",
            Err(TOKEN_REQUIRED.to_owned()),
        ),
    ] {
        attempt(&mut database, change).await.unwrap();
        assert_eq!(attempt(&mut database, UPDATE).await, expected, "{change}");
    }
    let unknown = attempt(&mut database, "insert into fence_enforce values ('nothing')").await;
    assert_eq!(unknown.unwrap_err(), MALFORMED);
    // A table whose note is lost is enforced.
    attempt(&mut database, "insert into fence_report values ('accounts', 'account_id')")
        .await
        .unwrap();
    attempt(&mut database, "insert into fence_unprotect values ('accounts')").await.unwrap();
    assert_eq!(attempt(&mut database, UPDATE).await.unwrap_err(), TOKEN_REQUIRED);
}
