//! The triggers that `fence.protect_sql` prints, and the status that compares them.

use super::{
    MALFORMED, STALE, TOKEN_REQUIRED, accounts, attempt, attempt_all, mariadb_command, number,
    protect, run,
};

const UPDATE: &str = "update accounts set balance = 7 where account_id = 'alice'";
const PROTECTED: &str = "
    select count(*) from fence.status where protected = 'test.accounts' and problem is null";

/// As Django, Alembic, gh-ost and pt-online-schema-change do it.
#[tokio::test]
async fn status_shows_that_a_rebuilt_table_lost_its_triggers() {
    let (_server, mut database) = accounts().await;
    assert_eq!(number(&mut database, PROTECTED).await, 1);
    for statement in [
        "create table new_accounts like accounts",
        "insert into new_accounts select * from accounts",
        "rename table accounts to old_accounts, new_accounts to accounts",
        "drop table old_accounts",
    ] {
        attempt(&mut database, statement).await.unwrap();
    }
    // Nothing rejects any more; the status says so.
    attempt(&mut database, UPDATE).await.unwrap();
    assert_eq!(number(&mut database, PROTECTED).await, 0);
    protect(&mut database, "test.accounts", "account_id").await;
    assert_eq!(number(&mut database, PROTECTED).await, 1);
    assert_eq!(attempt_all(&mut database, &[UPDATE]).await.unwrap_err(), TOKEN_REQUIRED);

    // A trigger that is missing, for another expression, or from a mode that is not strict.
    let update = "
        select action_statement from information_schema.triggers
        where trigger_name = 'accounts_fence_update'";
    let body: String = sqlx::query_scalar(update).fetch_one(&mut database).await.unwrap();
    let after = "create or replace trigger other after update on accounts for each row";
    for other in [
        "drop trigger accounts_fence_update".to_owned(),
        format!("{after} {}", body.replace("new.`account_id`", "new.`balance`")),
        format!("{after} {body}"),
    ] {
        attempt(&mut database, "set sql_mode = ''").await.unwrap();
        attempt(&mut database, &other).await.unwrap();
        assert_eq!(number(&mut database, PROTECTED).await, 0, "{other}");
    }
    attempt(&mut database, "set sql_mode = 'STRICT_ALL_TABLES'").await.unwrap();
    attempt(&mut database, &format!("{after} {body}")).await.unwrap();
    assert_eq!(number(&mut database, PROTECTED).await, 1);
}

/// What `fence.status` says of each way in which a table loses its protection.
#[tokio::test]
async fn status_names_the_problem() {
    let (server, mut database) = accounts().await;
    let odd = "create table `odd ``-é` (account_id varchar(40)) partition by key(account_id) partitions 2";
    attempt(&mut database, odd).await.unwrap();
    protect(&mut database, "test.odd `-é", "account_id").await;
    attempt(&mut database, "create table nothing (id int)").await.unwrap();
    attempt(&mut database, "call fence.report('test.nothing')").await.unwrap();
    attempt(&mut database, "drop table nothing").await.unwrap();
    for (statements, table, expected) in [
        ("select 1", "test.accounts", None),
        ("select 1", "test.odd `-é", None),
        ("select 1", "test.nothing", Some("no table")),
        ("drop trigger accounts_fence_insert", "test.accounts", Some("insert missing")),
        (
            "create trigger other after insert on accounts for each row \
             call fence.check_both('test.accounts', new.balance, new.balance)",
            "test.accounts",
            Some("insert different"),
        ),
        ("alter table accounts engine = MyISAM", "test.accounts", Some("engine MyISAM")),
        (
            "alter table accounts engine = InnoDB; alter table accounts discard tablespace",
            "test.accounts",
            Some("tablespace discarded"),
        ),
        (
            "alter table `odd ``-é` engine = Aria; call fence.unprotect('test.accounts')",
            "test.odd `-é",
            Some("engine Aria"),
        ),
        ("drop table `odd ``-é`", "test.odd `-é", Some("no table")),
        ("create table accounts_2 like accounts; drop table accounts", "test.accounts", Some("")),
    ] {
        for statement in statements.split("; ") {
            attempt(&mut database, statement).await.expect(statement);
        }
        let problem: Option<Option<String>> = sqlx::query_scalar(
            "select cast(problem as char) from fence.status where protected = ?",
        )
        .bind(table)
        .fetch_optional(&mut database)
        .await
        .unwrap();
        // A table that is neither noted nor there is not listed.
        let problem = problem.unwrap_or(Some(String::new()));
        assert_eq!(problem.as_deref(), expected, "{statements}");
    }
    drop(server);
}

/// Only InnoDB can undo a rejected statement.
#[tokio::test]
async fn table_of_another_engine_is_not_protected() {
    let (_server, mut database) = accounts().await;
    for statement in [
        "create table logs (account_id varchar(40)) engine = MyISAM",
        "create view shown as select * from accounts",
        "alter table accounts engine = Aria",
    ] {
        attempt(&mut database, statement).await.unwrap();
    }
    for table in ["logs", "shown", "accounts"] {
        let call = format!("call fence.protect_sql('test.{table}', 'account_id')");
        assert_eq!(attempt(&mut database, &call).await.unwrap_err(), "0A000", "{table}");
    }
    // Why: the rejection is answered, and the row is written.
    let write = "insert into accounts values ('carol', 7)";
    assert_eq!(attempt(&mut database, write).await.unwrap_err(), TOKEN_REQUIRED);
    assert_eq!(number(&mut database, "select count(*) from accounts").await, 3);
}

/// Nothing checks the rows of a file that is imported.
#[tokio::test]
async fn table_without_its_file_is_not_protected() {
    let (_server, mut database) = accounts().await;
    let protect = "call fence.protect_sql('test.accounts', 'account_id')";
    attempt(&mut database, protect).await.expect("the control");
    attempt(&mut database, "alter table accounts discard tablespace").await.unwrap();
    assert_eq!(attempt(&mut database, protect).await.unwrap_err(), "0A000");
}

/// Resources are compared byte by byte, whatever the column's collation is.
#[tokio::test]
async fn claim_is_good_for_its_own_rows_only_within_a_statement() {
    let (_server, mut database) = accounts().await;
    let table = "
        create table items (id int primary key, account_id varchar(40))
        character set latin1 collate latin1_swedish_ci";
    attempt(&mut database, table).await.unwrap();
    protect(&mut database, "test.items", "account_id").await;
    let claim = "call fence.claim('alice', 34, 'a')";
    for (second, expected) in [
        ("'alice'", Ok(())),
        ("'Alice'", Err(TOKEN_REQUIRED.to_owned())),
        ("'alice '", Err(TOKEN_REQUIRED.to_owned())),
        ("'älice'", Err(TOKEN_REQUIRED.to_owned())),
        ("'bob'", Err(TOKEN_REQUIRED.to_owned())),
        ("null", Err(MALFORMED.to_owned())),
    ] {
        let insert = format!("insert into items values (1, 'alice'), (2, {second}), (3, 'alice')");
        let done = attempt_all(&mut database, &[claim, &insert]).await;
        assert_eq!(done, expected, "{second}");
    }
    // Bytes that are the same in two character sets are not the same text.
    for statement in ["begin", "call fence.claim('é', 1, '')"] {
        attempt(&mut database, statement).await.unwrap();
    }
    let insert = "insert into items values (1, 'é'), (2, 'Ã©')";
    assert_eq!(attempt(&mut database, insert).await.unwrap_err(), TOKEN_REQUIRED);
}

#[tokio::test]
async fn printed_triggers_check_expressions_and_odd_names() {
    let (server, mut database) = accounts().await;
    let table = r"create table `order``s` (`i;d` int, `select` varchar(40), v int)";
    attempt(&mut database, table).await.unwrap();
    let printed = mariadb_command(
        &server,
        r#"call fence.protect_sql('test.order`s', 'concat(''o\\/;"'', `i;d`, `select`)')"#,
        &["--delimiter=//", "test"],
    )
    .unwrap();
    // One statement in each line, for any client.
    assert_eq!(printed.lines().count(), 7, "{printed}");
    run(&server, "test", &printed.replace('\n', "//\n")).unwrap();
    let insert = "insert into `order``s` values (1, 'x', 1)";
    assert_eq!(attempt_all(&mut database, &[insert]).await.unwrap_err(), TOKEN_REQUIRED);
    let claim = r#"call fence.claim('o/;"1x', 1, '')"#;
    let steps = [claim, insert, "update `order``s` set v = 2", "delete from `order``s`"];
    attempt_all(&mut database, &steps).await.unwrap();
    let moved = [claim, insert, "update `order``s` set `i;d` = 2"];
    assert_eq!(attempt_all(&mut database, &moved).await.unwrap_err(), TOKEN_REQUIRED);
    let status = "select count(*) from fence.status where problem is null and protected like '%`s'";
    assert_eq!(number(&mut database, status).await, 1);

    // A mistake fails at once.
    for mistake in ["nope", "", "account_id,", "(select 1", "other.account_id"] {
        let call = format!("call fence.protect_sql('test.accounts', '{mistake}')");
        attempt(&mut database, &call).await.expect_err(mistake);
    }
    for call in [
        "call fence.protect_sql('accounts', 'account_id')",
        "call fence.report('accounts')",
        "call fence.enforce('accounts')",
        "call fence.unprotect('accounts')",
    ] {
        let error = sqlx::query(call).execute(&mut database).await.unwrap_err().to_string();
        assert!(error.contains("name it as mydatabase.accounts"), "{call}: {error}");
    }
}

/// Bytes that are no text all became `?`, so one claim was good for all rows.
#[tokio::test]
async fn binary_keys_do_not_collide_under_a_lax_creator() {
    let update = "update files set v = 2 where k = x'fe'";
    let table = ["create table files (k binary(1), v int)", "insert into files values (x'fe', 1)"];
    // The negative control.
    let (_server, mut old) = accounts().await;
    for statement in table.iter().chain(&[
        "set sql_mode = ''",
        "create trigger t after update on files for each row call fence.check_both('test.files', new.k, new.k)",
        "begin",
        "call fence.claim(x'ff', 1, '')",
        update,
        "rollback",
    ]) {
        attempt(&mut old, statement).await.expect(statement);
    }

    let (_server, mut database) = accounts().await;
    attempt(&mut database, "set sql_mode = ''").await.unwrap();
    for statement in table {
        attempt(&mut database, statement).await.unwrap();
    }
    protect(&mut database, "test.files", "k").await;
    for (claim, expected) in [
        ("call fence.claim(x'ff', 1, '')", Err(TOKEN_REQUIRED.to_owned())),
        ("call fence.claim('FF', 1, '')", Err(TOKEN_REQUIRED.to_owned())),
        ("call fence.claim('FE', 1, '')", Ok(())),
    ] {
        assert_eq!(attempt_all(&mut database, &[claim, update]).await, expected, "{claim}");
    }
}

#[tokio::test]
async fn report_records_what_enforce_rejects() {
    let (_server, mut database) = accounts().await;
    attempt(&mut database, "call fence.report('test.accounts')").await.unwrap();
    for before in ["select 1", "call fence.present(33, 'a')"] {
        for statement in ["begin", before, UPDATE, "commit"] {
            attempt(&mut database, statement).await.expect(statement);
        }
    }
    let recorded = "
        select count(*) from fence.reports
        where protected = 'test.accounts' and resource = 'alice' and user = 'root@localhost'
            and (code = 'ZF004' or code = 'ZF001' and message like '%\"highest_token\":34}')";
    assert_eq!(number(&mut database, recorded).await, 2);
    // What the rule accepts is not recorded, and raises the fence.
    for statement in ["begin", "call fence.present(35, 'b')", UPDATE, "commit"] {
        attempt(&mut database, statement).await.expect(statement);
    }
    assert_eq!(number(&mut database, recorded).await, 2);
    let stale = attempt(&mut database, "call fence.claim('alice', 34, 'a')").await;
    assert_eq!(stale.unwrap_err(), STALE);
    // A token that an earlier transaction presented raises nothing.
    for statement in
        ["begin", "call fence.present(40, 'c')", "rollback", UPDATE, "begin", UPDATE, "commit"]
    {
        attempt(&mut database, statement).await.expect(statement);
    }
    let highest = "select token from fence.resources where resource = 'alice' and holder = 'b'";
    assert_eq!(number(&mut database, highest).await, 35);
    assert_eq!(number(&mut database, recorded).await, 4);
    // However many are rejected, a session records ten in a minute.
    attempt(&mut database, "insert into accounts select seq, 1 from seq_1_to_100").await.unwrap();
    let all = number(&mut database, "select count(*) from fence.reports").await;
    assert!((10..=20).contains(&all), "{all}");

    for typo in ["accounts", "test.acounts", "tset.accounts", ""] {
        for procedure in ["report", "enforce"] {
            let call = format!("call fence.{procedure}('{typo}')");
            assert_eq!(attempt(&mut database, &call).await.unwrap_err(), "42S02", "{call}");
        }
    }
    attempt(&mut database, "call fence.enforce('test.accounts')").await.unwrap();
    for (before, expected) in [("select 1", TOKEN_REQUIRED), ("call fence.present(33, 'a')", STALE)]
    {
        let rejected = attempt_all(&mut database, &[before, UPDATE]).await;
        assert_eq!(rejected.unwrap_err(), expected);
    }
}

/// A value that is too long for a parameter would be MariaDB's own error, which is no rejection.
#[tokio::test]
async fn name_of_any_length_is_rejected_or_reported() {
    let (_server, mut database) = accounts().await;
    attempt(&mut database, "create table notes (note mediumtext)").await.unwrap();
    protect(&mut database, "test.notes", "note").await;
    let long = "insert into notes values (repeat('é', 1000000))";
    assert_eq!(attempt(&mut database, long).await.unwrap_err(), MALFORMED);
    attempt(&mut database, "call fence.report('test.notes')").await.unwrap();
    attempt(&mut database, long).await.unwrap();
    let length = "select cast(max(octet_length(resource)) as signed) from fence.reports";
    assert_eq!(number(&mut database, length).await, 1024);
}

#[tokio::test]
async fn forgotten_prefix_begins_again() {
    let (_server, mut database) = accounts().await;
    attempt(&mut database, "call fence.claim('al', 9, '')").await.unwrap();
    attempt(&mut database, "call fence.claim('al%', 9, '')").await.unwrap();
    attempt(&mut database, "call fence.forget('al%')").await.unwrap();
    assert_eq!(number(&mut database, "select count(*) from fence.resources").await, 2);
    attempt(&mut database, "call fence.forget('al')").await.unwrap();
    assert_eq!(number(&mut database, "select count(*) from fence.resources").await, 0);
    attempt(&mut database, "call fence.forget('')").await.unwrap_err();
    attempt(&mut database, "call fence.forget(null)").await.unwrap_err();
}
