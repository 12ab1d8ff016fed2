//! Changes that a store makes together or not at all.

use std::{sync::Arc, time::Duration};

use fence::{Fence, ResourceName, Token};
use sqlx::{Connection, PgConnection};
use storage_server::{
    ApplyError, Change, Migrations, MissingFile, Replication, Row, Store, Wanted, WantedValue,
    open_store,
};
use tokio::time::timeout;

use crate::database::{Database, on_empty_databases};

on_empty_databases! {
    group_is_made_as_a_whole_or_not_at_all,
    row_that_is_only_compared_belongs_to_its_group,
    two_stores_never_write_what_the_other_one_compares,
}

async fn open(database: &Database) -> Arc<dyn Store> {
    let (missing_file, migrations) = (MissingFile::Create, Migrations::Apply);
    open_store(&database.url, missing_file, migrations, &Replication::default()).await.unwrap()
}

fn name(name: &str) -> ResourceName {
    name.parse().unwrap()
}

/// The row after so many deletes; of none, that of a resource that was never used.
fn row(version: u64) -> Row {
    let fence = Token::new(version).ok().map(|token| Fence { token, holder: Default::default() });
    Row { fence, version, ..Row::default() }
}

/// The name of a resource, its version before and after, and its group.
type Described<'a> = (&'a str, u64, u64, Option<usize>);

async fn apply(store: &dyn Store, changes: &[Described<'_>]) -> Result<Vec<bool>, ApplyError> {
    let described = changes
        .iter()
        .map(|&(resource, before, after, group)| (name(resource), row(before), row(after), group));
    let described: Vec<_> = described.collect();
    let changes = described.iter().map(|(resource, before, after, group)| Change {
        resource,
        before,
        after,
        group: *group,
    });
    store.apply(&changes.collect::<Vec<_>>()).await
}

async fn versions<const N: usize>(store: &dyn Store, names: [&str; N]) -> [u64; N] {
    let names = names.map(name);
    let wanted =
        names.each_ref().map(|resource| Wanted { resource, value: WantedValue::Description });
    let rows = store.load(&wanted).await.unwrap();
    std::array::from_fn(|place| rows[place].as_ref().unwrap().version)
}

async fn group_is_made_as_a_whole_or_not_at_all(database: Database) {
    let store = open(&database).await;
    let names = ["a", "b", "c", "d", "e", "f"];
    let create = names.map(|name| (name, 0, 1, (name != "f").then_some(7)));
    assert_eq!(apply(&*store, &create[..5]).await.unwrap(), [true; 5]);

    // The row of `b` is not as expected, and `f` is new.
    let changes = |broken, other| {
        [
            ("a", 1, 2, broken),
            ("b", 3, 4, broken),
            ("c", 1, 2, None),
            ("d", 1, 2, other),
            ("e", 1, 2, other),
            ("f", 0, 2, broken),
        ]
    };
    let applied = apply(&*store, &changes(Some(0), Some(1))).await.unwrap();
    assert_eq!(applied, [false, false, true, true, true, false]);
    assert_eq!(versions(&*store, names).await, [1, 1, 2, 2, 2, 0]);

    // The control: without groups, each change is made by itself.
    let applied = apply(&*store, &changes(None, None)).await.unwrap();
    assert_eq!(applied, [true, false, false, false, false, true]);
    assert_eq!(versions(&*store, names).await, [2, 1, 2, 2, 2, 2]);
    store.close().await;
}

async fn row_that_is_only_compared_belongs_to_its_group(database: Database) {
    let store = open(&database).await;
    let names = ["a", "b", "c", "d", "e", "new", "unused"];
    apply(&*store, &["a", "b", "c", "d", "e"].map(|name| (name, 0, 1, None))).await.unwrap();
    let changes = [
        ("a", 1, 2, Some(0)),
        ("b", 1, 1, Some(0)),
        ("c", 1, 2, Some(1)),
        ("d", 3, 3, Some(1)),
        ("e", 1, 2, Some(2)),
        ("new", 0, 1, Some(3)),
        ("unused", 0, 0, Some(2)),
    ];
    let made = [true, true, false, false, true, true, true];
    assert_eq!(apply(&*store, &changes).await.unwrap(), made);
    assert_eq!(versions(&*store, names).await, [2, 1, 1, 1, 2, 1, 0]);

    // One that is compared as unused, and has been written.
    let changes = [("a", 2, 3, Some(0)), ("e", 0, 0, Some(0))];
    assert_eq!(apply(&*store, &changes).await.unwrap(), [false, false]);
    // One that is compared as written, and is unused.
    let changes = [("a", 2, 3, Some(0)), ("never", 1, 1, Some(0))];
    assert_eq!(apply(&*store, &changes).await.unwrap(), [false, false]);
    let changes = [("a", 2, 3, Some(0)), ("unused", 0, 0, Some(0))];
    assert_eq!(apply(&*store, &changes).await.unwrap(), [true, true], "the control");
    store.close().await;
}

/// Write skew: each of two servers writes what the other one compares.
async fn two_stores_never_write_what_the_other_one_compares(database: Database) {
    let (one, other) = (open(&database).await, open(&database).await);
    let made = |applied: Result<Vec<bool>, ApplyError>| match applied {
        Ok(applied) => applied.iter().all(|made| *made),
        Err(ApplyError::Blocked) => false,
        Err(error) => panic!("{error}"),
    };
    let (mut first, mut second) = (0, 0);
    for round in 0..100 {
        let [a, b] = ["a", "b"].map(|name| format!("{name}/{round}"));
        // Neither was used before, and then both have rows.
        for written in 0..2 {
            let [at_a, at_b] = versions(&*one, [&*a, &*b]).await;
            let write_b = [(&*a, at_a, at_a, Some(0)), (&*b, at_b, at_b + 1, Some(0))];
            let write_a = [(&*a, at_a, at_a + 1, Some(0)), (&*b, at_b, at_b, Some(0))];
            let (wrote_b, wrote_a) = tokio::join!(apply(&*one, &write_b), apply(&*other, &write_a));
            let (wrote_b, wrote_a) = (made(wrote_b), made(wrote_a));
            assert!(!(wrote_b && wrote_a), "round {round}: both took effect");
            first += u32::from(wrote_b);
            second += u32::from(wrote_a);
            let now = versions(&*one, [&*a, &*b]).await;
            let expected = [at_a + u64::from(wrote_a), at_b + u64::from(wrote_b)];
            assert_eq!(now, expected, "round {round}, {written}");
        }
    }
    assert!(first + second > 50, "{first} and {second} of 200 rounds");

    // The control: nothing is compared but what is written.
    let [write_a, write_b] = ["a", "b"].map(|name| [(name, 0, 1, Some(0))]);
    let (wrote_b, wrote_a) = tokio::join!(apply(&*one, &write_b), apply(&*other, &write_a));
    assert!(made(wrote_b) && made(wrote_a));
    for store in [one, other] {
        store.close().await;
    }
}

/// A rival inserts a row of the group while the group waits for the lock of another one.
#[tokio::test]
async fn row_that_a_rival_inserts_meanwhile_breaks_its_group() {
    let database = Database::postgres().await;
    let store = open(&database).await;
    apply(&*store, &[("a", 0, 1, None)]).await.unwrap();
    let mut rival = PgConnection::connect(&database.url).await.unwrap();
    let mut observer = PgConnection::connect(&database.url).await.unwrap();
    let mut overtaken = 0;
    for round in 0..50 {
        let new = format!("new/{round}");
        let mut transaction = rival.begin().await.unwrap();
        let lock = "select from storage.resource where resource = 'a' for update";
        sqlx::query(lock).execute(&mut *transaction).await.unwrap();
        let changes = [("a", 1, 2, Some(0)), (&*new, 0, 1, Some(0))];
        let rival = async {
            let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
            let seen = async {
                while sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut observer).await.unwrap()
                    == 0
                {}
            };
            // If it has waited for too long already, nobody sees it wait.
            let _ = timeout(Duration::from_millis(100), seen).await;
            let insert =
                "insert into storage.resource (resource, holder, version) values ($1, '', 1)";
            sqlx::query(insert).bind(&new).execute(&mut *transaction).await.unwrap();
            transaction.commit().await.unwrap();
        };
        let (applied, ()) = tokio::join!(apply(&*store, &changes), rival);
        match applied {
            Ok(applied) => {
                assert_eq!(applied, [false, false], "round {round}");
                overtaken += 1;
            }
            // It has waited for too long.
            Err(ApplyError::Blocked) => {}
            Err(error) => panic!("{error}"),
        }
        assert_eq!(versions(&*store, ["a", &new]).await, [1, 1], "round {round}");
    }
    assert!(overtaken > 0, "the rival was never in time");
    store.close().await;
}
