//! Changes that a store makes together or not at all.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use fence::{Fence, ResourceName, Token};
use sqlx::{Connection, PgConnection};
use storage_server::{
    ApplyError, Change, Migrations, MissingFile, Replication, Row, Store, Wanted, WantedValue,
    open_store,
};
use testbed::Postgres;
use tokio::time::timeout;

use crate::database::{Database, on_empty_databases};

on_empty_databases! {
    group_is_made_as_a_whole_or_not_at_all,
    row_that_is_only_compared_belongs_to_its_group,
    two_stores_never_write_what_the_other_one_compares,
}

async fn open(database: &Database) -> Arc<dyn Store> {
    open_url(&database.url).await
}

async fn open_url(url: &str) -> Arc<dyn Store> {
    let (missing_file, migrations) = (MissingFile::Create, Migrations::Apply);
    open_store(url, missing_file, migrations, &Replication::default()).await.unwrap()
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
        Err(ApplyError::Blocked | ApplyError::LostRace) => false,
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
            Err(ApplyError::LostRace) => overtaken += 1,
            // It came after the rival.
            Ok(applied) => assert_eq!(applied, [false, false], "round {round}"),
            // It has waited for too long.
            Err(ApplyError::Blocked) => {}
            Err(error) => panic!("{error}"),
        }
        assert_eq!(versions(&*store, ["a", &new]).await, [1, 1], "round {round}");
    }
    assert!(overtaken > 0, "the rival was never in time");
    store.close().await;
}

/// A rival changes a row of the group while the group waits for its lock.
#[tokio::test]
async fn row_that_a_rival_changes_meanwhile_breaks_its_group_and_no_other() {
    let database = Database::postgres().await;
    let store = open(&database).await;
    let mut rival = PgConnection::connect(&database.url).await.unwrap();
    let mut observer = PgConnection::connect(&database.url).await.unwrap();
    let mut overtaken = 0;
    for round in 0..50 {
        let names = ["a", "b", "c"].map(|name| format!("{name}/{round}"));
        let [a, b, c] = names.each_ref().map(|name| &**name);
        apply(&*store, &[(a, 0, 1, None), (b, 0, 1, None), (c, 0, 1, None)]).await.unwrap();
        let mut transaction = rival.begin().await.unwrap();
        let change = "update storage.resource set version = 7 where resource = $1";
        sqlx::query(change).bind(b).execute(&mut *transaction).await.unwrap();
        let changes = [(a, 1, 2, Some(0)), (b, 1, 2, Some(0)), (c, 1, 2, None)];
        let rival = async {
            let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
            let seen = async {
                while sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut observer).await.unwrap()
                    == 0
                {}
            };
            // If it has waited for too long already, nobody sees it wait.
            let _ = timeout(Duration::from_millis(100), seen).await;
            transaction.commit().await.unwrap();
        };
        let (applied, ()) = tokio::join!(apply(&*store, &changes), rival);
        let expected = match applied {
            Ok(applied) => {
                assert_eq!(applied, [false, false, true], "round {round}");
                overtaken += 1;
                [1, 7, 2]
            }
            // It has waited for too long.
            Err(ApplyError::Blocked) => [1, 7, 1],
            Err(error) => panic!("{error}"),
        };
        assert_eq!(versions(&*store, [a, b, c]).await, expected, "round {round}");
    }
    assert!(overtaken > 0, "the rival was never in time");
    store.close().await;
}

/// Each of two servers changes and compares some of the same rows, old and new ones, by themselves and in groups.
#[tokio::test]
async fn stores_that_change_the_same_rows_never_deadlock() {
    // A deadlock is noticed before a lock has been waited for too long.
    let postgres = Postgres::start_with(&["deadlock_timeout=1ms"]).await.unwrap();
    let (one, other) = (open_url(&postgres.url()).await, open_url(&postgres.url()).await);
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..300 {
        let new = |number: usize| if number.is_multiple_of(2) { 0 } else { round };
        let names: [_; 8] = std::array::from_fn(|number| format!("{number}/{}", new(number)));
        let names = names.each_ref().map(|name| &**name);
        let versions = versions(&*one, names).await;
        let mut some = || {
            let mut some = Vec::new();
            for (name, at) in names.into_iter().zip(versions) {
                if random.bool() {
                    continue;
                }
                let group = [None, Some(0), Some(1)][random.usize(..3)];
                let after = at + u64::from(group.is_none() || random.bool());
                some.push((name, at, after, group));
            }
            some
        };
        let (first, second) = (some(), some());
        let (first, second) = tokio::join!(apply(&*one, &first), apply(&*other, &second));
        for applied in [first, second] {
            assert!(matches!(applied, Ok(_) | Err(ApplyError::Blocked | ApplyError::LostRace)));
        }
    }
    // Sessions report what they have counted at their end.
    drop((one, other));
    let mut observer = PgConnection::connect(&postgres.url()).await.unwrap();
    let sessions =
        "select count(*) from pg_stat_activity where application_name = 'storage-server'";
    let ended = async {
        while sqlx::query_scalar::<_, i64>(sessions).fetch_one(&mut observer).await.unwrap() > 0 {}
    };
    timeout(Duration::from_secs(20), ended).await.expect("the sessions end");
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    let deadlocks: i64 = sqlx::query_scalar(deadlocks).fetch_one(&mut observer).await.unwrap();
    assert_eq!(deadlocks, 0);
}

/// What one server changes by itself, the other one changes in a group. Both wait for a row that a rival locks.
/// If single changes were locked only when they are made, each would hold by then what the other one wants.
#[tokio::test]
async fn single_changes_and_groups_on_the_same_rows_never_deadlock() {
    let postgres = Postgres::start_with(&["deadlock_timeout=1ms"]).await.unwrap();
    let (one, other) = (open_url(&postgres.url()).await, open_url(&postgres.url()).await);
    let mut rival = PgConnection::connect(&postgres.url()).await.unwrap();
    let mut observer = PgConnection::connect(&postgres.url()).await.unwrap();
    let mut in_time = 0;
    for round in 0..300 {
        let names = ["a", "b", "y", "z"].map(|name| format!("{name}/{round}"));
        let [a, b, y, z] = names.each_ref().map(|name| &**name);
        apply(&*one, &[a, b, y, z].map(|name| (name, 0, 1, None))).await.unwrap();
        let mut transaction = rival.begin().await.unwrap();
        let lock = "select from storage.resource where resource in ($1, $2) for update";
        sqlx::query(lock).bind(y).bind(z).execute(&mut *transaction).await.unwrap();
        let first = [(a, 1, 2, None), (b, 1, 2, Some(0)), (y, 1, 2, Some(0))];
        let second = [(a, 1, 2, Some(0)), (b, 1, 2, None), (z, 1, 2, Some(0))];
        let rival = async {
            let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
            let seen = async {
                while sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut observer).await.unwrap()
                    < 2
                {}
            };
            // If they have waited for too long already, nobody sees them wait.
            let _ = timeout(Duration::from_millis(100), seen).await;
            transaction.commit().await.unwrap();
        };
        let (first, second, ()) =
            tokio::join!(apply(&*one, &first), apply(&*other, &second), rival);
        match (first, second) {
            // The second one to get the rows finds them changed.
            (Ok(first), Ok(second)) => {
                assert!(first.contains(&true) != second.contains(&true), "round {round}");
                in_time += 1;
            }
            (Ok(_) | Err(ApplyError::Blocked), Ok(_) | Err(ApplyError::Blocked)) => {}
            deadlock => panic!("round {round}: {deadlock:?}"),
        }
        if in_time == 10 {
            break;
        }
    }
    assert!(in_time > 0, "the rival was never in time");
}

/// Asking whose row is locked locks the free ones, and must not hold them until the disk has something.
#[tokio::test]
async fn look_at_locks_waits_for_no_disk() {
    let slow = &["commit_delay=25000", "commit_siblings=0"];
    let postgres = Postgres::start_with(slow).await.unwrap();
    let store = open_url(&postgres.url()).await;
    let a = name("a");
    apply(&*store, &[("a", 0, 1, None)]).await.unwrap();
    let (mut look, mut commit) = (Duration::MAX, Duration::MAX);
    for version in 1..10 {
        let began = Instant::now();
        assert_eq!(store.locked(&[&a]).await.unwrap(), [false]);
        look = look.min(began.elapsed());
        let began = Instant::now();
        apply(&*store, &[("a", version, version + 1, None)]).await.unwrap();
        commit = commit.min(began.elapsed());
    }
    assert!(look < Duration::from_millis(20), "{look:?}");
    assert!(commit >= Duration::from_millis(25), "the control: {commit:?}");
    store.close().await;
}

/// A new connection may lead to a database that has lost changes: the committer forgets all rows that it knows.
#[tokio::test]
async fn try_that_waits_for_a_lock_in_vain_keeps_its_connection() {
    let database = Database::postgres().await;
    let store = open(&database).await;
    apply(&*store, &[("a", 0, 1, None)]).await.unwrap();
    let epoch = store.connection_epoch();
    let mut rival = PgConnection::connect(&database.url).await.unwrap();
    let mut rival = rival.begin().await.unwrap();
    sqlx::query("select from storage.resource for update").execute(&mut *rival).await.unwrap();
    let a = name("a");
    let wanted = [Wanted { resource: &a, value: WantedValue::Description }];
    let under_locks = || store.apply_under_locks(&wanted, Box::new(<[Row]>::to_vec));
    for _ in 0..5 {
        assert!(matches!(under_locks().await, Err(ApplyError::Blocked)));
        assert!(matches!(apply(&*store, &[("a", 1, 2, None)]).await, Err(ApplyError::Blocked)));
        assert_eq!(store.locked(&[&a]).await.unwrap(), [true]);
    }
    assert_eq!(store.connection_epoch(), epoch);
    rival.rollback().await.unwrap();
    assert!(under_locks().await.unwrap(), "the control: it is free");
    assert_eq!(apply(&*store, &[("a", 1, 2, None)]).await.unwrap(), [true]);
    store.close().await;
}
