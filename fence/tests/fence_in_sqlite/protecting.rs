//! The notes of protected tables, the triggers that they print, and what the status says.

use super::*;

const NOTE: &str = "insert into fence_protect values ('accounts', 'account_id')";

const UNPROTECT: &str = "
    drop trigger accounts_fence_insert; drop trigger accounts_fence_update;
    drop trigger accounts_fence_delete;";

#[tokio::test]
async fn printed_triggers_protect_a_table_of_any_name_and_shape() {
    let shapes = [
        (r#""accounts""#, "(id text primary key, n)", "id"),
        (r#""accounts""#, "(id text primary key, n) without rowid", "ID"),
        (r#""accounts""#, "(id text primary key, n any) strict, without rowid", r#""id""#),
        (r#""Group""#, "(id integer primary key, n)", "id"),
        (r#""it's ""so"" [odd] `ż""#, r#"("an ""id""" text, n)"#, r#"an "id""#),
        (r#""it's ""so"" [odd] `ż""#, r#"("an ""id""" text, n)"#, r#""an ""id""" -- quoted"#),
        (r#""a.b""#, "([the id] text, n)", "the id"),
        (r#""a.b""#, "([the id] text, n)", "lower([the id])"),
        ("a", "(`it's` text, n)", "it's"),
        ("a", "(`it``s` text, n)", "upper(`it``s`)"),
        ("old", "(new integer primary key, n)", "new"),
        ("new", "(old integer primary key, n)", "'o' || \"new\".old"),
        ("orders", "(id integer primary key, n)", "'order/' || id"),
        ("orders", "(id integer, n, twice as (2 * id))", "'order/' || twice || '/' || ID -- both"),
        ("orders", "(id integer, n)", "'all of them'"),
    ];
    for (table, columns, resource) in shapes {
        let mut database = settings("sqlite::memory:").connect().await.unwrap();
        sqlite::install(&mut database).await.unwrap();
        let shape = format!("{table} {columns}, {resource}");
        attempt(&mut database, &format!("create table {table} {columns}")).await.unwrap();
        let note = "
            insert into fence_protect
            select name, ? from sqlite_schema where type = 'table' and name not like 'fence%'";
        sqlx::query(note).bind(resource).execute(&mut database).await.unwrap();
        let insert = format!("insert into {table} values (7, 1);");
        attempt_and_roll_back(&mut database, &insert).await.expect("the negative control");
        let problem = "select problem from fence_status where problem is not null";
        assert_eq!(texts(&mut database, problem).await, ["missing"], "{shape}");

        // Twice, because the second time there are triggers to replace.
        for _ in 0..2 {
            execute_printed_sql(&mut database).await.expect(&shape);
            assert!(texts(&mut database, problem).await.is_empty(), "{shape}");
        }
        let rejected = attempt_and_roll_back(&mut database, &insert).await;
        assert_eq!(rejected.unwrap_err(), TOKEN_REQUIRED, "{shape}");
        // All names that the shapes give to the row above, and none of another row.
        let present = "
            insert into fence_presented (resource, token)
            values ('7', 1), ('order/7', 1), ('order/14/7', 1), ('o7', 1), ('all of them', 1);";
        for write in ["update {} set n = 2", "delete from {}"] {
            let write = write.replace("{}", table);
            let presented = format!("{present}{insert}{write}");
            attempt_and_roll_back(&mut database, &presented).await.expect(&shape);
            let withdrawn = format!("{present}{insert}{WITHDRAW}{write}");
            let rejected = attempt_and_roll_back(&mut database, &withdrawn).await;
            assert_eq!(rejected.unwrap_err(), TOKEN_REQUIRED, "{shape}: {write}");
        }
        if resource != "'all of them'" {
            let other = format!("{present} insert into {table} values (8, 1);");
            let rejected = attempt_and_roll_back(&mut database, &other).await;
            assert_eq!(rejected.unwrap_err(), TOKEN_REQUIRED, "{shape}");
        }
    }
}

#[tokio::test]
async fn mistake_in_an_expression_fails_before_a_trigger_is_created() {
    let mut database = accounts().await;
    for mistake in [
        "acount_id",
        "new.account_id",
        "old.account_id",
        "balance.account_id",
        "rowid",
        "account_id ||",
        "(account_id",
        "account_id; select 1",
    ] {
        let note = "insert into fence_protect values ('accounts', ?)";
        sqlx::query(note).bind(mistake).execute(&mut database).await.unwrap();
        execute_printed_sql(&mut database).await.expect_err(mistake);
        assert_eq!(attempt(&mut database, UPDATE).await.unwrap_err(), TOKEN_REQUIRED, "{mistake}");
        assert_eq!(problem(&mut database).await, "different", "{mistake}");
    }
    attempt(&mut database, NOTE).await.unwrap();
    execute_printed_sql(&mut database).await.unwrap();
    assert_eq!(problem(&mut database).await, "");
}

#[tokio::test]
async fn trigger_with_another_body_does_not_protect() {
    let mut database = accounts().await;
    attempt(&mut database, NOTE).await.unwrap();
    execute_printed_sql(&mut database).await.unwrap();
    let triggers = "select sql from sqlite_schema where name = 'accounts_fence_update'";
    let [printed] = texts(&mut database, triggers).await.try_into().unwrap();
    let others = [
        "create trigger accounts_fence_update after update on accounts begin select 1; end".into(),
        // A trigger of another table, with the name that this one's should have.
        printed.replace(r#"on "accounts""#, "on others"),
        printed.replace("after update", "after update of balance"),
        printed.replace(" begin", " when new.balance > 0 begin"),
        printed.replace("new.", "old."),
        printed.replace("('accounts'", "('others'"),
    ];
    attempt(&mut database, "create table others (account_id text)").await.unwrap();
    for other in others {
        assert_ne!(other, printed);
        let replaced = format!("drop trigger accounts_fence_update; {other}");
        attempt(&mut database, &replaced).await.unwrap();
        let of_others = other.contains("on others");
        let expected = if of_others { "missing" } else { "different" };
        assert_eq!(problem(&mut database).await, expected, "{other}");
        if of_others {
            // Another table's trigger is not dropped in silence.
            execute_printed_sql(&mut database).await.unwrap_err();
            attempt(&mut database, "drop trigger accounts_fence_update").await.unwrap();
        }
        execute_printed_sql(&mut database).await.unwrap();
        assert_eq!(problem(&mut database).await, "", "{other}");
    }
}

#[tokio::test]
async fn hand_written_triggers_are_shown_and_replaced() {
    let mut database = accounts().await;
    let found = problem(&mut database).await;
    assert!(found.starts_with("not noted"), "{found}");
    attempt(&mut database, NOTE).await.unwrap();
    assert_eq!(problem(&mut database).await, "different");
    execute_printed_sql(&mut database).await.unwrap();
    assert_eq!(problem(&mut database).await, "");
    let triggers =
        "select count(*) from sqlite_schema where type = 'trigger' and tbl_name = 'accounts'";
    assert_eq!(number(&mut database, triggers).await, 3);
}

/// Such a trigger skips those that fire after it, and SQLite defines no order.
#[tokio::test]
async fn trigger_that_may_skip_the_check_is_shown() {
    let ignores = "create trigger tr after update on accounts begin select raise ( Ignore ); end";
    for (ignores, is_problem) in [
        ("create trigger Tr before update on accounts begin select raise(ignore) where 0; end", 0),
        ("create trigger Tr after update on accounts begin select 'ignore'; end", 0),
        ("create trigger Tr after update on accounts begin select raise ( Ignore ); end", 1),
        (
            "create trigger \"a Tr\"\n after\n delete on accounts begin select raise(\nignore); end",
            1,
        ),
    ] {
        let mut database = accounts().await;
        attempt(&mut database, NOTE).await.unwrap();
        execute_printed_sql(&mut database).await.unwrap();
        attempt(&mut database, ignores).await.unwrap();
        let found = problem(&mut database).await;
        assert_eq!(found.contains("RAISE(IGNORE)"), is_problem == 1, "{ignores}: {found}");
        assert_eq!(found.is_empty(), is_problem == 0, "{ignores}: {found}");
    }
    // Why it matters.
    let mut database = accounts().await;
    attempt(&mut database, ignores).await.unwrap();
    attempt(&mut database, UPDATE).await.unwrap();
}

#[tokio::test]
async fn only_a_table_can_be_noted() {
    let mut database = accounts().await;
    let setup = "
        create view balances as select balance from accounts;
        create virtual table words using fts5 (word);
        create table numbered (n integer primary key autoincrement);
        create temp table of_this_connection (account_id text);";
    attempt(&mut database, setup).await.unwrap();
    for (table, resource) in [
        ("'nothing'", "'id'"),
        ("null", "'id'"),
        ("'balances'", "'balance'"),
        ("'words'", "'word'"),
        ("'sqlite_sequence'", "'name'"),
        ("'of_this_connection'", "'account_id'"),
        ("'fence'", "'resource'"),
        ("'fence_presented'", "'resource'"),
        ("'fence_protected'", "'resource'"),
        ("'fence_reports'", "'resource'"),
        ("'accounts'", "null"),
        ("'accounts'", "' '"),
    ] {
        for view in ["fence_protect", "fence_report"] {
            let note = format!("insert into {view} values ({table}, {resource})");
            assert_eq!(attempt(&mut database, &note).await.unwrap_err(), MALFORMED, "{note}");
        }
    }
    attempt(&mut database, "insert into fence_protect values ('ACCOUNTS', 'Account_ID')")
        .await
        .unwrap();
    // A temporary table of its name does not take its place.
    attempt(&mut database, "create temp table accounts (something_else text)").await.unwrap();
    execute_printed_sql(&mut database).await.unwrap();
    assert_eq!(problem(&mut database).await, "");
    let write = "update main.accounts set balance = 7";
    assert_eq!(attempt(&mut database, write).await.unwrap_err(), TOKEN_REQUIRED);
}

#[tokio::test]
async fn note_is_removed_only_on_request() {
    let mut database = accounts().await;
    attempt(&mut database, NOTE).await.unwrap();
    execute_printed_sql(&mut database).await.unwrap();
    for mistake in [
        "delete from fence_protected",
        "replace into fence_protected values ('accounts', 'balance', 'report')",
    ] {
        assert_eq!(attempt(&mut database, mistake).await.unwrap_err(), NOT_REMOVED, "{mistake}");
    }
    attempt(&mut database, "insert into fence_unprotect values ('Accounts')").await.unwrap();
    let unknown = attempt(&mut database, "insert into fence_unprotect values ('accounts')").await;
    assert_eq!(unknown.unwrap_err(), MALFORMED);
    let found = problem(&mut database).await;
    assert!(found.starts_with("not noted"), "{found}");
    attempt(&mut database, UNPROTECT).await.unwrap();
    assert_eq!(number(&mut database, "select count(*) from fence_status").await, 0);
    attempt(&mut database, UPDATE).await.unwrap();
}
