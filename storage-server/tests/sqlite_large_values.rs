//! Large values in SQLite: they lie beside the rows of their resources, so that claims don't write them.

use std::{collections::HashSet, sync::Arc};

use fence::{Fence, Holder, ResourceName, Token};
use sqlx::{Connection, SqliteConnection};
use storage_server::{
    Change, Content, Migrations, MissingFile, Replication, Row, Store, StoredValue, Value, Wanted,
    WantedValue, open_store,
};
use tokio::{io::AsyncWriteExt, sync::watch};

use crate::{
    database::{Database, get, offer},
    wire,
};

/// The largest value that is in its row.
const INLINE_BYTES: usize = 4096;

async fn open(database: &Database) -> Arc<dyn Store> {
    let (missing_file, migrations) = (MissingFile::Create, Migrations::Apply);
    open_store(&database.url, missing_file, migrations, &Replication::default()).await.unwrap()
}

fn fence(token: u64) -> Option<Fence> {
    Some(Fence { token: Token::new(token).unwrap(), holder: Holder::default() })
}

/// A row with a value of this size, whose bytes are those of its version.
fn row(version: u64, size: usize) -> Row {
    let bytes = vec![version as u8; size].into();
    let content = Content { content_type: "text/plain".to_owned(), bytes };
    let value = Value { content, written_with: fence(1) };
    Row { fence: fence(1), version, value: StoredValue::Present(value), ..Row::default() }
}

async fn load(store: &dyn Store, resource: &ResourceName) -> Row {
    store.read(Wanted { resource, value: WantedValue::AtMost(usize::MAX) }).await.unwrap()
}

/// The resources and versions of large values.
async fn large_values(database: &Database) -> Vec<(String, i64)> {
    let mut connection = SqliteConnection::connect(&database.url).await.unwrap();
    let select = "select resource, version from storage_large_value order by 1, 2";
    sqlx::query_as(select).fetch_all(&mut connection).await.unwrap()
}

/// How many bytes 100 claims add to the write-ahead log, on a value of this size.
async fn bytes_of_claims(size: usize) -> u64 {
    let database = Database::sqlite();
    let server = database.serve(&[]).await;
    let (path, value) = ("/v1/resources/r", "x".repeat(size));
    assert_eq!(offer(&server, "PUT", path, 1, &value).await.status, 201);
    database.execute("pragma wal_checkpoint(truncate)").await.unwrap();
    let log = database.file("fenced.db-wal");
    assert_eq!(log.metadata().unwrap().len(), 0);
    for token in 2..102 {
        // If no column changes its length, SQLite itself leaves the other pages of the row as they are.
        let (token, holder) = (token.to_string(), "x".repeat(token % 7));
        let headers = [("Fencing-Token", token.as_str()), ("Fencing-Holder", &holder)];
        let claimed = wire::request(server.url(), "PUT", "/v1/fences/r", &headers, "").await;
        assert_eq!(claimed.status, 200);
    }
    let bytes = log.metadata().unwrap().len();
    assert_eq!(get(&server, path).await.text(), value, "the value stays");
    bytes
}

#[tokio::test]
async fn claim_costs_the_same_whatever_the_value() {
    let (small, large) = (bytes_of_claims(5).await, bytes_of_claims(1 << 20).await);
    assert!(small > 100 * 1024, "the control: each claim writes a page, {small} bytes");
    assert!(large <= small + 100 * 1024, "{large} bytes instead of {small}");
}

#[tokio::test]
async fn value_of_each_size_is_read_as_it_was_written() {
    let database = Database::sqlite();
    let store = open(&database).await;
    let sizes = [0, 1, INLINE_BYTES, INLINE_BYTES + 1, 1 << 20];
    let names: Vec<ResourceName> =
        sizes.iter().map(|size| format!("{size:08}").parse().unwrap()).collect();
    // New rows, and then rows that exist, with values of the other sizes.
    for version in 1..6_usize {
        let row_at = |version: usize, place: usize| match version {
            0 => Row::default(),
            _ => row(version as u64, sizes[(place + version) % sizes.len()]),
        };
        let rows: Vec<_> = (0..sizes.len())
            .map(|place| (row_at(version - 1, place), row_at(version, place)))
            .collect();
        let changes: Vec<_> = names
            .iter()
            .zip(&rows)
            .map(|(resource, (before, after))| Change { resource, before, after, group: None })
            .collect();
        assert_eq!(store.apply(&changes).await.unwrap(), [true; 5]);
        for (name, (_, after)) in names.iter().zip(&rows) {
            assert_eq!(load(&*store, name).await, *after);
        }
        let large = large_values(&database).await;
        assert_eq!(large.len(), 2, "two sizes are large: {large:?}");
        assert!(large.iter().all(|(_, of)| *of == version as i64), "{large:?}");
    }
    store.close().await;
}

#[tokio::test]
async fn large_values_that_nothing_refers_to_are_deleted() {
    let database = Database::sqlite();
    let server = database.serve(&[]).await;
    let large = "x".repeat(INLINE_BYTES + 1);
    let path = |name: &str| format!("/v1/resources/{name}");
    for name in ["claimed", "deleted", "forgotten", "rejected", "replaced"] {
        assert_eq!(offer(&server, "PUT", &path(name), 2, &large).await.status, 201);
    }
    assert_eq!(large_values(&database).await.len(), 5);
    let late = offer(&server, "PUT", &path("rejected"), 1, &large).await;
    assert_eq!(late.problem(), "412 stale-token");
    assert_eq!(offer(&server, "PUT", "/v1/fences/claimed", 3, "").await.status, 200);
    assert_eq!(offer(&server, "PUT", &path("replaced"), 2, "small").await.status, 200);
    assert_eq!(offer(&server, "DELETE", &path("deleted"), 2, "").await.status, 204);
    database.run(&["forget", "forgotten", "--yes"]).await.printed();
    let kept = [("claimed".to_owned(), 1), ("rejected".to_owned(), 1)];
    assert_eq!(large_values(&database).await, kept);
    for name in ["claimed", "rejected"] {
        assert_eq!(get(&server, &path(name)).await.text(), large);
    }
    let moved = "update storage.resource set resource = 'moved' where resource = 'claimed'";
    database.execute(moved).await.unwrap();
    assert_eq!(get(&server, &path("moved")).await.text(), large);
    let listed = get(&server, "/v1/resources").await.json();
    assert_eq!(listed["resources"][0]["size"], INLINE_BYTES + 1);

    // A version that was changed by hand has no value, and leaves none behind.
    let changed = "update storage.resource set version = 9 where resource = 'rejected'";
    database.execute(changed).await.unwrap();
    assert_eq!(large_values(&database).await, [("moved".to_owned(), 1)]);

    // A value that is gone fails alone, until it is written again.
    database.execute("delete from storage.large_value where resource = 'moved'").await.unwrap();
    let gone = get(&server, &path("moved")).await;
    assert_eq!(gone.problem(), "503 unavailable");
    assert!(gone.text().contains("write the value again"), "{}", gone.text());
    assert_eq!(offer(&server, "PUT", &path("moved"), 4, "new").await.status, 200);
    assert_eq!(get(&server, &path("moved")).await.text(), "new");
}

/// One statement reads the row and its value. Two of them could read the row of one version, and no value or
/// that of another.
#[tokio::test]
async fn reader_never_gets_the_value_of_another_version() {
    let database = Database::sqlite();
    let resource: ResourceName = "r".parse().unwrap();
    let size = |version: u64| INLINE_BYTES + 1 + version as usize;
    let (first, second, reading) =
        (open(&database).await, open(&database).await, open(&database).await);
    let write = async {
        let mut before = Row::default();
        for version in 1..=200 {
            let after = row(version, size(version));
            let change =
                Change { resource: &resource, before: &before, after: &after, group: None };
            let store = if version % 2 == 0 { &first } else { &second };
            assert_eq!(store.apply(&[change]).await.unwrap(), [true]);
            before = after;
        }
    };
    let read = async {
        let mut versions = HashSet::new();
        loop {
            let loaded = load(&*reading, &resource).await;
            if loaded.version == 0 {
                continue;
            }
            assert_eq!(loaded, row(loaded.version, size(loaded.version)));
            versions.insert(loaded.version);
            if loaded.version == 200 {
                return versions.len();
            }
        }
    };
    let ((), versions) = tokio::join!(write, read);
    assert!(versions > 10, "{versions}");
    assert_eq!(large_values(&database).await, [("r".to_owned(), 200)]);

    // The control: after a write between two statements, the second finds no value of the first one's version.
    let described = Wanted { resource: &resource, value: WantedValue::Description };
    let read_first = reading.read(described).await.unwrap().version;
    let (before, after) = (row(200, size(200)), row(201, size(201)));
    let change = Change { resource: &resource, before: &before, after: &after, group: None };
    assert_eq!(first.apply(&[change]).await.unwrap(), [true]);
    let read_second = large_values(&database).await;
    assert_ne!(read_second, [("r".to_owned(), read_first as i64)]);
    for store in [first, second, reading] {
        store.close().await;
    }
}

/// The statement with an insert takes other columns over than the one without.
#[tokio::test]
async fn claim_beside_a_new_resource_keeps_a_large_value() {
    let database = Database::sqlite();
    let store = open(&database).await;
    let [claimed, new] = ["claimed", "new"].map(|name| name.parse::<ResourceName>().unwrap());
    let (unused, written) = (Row::default(), row(1, INLINE_BYTES + 1));
    let change = Change { resource: &claimed, before: &unused, after: &written, group: None };
    assert_eq!(store.apply(&[change]).await.unwrap(), [true]);
    let after = Row { fence: fence(2), ..written.clone() };
    let changes = [
        Change { resource: &claimed, before: &written, after: &after, group: None },
        Change { resource: &new, before: &unused, after: &row(1, 1), group: None },
    ];
    assert_eq!(store.apply(&changes).await.unwrap(), [true, true]);
    assert_eq!(load(&*store, &claimed).await, after);
    store.close().await;
}

/// Whether each large value has a row that refers to it, and the other way round.
async fn assert_all_belong_to_rows(database: &Database) {
    let mut connection = SqliteConnection::connect(&database.url).await.unwrap();
    let alone = "select count(*) from
        (select resource, version, large_bytes as size from storage_resource where large_bytes > 0) r
        full join (select resource, version, length(bytes) as size from storage_large_value) v
        using (resource, version) where r.size is not v.size";
    let alone: i64 = sqlx::query_scalar(alone).fetch_one(&mut connection).await.unwrap();
    assert_eq!(alone, 0);
}

#[tokio::test]
async fn killed_server_leaves_no_large_value_without_its_row() {
    let database = Database::sqlite();
    let mut acknowledged = 0;
    for round in 1..=5_usize {
        let mut server = database.serve(&[]).await;
        let url = server.url().to_owned();
        let (sender, mut written) = watch::channel(acknowledged);
        let writing = tokio::spawn(async move {
            for token in acknowledged + 1.. {
                let value = token.to_string().repeat(20_000);
                let mut connection = wire::connect(&url).await;
                let head = format!(
                    "PUT /v1/resources/r HTTP/1.1\r\nHost: localhost\r\nFencing-Token: {token}\r\n\
                     Content-Length: {}\r\nConnection: close\r\n\r\n",
                    value.len()
                );
                let request = [head.as_bytes(), value.as_bytes()].concat();
                if connection.write_all(&request).await.is_err()
                    || wire::try_answer(&mut connection).await.is_err()
                {
                    return;
                }
                sender.send_replace(token);
            }
        });
        let enough = acknowledged + 7 * round as u64;
        written.wait_for(|token| *token >= enough).await.unwrap();
        server.process().kill().unwrap();
        writing.abort();
        acknowledged = *written.borrow();
        assert_all_belong_to_rows(&database).await;
        let server = database.serve(&[]).await;
        let read = get(&server, "/v1/resources/r").await;
        let token: u64 = read.header("fencing-token").unwrap().parse().unwrap();
        assert!(token >= acknowledged, "{token} {acknowledged}");
        assert_eq!(read.text(), token.to_string().repeat(20_000));
        acknowledged = token;
    }
}

#[tokio::test]
async fn large_value_is_in_a_backup() {
    let database = Database::sqlite();
    let server = database.serve(&[]).await;
    let (path, large) = ("/v1/resources/r", "x".repeat(100_000));
    assert_eq!(offer(&server, "PUT", path, 1, &large).await.status, 201);
    database.run(&["backup", "backup.db"]).await.printed();
    assert_eq!(offer(&server, "PUT", path, 2, &"y".repeat(100_000)).await.status, 200);
    drop(server);
    database.run(&["restore", "backup.db", "--force"]).await.printed();
    assert_all_belong_to_rows(&database).await;
    let server = database.serve(&[]).await;
    assert_eq!(get(&server, path).await.text(), large);
}
