//! Tools that rebuild a table lose its triggers. The status shows it, and the printed SQL mends it.

use super::*;

const DJANGO: &str = r#"
    pragma foreign_keys = off;
    begin immediate;
    create table "new__accounts" (
        "account_id" text not null primary key, "balance" integer not null, "note" text null);
    insert into "new__accounts" ("account_id", "balance", "note")
        select "account_id", "balance", null from "accounts";
    drop table "accounts";
    alter table "new__accounts" rename to "accounts";
    commit;
    pragma foreign_keys = on;"#;

const ALEMBIC: &str = "
    begin immediate;
    create table _alembic_tmp_accounts (
        account_id text not null, balance integer not null, note text, primary key (account_id));
    insert into _alembic_tmp_accounts (account_id, balance) select account_id, balance from accounts;
    drop table accounts;
    alter table _alembic_tmp_accounts rename to accounts;
    commit;";

const PRISMA: &str = r#"
    pragma defer_foreign_keys = on;
    pragma foreign_keys = off;
    create table "new_accounts" (
        "account_id" text not null primary key, "balance" integer not null, "note" text);
    insert into "new_accounts" ("account_id", "balance") select "account_id", "balance" from "accounts";
    drop table "accounts";
    alter table "new_accounts" rename to "accounts";
    pragma foreign_keys = on;
    pragma defer_foreign_keys = off;"#;

const RAILS: &str = r#"
    begin immediate;
    pragma defer_foreign_keys = on;
    create temporary table "aaccounts" ("account_id" text not null primary key, "balance" integer);
    insert into "aaccounts" select "account_id", "balance" from "accounts";
    drop table "accounts";
    create table "accounts" (
        "account_id" text not null primary key, "balance" integer, "note" varchar);
    insert into "accounts" ("account_id", "balance") select "account_id", "balance" from "aaccounts";
    drop table "aaccounts";
    commit;"#;

/// The triggers follow the old table, and are dropped with it.
const RENAME_FIRST: &str = "
    begin immediate;
    alter table accounts rename to accounts_old;
    create table accounts (account_id text not null primary key, balance integer, note text);
    insert into accounts (account_id, balance) select account_id, balance from accounts_old;
    drop table accounts_old;
    commit;";

#[tokio::test]
async fn rebuilt_table_is_shown_and_mended() {
    for resource in ["account_id", "lower(account_id)"] {
        for rebuild in [DJANGO, ALEMBIC, PRISMA, RAILS, RENAME_FIRST] {
            for legacy in ["off", "on"] {
                let folder = TempDir::new().unwrap();
                let file = folder.path().join("accounts.db");
                let mut database = settings_of(&file).connect().await.unwrap();
                sqlite::install(&mut database).await.unwrap();
                attempt(&mut database, ACCOUNTS).await.unwrap();
                let note = format!("insert into fence_protect values ('accounts', '{resource}')");
                attempt(&mut database, &note).await.unwrap();
                execute_printed_sql(&mut database).await.unwrap();
                assert_eq!(problem(&mut database).await, "");

                let rebuild = format!("pragma legacy_alter_table = {legacy}; {rebuild}");
                attempt(&mut database, &rebuild).await.expect(&rebuild);
                database.close().await.unwrap();
                let mut database = settings_of(&file).connect().await.unwrap();
                // The negative control: the protection is lost, and no write says so.
                attempt_and_roll_back(&mut database, UPDATE).await.unwrap();
                assert_eq!(problem(&mut database).await, "missing");

                execute_printed_sql(&mut database).await.unwrap();
                assert_eq!(problem(&mut database).await, "");
                assert_eq!(attempt(&mut database, UPDATE).await.unwrap_err(), TOKEN_REQUIRED);
                let valid = format!("begin immediate; {PRESENT}{UPDATE}{WITHDRAW} commit");
                attempt(&mut database, &valid).await.unwrap();
                let stale = presented(33, "a");
                assert_eq!(attempt(&mut database, &stale).await.unwrap_err(), STALE);
            }
        }
    }
}

#[tokio::test]
async fn changes_that_keep_the_triggers_need_nothing() {
    let mut database = accounts().await;
    let note = "insert into fence_protect values ('accounts', 'lower(account_id)')";
    attempt(&mut database, note).await.unwrap();
    execute_printed_sql(&mut database).await.unwrap();
    for change in [
        "alter table accounts add column note text",
        "alter table accounts rename column note to remark",
        "alter table accounts drop column remark",
        "create index accounts_by_balance on accounts (balance)",
        "alter table accounts rename to people; alter table people rename to accounts",
        "vacuum",
    ] {
        attempt(&mut database, change).await.unwrap();
        assert_eq!(problem(&mut database).await, "", "{change}");
    }
}

#[tokio::test]
async fn renamed_or_dropped_table_is_shown() {
    let mut database = accounts().await;
    attempt(&mut database, "insert into fence_protect values ('accounts', 'account_id')")
        .await
        .unwrap();
    execute_printed_sql(&mut database).await.unwrap();
    let renamed = "alter table accounts rename column account_id to id";
    attempt(&mut database, renamed).await.unwrap();
    assert_eq!(problem(&mut database).await, "different");
    attempt(&mut database, "insert into fence_protect values ('accounts', 'id')").await.unwrap();
    assert_eq!(problem(&mut database).await, "");

    attempt(&mut database, "alter table accounts rename to people").await.unwrap();
    assert_eq!(problem(&mut database).await, "table missing");
    let people = "select problem from fence_status where protected = 'people'";
    let [found] = texts(&mut database, people).await.try_into().unwrap();
    assert!(found.starts_with("not noted"), "{found}");
    let rejected = attempt(&mut database, "update people set balance = 7").await;
    assert_eq!(rejected.unwrap_err(), TOKEN_REQUIRED);
    attempt(&mut database, "drop table people").await.unwrap();
    execute_printed_sql(&mut database).await.expect("nothing is printed");
    assert_eq!(problem(&mut database).await, "table missing");
}

/// Versions of SQLite may print the same triggers as long as nothing in the view is left to them.
#[tokio::test]
async fn shell_of_sqlite_executes_what_it_prints() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("accounts.db");
    let mut database = settings_of(&file).connect().await.unwrap();
    sqlite::install(&mut database).await.unwrap();
    attempt(&mut database, ACCOUNTS).await.unwrap();
    for resource in ["account_id", "account_id || ''/'' || balance -- both"] {
        let note = format!("insert into fence_protect values ('accounts', '{resource}')");
        attempt(&mut database, &note).await.unwrap();
        let printed = shell(&file, "select sql from fence_protect_sql");
        shell(&file, &format!("begin immediate;\n{printed}commit;"));
        assert_eq!(problem(&mut database).await, "");
        assert_eq!(shell(&file, "select count(*) from fence_status where problem is null"), "1\n");
        execute_printed_sql(&mut database).await.unwrap();
        assert_eq!(shell(&file, "select count(*) from fence_status where problem is null"), "1\n");
    }
}
