//! No mistake deletes, lowers or replaces a fence.

use super::*;

const TOKENS: &str = "select group_concat(resource || token || holder, ' ') from fence";

/// As a test cleaner, a fixture or a hand at the console would do it.
const MISTAKES: [&str; 9] = [
    "delete from fence",
    "delete from fence where resource = 'alice'",
    "update fence set token = 33",
    "update fence set holder = 'b'",
    "update fence set resource = 'carol' where resource = 'alice'",
    "replace into fence (resource, token, holder) values ('alice', 33, 'a')",
    "insert or replace into fence values ('alice', 34, 'b', 0)",
    "insert into fence values ('alice', 33, 'a', 0) on conflict do update set token = 33",
    "update or replace fence set resource = 'alice', token = 33 where resource = 'bob'",
];

#[tokio::test]
async fn fences_are_not_deleted_or_lowered_by_mistake() {
    let mut database = accounts().await;
    attempt(&mut database, "insert into fence_claim values ('bob', 50, '')").await.unwrap();
    for setting in ["on", "off"] {
        let settings =
            format!("pragma recursive_triggers = {setting}; pragma foreign_keys = {setting}");
        attempt(&mut database, &settings).await.unwrap();
        for mistake in MISTAKES {
            let rejected = attempt_and_roll_back(&mut database, mistake).await;
            assert_eq!(rejected.unwrap_err(), NOT_REMOVED, "{mistake}");
        }
    }
    assert_eq!(texts(&mut database, TOKENS).await, ["alice34a bob50"]);

    // The negative control: without the triggers, each of them passes.
    let unkept = "
        drop trigger fence_is_not_replaced; drop trigger fence_is_not_lowered;
        drop trigger fence_is_not_deleted;";
    attempt(&mut database, unkept).await.unwrap();
    for mistake in MISTAKES {
        attempt_and_roll_back(&mut database, mistake).await.expect(mistake);
    }
}

#[tokio::test]
async fn operator_forgets_the_fences_of_a_prefix() {
    let mut database = accounts().await;
    let claims = "
        insert into fence_claim values ('order/1', 7, 'a'), ('order/2', 7, ''), ('order', 7, 'a'),
            ('Order/1', 7, 'a'), ('orders', 7, 'a'), ('zamówienie/1', 7, 'a');";
    attempt(&mut database, claims).await.unwrap();
    for malformed in ["null", "7", "x'6f'"] {
        let forget = format!("insert into fence_forget values ({malformed})");
        assert_eq!(attempt(&mut database, &forget).await.unwrap_err(), MALFORMED, "{malformed}");
    }
    for (prefix, left) in [
        ("%", 7),
        ("order_", 7),
        ("order/", 5),
        ("zamów", 4),
        ("bob", 4),
        ("alice and more", 4),
        ("", 0),
    ] {
        let forget = format!("insert into fence_forget values ('{prefix}')");
        attempt(&mut database, &forget).await.unwrap();
        assert_eq!(number(&mut database, "select count(*) from fence").await, left, "{prefix}");
    }
    attempt(&mut database, "insert into fence_claim values ('order/1', 1, 'b')").await.unwrap();
    // A forgotten resource is no longer presented.
    let forgotten = format!("{PRESENT} insert into fence_forget values (''); {UPDATE}");
    let rejected = attempt_and_roll_back(&mut database, &forgotten).await;
    assert_eq!(rejected.unwrap_err(), TOKEN_REQUIRED);
}

#[tokio::test]
async fn holder_conflict_with_an_empty_holder_says_so() {
    let mut database = accounts().await;
    attempt(&mut database, "insert into fence_claim values ('bob', 34, '')").await.unwrap();
    for (claim, hint) in [
        ("insert into fence_claim values ('alice', 34, '')", true),
        ("insert into fence_claim values ('bob', 34, 'b')", true),
        ("insert into fence_presented (resource, token) values ('alice', 34)", true),
        ("insert into fence_claim values ('alice', 34, 'b')", false),
    ] {
        let rejected = sqlx::query(claim).execute(&mut database).await.unwrap_err();
        let message = rejected.as_database_error().unwrap().message().to_owned();
        assert!(message.starts_with(HOLDER_CONFLICT), "{claim}: {message}");
        assert_eq!(message.contains("forgotten"), hint, "{claim}: {message}");
    }
}

/// The conflict clause of a statement overrides those inside the triggers that it fires.
#[tokio::test]
async fn no_conflict_clause_changes_a_decision() {
    for clause in ["abort", "fail", "ignore", "replace", "rollback"] {
        let mut database = accounts().await;
        for into in ["fence_claim", "fence_presented (resource, token, holder)"] {
            for (token, holder, expected) in [
                (33, "a", Err(STALE)),
                (34, "b", Err(HOLDER_CONFLICT)),
                (34, "a", Ok(())),
                (35, "b", Ok(())),
            ] {
                let offer =
                    format!("insert or {clause} into {into} values ('alice', {token}, '{holder}')");
                attempt(&mut database, "begin immediate").await.unwrap();
                let decided = attempt(&mut database, &offer).await;
                let fence = texts(&mut database, TOKENS).await;
                let _ = attempt(&mut database, "rollback").await;
                assert_eq!(decided.as_ref().copied().map_err(String::as_str), expected, "{offer}");
                let fence_expected =
                    if (token, expected) == (35, Ok(())) { "alice35b" } else { "alice34a" };
                assert_eq!(fence, [fence_expected], "{offer}");
            }
        }
    }
}

/// SQLite counts violated foreign keys. A transaction that presents a token and removes an older
/// violation ends with a count of 0, so its commit succeeds, and the presented row stays.
#[tokio::test]
async fn presented_token_that_outlives_its_commit_is_void_once_the_fence_moves() {
    let mut database = accounts().await;
    let orphans = "
        pragma foreign_keys = off;
        create table orphans (parent_id integer references parents deferrable initially deferred);
        create table parents (parent_id integer primary key);
        insert into orphans values (1);
        pragma foreign_keys = on;";
    attempt(&mut database, orphans).await.unwrap();
    let outlives = format!("begin immediate; {PRESENT} delete from orphans; commit");
    attempt(&mut database, &outlives).await.unwrap();
    let left = "select count(*) from fence_presented";
    assert_eq!(number(&mut database, left).await, 1, "SQLite has changed");

    let next = "insert into fence_claim values ('alice', 35, 'b')";
    attempt(&mut database, next).await.unwrap();
    assert_eq!(attempt(&mut database, UPDATE).await.unwrap_err(), TOKEN_REQUIRED);
    // It is in nobody's way either.
    let valid = format!("begin immediate; {}{UPDATE}{WITHDRAW} commit", presented(35, "b"));
    attempt(&mut database, &valid).await.unwrap();
    assert_eq!(number(&mut database, left).await, 0);
}
