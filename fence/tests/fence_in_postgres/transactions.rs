//! A presented or claimed token counts until its transaction ends, and no longer.

use fence::postgres;
use sqlx::PgConnection;
use testbed::Postgres;

use super::{
    HOLDER_CONFLICT, STALE, TOKEN_REQUIRED, accounts, attempt, attempt_and_roll_back, is_true,
    number, session,
};

const UPDATE: &str = "update accounts set balance = 7 where account_id = 'alice'";

async fn assert_token_is_required(database: &mut PgConnection) {
    assert_eq!(attempt(database, UPDATE).await.unwrap_err(), TOKEN_REQUIRED);
}

#[tokio::test]
async fn offer_of_one_transaction_does_not_count_in_the_next() {
    let (_server, mut database) = accounts().await;
    for offer in ["select fence.present(34, 'a')", "select fence.claim('alice', 34, 'a')"] {
        for end in ["commit", "rollback"] {
            attempt(&mut database, &format!("begin; {offer}; {UPDATE}; {end}")).await.unwrap();
            assert_token_is_required(&mut database).await;
        }
        // In a transaction of its own.
        attempt(&mut database, offer).await.unwrap();
        assert_token_is_required(&mut database).await;

        let chain = format!("begin; {offer}; {UPDATE}; commit and chain");
        attempt(&mut database, &chain).await.unwrap();
        assert_token_is_required(&mut database).await;
        attempt(&mut database, "rollback").await.unwrap();

        let procedure = format!("do $$ begin perform 1; {offer}; end $$")
            .replace("select", "perform")
            .replace("end $$", "commit; update accounts set balance = 7; end $$");
        assert_eq!(attempt(&mut database, &procedure).await.unwrap_err(), TOKEN_REQUIRED);
    }
}

/// A function's own settings end with the function. A token presented in it does not.
#[tokio::test]
async fn offer_of_a_function_outlives_it() {
    let (_server, mut database) = accounts().await;
    for offer in ["fence.present(34, 'a')", "fence.claim('alice', 34, 'a')"] {
        let function = format!(
            "create or replace function offer() returns void language plpgsql
             security definer set search_path = pg_catalog set datestyle = 'German'
             as $$ begin perform {offer}; end $$"
        );
        attempt(&mut database, &function).await.unwrap();
        attempt(&mut database, &format!("select offer(); {UPDATE}")).await.unwrap();
        assert_token_is_required(&mut database).await;
    }
}

#[tokio::test]
async fn settings_of_the_session_are_no_token() {
    let (_server, mut database) = accounts().await;
    for presented in ["", "34", "34 a", " 34 a", "1 34 a", "0 34 a", "null 34 a"] {
        attempt(&mut database, &format!("set fence.presented = '{presented}'")).await.unwrap();
        assert_token_is_required(&mut database).await;
    }
    // As a careless client would leave it, for the whole session.
    let left = format!(
        "begin;
         select set_config('fence.presented', pg_current_xact_id() || ' 34 a', false); {UPDATE};
         commit"
    );
    attempt(&mut database, &left).await.unwrap();
    assert!(is_true(&mut database, "select current_setting('fence.presented') <> ''").await);
    assert_token_is_required(&mut database).await;
}

#[tokio::test]
async fn offer_of_a_savepoint_ends_with_it() {
    let (_server, mut database) = accounts().await;
    for offer in ["select fence.present(34, 'a')", "select fence.claim('alice', 34, 'a')"] {
        let rolled_back = format!("begin; savepoint s; {offer}; {UPDATE}; rollback to s; {UPDATE}");
        assert_eq!(attempt(&mut database, &rolled_back).await.unwrap_err(), TOKEN_REQUIRED);
        attempt(&mut database, "rollback").await.unwrap();

        let released = format!("begin; savepoint s; {offer}; release s; {UPDATE}; rollback");
        attempt(&mut database, &released).await.unwrap();

        let before = format!("begin; {offer}; savepoint s; {UPDATE}; rollback to s; {UPDATE}");
        attempt(&mut database, &before).await.unwrap();
        attempt(&mut database, "rollback").await.unwrap();
    }
}

/// Other sessions can claim at once, without waiting for the transaction whose claim was rejected.
#[tokio::test]
async fn claim_that_a_savepoint_undoes_leaves_no_lock() {
    let (server, mut database) = accounts().await;
    let mut other = session(&server).await;
    attempt(&mut database, "begin; savepoint s").await.unwrap();
    let claim = "select fence.claim('alice', 33, 'a')";
    assert_eq!(attempt(&mut database, claim).await.unwrap_err(), STALE);

    attempt(&mut database, "rollback to s").await.unwrap();

    let at_once = "set lock_timeout = '100ms'; select fence.claim('alice', 34, 'a')";
    attempt(&mut other, at_once).await.unwrap();
    attempt(&mut database, at_once).await.unwrap();
    // The negative control: this claim was not undone, and does hold the fence.
    assert_eq!(attempt(&mut other, at_once).await.unwrap_err(), "55P03");
    attempt(&mut database, "rollback to s").await.unwrap();
    attempt(&mut other, at_once).await.unwrap();
}

/// So one that nobody ends keeps all others out, as the README says.
#[tokio::test]
async fn claim_of_a_prepared_transaction_lasts_until_somebody_ends_it() {
    let server = Postgres::start_with(&["max_prepared_transactions=1"]).await.unwrap();
    let mut client = session(&server).await;
    postgres::install(&mut client).await.unwrap();
    let prepare = "begin; select fence.claim('alice', 34); prepare transaction 'orphan'";
    attempt(&mut client, prepare).await.unwrap();
    let mut other = session(&server).await;
    let claim = "set lock_timeout = '100ms'; select fence.claim('alice', 35)";
    assert_eq!(attempt(&mut other, claim).await.unwrap_err(), "55P03");
    attempt(&mut client, "rollback prepared 'orphan'").await.unwrap();
    attempt(&mut other, claim).await.unwrap();
}

#[tokio::test]
async fn restored_row_with_the_transactions_id_opens_no_table() {
    let (_server, mut database) = accounts().await;
    // As if claimed by a transaction of another server: the next one's id, if nothing comes
    // between.
    let restore = "
        update fence.fence
        set claimed_by = (pg_current_xact_id()::text::bigint + 1)::text::xid8";
    let hit = "select claimed_by = pg_current_xact_id() from fence.fence";
    for write in [UPDATE, "select fence.verify('alice')"] {
        loop {
            attempt(&mut database, restore).await.unwrap();
            attempt(&mut database, "begin").await.unwrap();
            // A check that compares the ids alone would be taken in.
            if is_true(&mut database, hit).await {
                break;
            }
            attempt(&mut database, "rollback").await.unwrap();
        }
        assert_eq!(attempt(&mut database, write).await.unwrap_err(), TOKEN_REQUIRED);
        attempt(&mut database, "rollback").await.unwrap();
    }
}

#[tokio::test]
async fn claim_over_a_restored_row_with_the_transactions_id_counts() {
    let (_server, mut database) = accounts().await;
    let restore = "
        update fence.fence
        set claimed_by = (pg_current_xact_id()::text::bigint + 1)::text::xid8";
    let hit = "select claimed_by = pg_current_xact_id() from fence.fence";
    for offer in ["select fence.claim('alice', 34, 'a')", "select fence.present(34, 'a')"] {
        loop {
            attempt(&mut database, restore).await.unwrap();
            attempt(&mut database, "begin").await.unwrap();
            if is_true(&mut database, hit).await {
                break;
            }
            attempt(&mut database, "rollback").await.unwrap();
        }
        attempt(&mut database, &format!("{offer}; {UPDATE}")).await.unwrap();
        // And the fence is held, as after any claim.
        let written = "
            select (xmin::text::bigint = pg_current_xact_id()::text::bigint)::int::bigint
            from fence.fence where resource = 'alice'";
        assert_eq!(number(&mut database, written).await, 1);
        attempt(&mut database, "rollback").await.unwrap();
    }
}

#[tokio::test]
async fn prepared_statements_outlive_a_new_protection() {
    let (_server, mut database) = accounts().await;
    for protect in [
        "select 1",
        "select fence.protect('accounts', 'account_id')",
        "select fence.protect('accounts', 'account_id', 'report');
         select fence.protect('accounts', 'account_id')",
        "alter table accounts add column note text",
        "alter table accounts drop column note",
    ] {
        attempt(&mut database, protect).await.unwrap();
        for balance in 0..10_i64 {
            // sqlx prepares each of them once per connection.
            sqlx::query("begin").execute(&mut database).await.unwrap();
            let claim = sqlx::query("select fence.claim($1, $2, $3)");
            claim.bind("alice").bind(34_i64).bind("a").execute(&mut database).await.unwrap();
            let update = "update accounts set balance = $1 where account_id = $2";
            let update = || sqlx::query(update).bind(balance);
            update().bind("alice").execute(&mut database).await.unwrap();
            sqlx::query("commit").execute(&mut database).await.unwrap();

            let rejected = update().bind("alice").execute(&mut database).await.unwrap_err();
            let code = rejected.as_database_error().unwrap().code().unwrap().into_owned();
            assert_eq!(code, TOKEN_REQUIRED, "after {protect}");
        }
    }
}

#[tokio::test]
async fn one_transaction_claims_many_resources_each_with_its_token() {
    let (_server, mut database) = accounts().await;
    let transfer = "
        select fence.claim('alice', 34, 'a'), fence.claim('bob', 7, 'b');
        update accounts set balance = balance - 30 where account_id = 'alice';
        update accounts set balance = balance + 30 where account_id = 'bob';";
    attempt(&mut database, transfer).await.unwrap();
    let stale = "
        select fence.claim('alice', 34, 'a'), fence.present(6, 'b');
        update accounts set balance = 0 where account_id = 'alice';
        update accounts set balance = 0 where account_id = 'bob';";
    assert_eq!(attempt_and_roll_back(&mut database, stale).await.unwrap_err(), STALE);
    assert_eq!(number(&mut database, "select sum(balance)::bigint from accounts").await, 200);
    assert_eq!(number(&mut database, "select min(balance) from accounts").await, 70);
}

#[tokio::test]
async fn resource_and_holder_may_come_from_columns_of_any_collation() {
    let (_server, mut database) = accounts().await;
    let setup = r#"
        create collation nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
        create table names (
            plain text, c text collate "C", posix text collate "POSIX", nocase text collate nocase
        );
        insert into names values ('alice', 'alice', 'alice', 'alice')"#;
    attempt(&mut database, setup).await.unwrap();
    for column in ["plain", "c", "posix", "nocase"] {
        let claim = format!("select fence.claim({column}, 33, 'a') from names");
        assert_eq!(attempt(&mut database, &claim).await.unwrap_err(), STALE, "{column}");
        let claim = format!("select fence.claim('new', 34, {column}) from names");
        attempt(&mut database, &claim).await.expect(column);
        // No collation makes two holders equal.
        let claim = format!("select fence.claim('new', 34, upper({column})) from names");
        let conflict = attempt(&mut database, &claim).await;
        assert_eq!(conflict.unwrap_err(), HOLDER_CONFLICT, "{column}");
        let both = format!("select fence.claim({column}, 34, 'a' collate \"C\") from names");
        attempt(&mut database, &both).await.expect(column);
    }
}
