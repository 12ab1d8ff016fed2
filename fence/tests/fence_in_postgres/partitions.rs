//! TRUNCATE, and tables that have partitions.

use super::{
    STALE, TOKEN_REQUIRED, TRUNCATE_REJECTED, accounts, attempt, attempt_and_roll_back, fence,
    is_true, number, problem,
};

const ORDERS: &str = "
    create table orders (order_id bigint, year int, region text) partition by list (year);
    create table orders_1 partition of orders for values in (1);
    create table orders_2 partition of orders for values in (2) partition by list (region);
    create table orders_2_eu partition of orders_2 for values in ('eu');
    insert into orders values (1, 1, 'eu'), (2, 2, 'eu');";

#[tokio::test]
async fn truncate_is_rejected_even_with_a_token() {
    let (_server, mut database) = accounts().await;
    attempt(&mut database, "create table owners (account_id text primary key)").await.unwrap();
    let references = "
        select fence.present(34, 'a');
        insert into owners values ('alice'), ('bob');
        alter table accounts add foreign key (account_id) references owners";
    attempt(&mut database, references).await.unwrap();
    for truncate in ["truncate accounts", "truncate owners cascade", "truncate owners, accounts"] {
        for before in
            ["", "select fence.claim('alice', 34, 'a');", "select fence.present(34, 'a');"]
        {
            let rejected = attempt(&mut database, &format!("{before}{truncate}")).await;
            assert_eq!(rejected.unwrap_err(), TRUNCATE_REJECTED, "{truncate}");
        }
        // Without the protection, it goes through.
        let unprotected = format!("select fence.unprotect('accounts'); {truncate}");
        attempt_and_roll_back(&mut database, &unprotected).await.unwrap();
    }
    assert_eq!(number(&mut database, "select count(*) from accounts").await, 2);
}

#[tokio::test]
async fn partitions_are_as_protected_as_their_table() {
    let (_server, mut database) = fence().await;
    attempt(&mut database, ORDERS).await.unwrap();
    let protect = "select fence.protect('orders', 'order_id', prefix => 'order/')";
    attempt(&mut database, protect).await.unwrap();
    for part in ["orders", "orders_1", "orders_2", "orders_2_eu"] {
        let truncate = format!("truncate {part}");
        assert_eq!(attempt(&mut database, &truncate).await.unwrap_err(), TRUNCATE_REJECTED);
        let delete = format!("delete from {part}");
        assert_eq!(attempt(&mut database, &delete).await.unwrap_err(), TOKEN_REQUIRED);
    }
    let everywhere = "select bool_and(problem is null) from fence.status";
    assert!(is_true(&mut database, everywhere).await);
    assert_eq!(number(&mut database, "select count(*) from fence.status").await, 4);
}

#[tokio::test]
async fn row_that_changes_its_partition_is_checked() {
    let (_server, mut database) = fence().await;
    attempt(&mut database, ORDERS).await.unwrap();
    let protect = "
        select fence.protect('orders', 'order_id', prefix => 'order/');
        select fence.claim('order/1', 34), fence.claim('order/3', 50);";
    attempt(&mut database, protect).await.unwrap();
    let moved = "update orders set year = 2 where order_id = 1";
    let moved_to_another = "update orders set year = 2, order_id = 3 where order_id = 1";
    for (before, update, expected) in [
        ("select 1", moved, Err(TOKEN_REQUIRED)),
        ("select fence.present(33)", moved, Err(STALE)),
        ("select fence.present(34)", moved, Ok(())),
        ("select fence.claim('order/1', 34)", moved, Ok(())),
        ("select fence.claim('order/1', 34)", moved_to_another, Err(TOKEN_REQUIRED)),
        ("select fence.claim('order/3', 50)", moved_to_another, Err(TOKEN_REQUIRED)),
        ("select fence.present(34)", moved_to_another, Err(STALE)),
        ("select fence.claim('order/3', 50), fence.present(34)", moved_to_another, Ok(())),
    ] {
        let done = attempt_and_roll_back(&mut database, &format!("{before}; {update}")).await;
        assert_eq!(done.as_ref().map(|_| ()).map_err(String::as_str), expected, "{before}");
    }
}

/// Also one whose columns are in another order, and in a session where ordinary triggers don't
/// fire.
#[tokio::test]
async fn partition_that_is_added_later_checks_rows_at_once() {
    let (_server, mut database) = fence().await;
    attempt(&mut database, ORDERS).await.unwrap();
    let protect = "select fence.protect('orders', 'order_id', prefix => 'order/')";
    attempt(&mut database, protect).await.unwrap();
    let later = "
        create table orders_3 partition of orders for values in (3);
        create table orders_4 (region text, gone int, year int, order_id bigint);
        alter table orders_4 drop column gone;
        alter table orders attach partition orders_4 for values in (4);";
    attempt(&mut database, later).await.unwrap();
    for role in ["origin", "replica"] {
        let role = format!("set session_replication_role = {role}");
        attempt(&mut database, &role).await.unwrap();
        for year in [3, 4] {
            let insert = format!("insert into orders values (8, {year}, 'eu')");
            assert_eq!(attempt(&mut database, &insert).await.unwrap_err(), TOKEN_REQUIRED);
            let other = format!("select fence.claim('order/9', 34); {insert}");
            assert_eq!(attempt(&mut database, &other).await.unwrap_err(), TOKEN_REQUIRED);
            let valid = format!("select fence.claim('order/8', 34); {insert}");
            attempt_and_roll_back(&mut database, &valid).await.unwrap();
        }
    }

    let rejecting = "select count(*) from fence.status where problem is null";
    let checking = "select count(*) from fence.status where problem = 'truncate'";
    assert_eq!(number(&mut database, rejecting).await, 4);
    assert_eq!(number(&mut database, checking).await, 2);
    attempt_and_roll_back(&mut database, "truncate orders_3").await.unwrap();
    attempt(&mut database, protect).await.unwrap();
    assert_eq!(number(&mut database, rejecting).await, 6);
    assert_eq!(attempt(&mut database, "truncate orders_3").await.unwrap_err(), TRUNCATE_REJECTED);
}

/// The table that it becomes a part of is not protected.
#[tokio::test]
async fn protected_table_that_is_attached_as_a_partition_keeps_its_protection_until_it_is_freed() {
    let (_server, mut database) = fence().await;
    let setup = "
        create table orders (order_id bigint, year int) partition by list (year);
        create table orders_1 (order_id bigint, year int);
        select fence.protect('orders_1', 'order_id');
        alter table orders attach partition orders_1 for values in (1)";
    attempt(&mut database, setup).await.unwrap();
    let insert = "insert into orders values (8, 1)";
    assert_eq!(attempt(&mut database, insert).await.unwrap_err(), TOKEN_REQUIRED);
    assert_eq!(problem(&mut database, "orders_1").await, None);
    let listed = "select count(*) from fence.status";
    assert_eq!(number(&mut database, listed).await, 1);
    // That of the table, which is not protected, leaves it alone.
    let unprotect = attempt(&mut database, "select fence.unprotect('orders')").await;
    assert_eq!(unprotect.unwrap_err(), "42704");
    assert_eq!(attempt(&mut database, "truncate orders").await.unwrap_err(), TRUNCATE_REJECTED);
    // The table takes it over only once it is free.
    let protect = "select fence.protect('orders', 'order_id')";
    assert_eq!(attempt(&mut database, protect).await.unwrap_err(), "42710");
    attempt(&mut database, "select fence.unprotect('orders_1')").await.unwrap();
    assert_eq!(number(&mut database, listed).await, 0);
    attempt(&mut database, insert).await.unwrap();
}

/// `protect` is the cure for what the status finds, also where the table was attached since.
#[tokio::test]
async fn protected_table_that_is_attached_as_a_partition_can_be_protected_again() {
    let (_server, mut database) = fence().await;
    let setup = "
        create table orders (order_id bigint, year int) partition by list (year);
        create table orders_1 (order_id bigint, year int);
        create table orders_2 partition of orders for values in (2);
        select fence.protect('orders_1', 'order_id');
        alter table orders attach partition orders_1 for values in (1);
        alter table orders_1 disable trigger fence_rows";
    attempt(&mut database, setup).await.unwrap();
    assert_eq!(problem(&mut database, "orders_1").await.as_deref(), Some("different"));
    attempt(&mut database, "select fence.protect('orders_1', 'order_id')").await.unwrap();
    assert_eq!(problem(&mut database, "orders_1").await, None);
    let insert = "insert into orders values (8, 1)";
    assert_eq!(attempt(&mut database, insert).await.unwrap_err(), TOKEN_REQUIRED);
    // The negative control: another partition is protected with its table only.
    let other = attempt(&mut database, "select fence.protect('orders_2', 'order_id')").await;
    assert_eq!(other.unwrap_err(), "42809");
}

/// The trigger for TRUNCATE of each of its own partitions stays, too.
#[tokio::test]
async fn freeing_a_table_leaves_a_protected_tree_below_it_alone() {
    let (_server, mut database) = fence().await;
    let setup = "
        create table orders (id text, year int, region text) partition by list (year);
        create table orders_1 (id text, year int, region text) partition by list (region);
        create table orders_1_eu partition of orders_1 for values in ('eu');
        select fence.protect('orders_1', 'id');
        alter table orders attach partition orders_1 for values in (1)";
    attempt(&mut database, setup).await.unwrap();
    let unprotect = attempt(&mut database, "select fence.unprotect('orders')").await;
    assert_eq!(unprotect.unwrap_err(), "42704");
    assert_eq!(problem(&mut database, "orders_1_eu").await, None);
    let truncate = attempt(&mut database, "truncate orders_1_eu").await;
    assert_eq!(truncate.unwrap_err(), TRUNCATE_REJECTED);
    // The negative control: its own table frees it.
    let freed = "select fence.unprotect('orders_1'); truncate orders_1_eu";
    attempt(&mut database, freed).await.unwrap();
}

#[tokio::test]
async fn detached_partition_can_be_protected_or_freed() {
    let (_server, mut database) = fence().await;
    attempt(&mut database, ORDERS).await.unwrap();
    attempt(&mut database, "select fence.protect('orders', 'order_id')").await.unwrap();
    attempt(&mut database, "alter table orders detach partition orders_1").await.unwrap();
    // It is a table of its own now, whose rows nobody checks.
    attempt_and_roll_back(&mut database, "delete from orders_1").await.unwrap();

    attempt(&mut database, "begin; select fence.protect('orders_1', 'order_id')").await.unwrap();
    assert_eq!(attempt(&mut database, "delete from orders_1").await.unwrap_err(), TOKEN_REQUIRED);
    attempt(&mut database, "rollback").await.unwrap();

    let freed = "select fence.unprotect('orders_1'); truncate orders_1";
    attempt(&mut database, freed).await.unwrap();
    assert_eq!(attempt(&mut database, "truncate orders").await.unwrap_err(), TRUNCATE_REJECTED);
    // A partition is freed with its table only.
    assert_eq!(
        attempt(&mut database, "select fence.unprotect('orders_2')").await.unwrap_err(),
        "42704"
    );
    assert_eq!(attempt(&mut database, "truncate orders_2").await.unwrap_err(), TRUNCATE_REJECTED);
}
