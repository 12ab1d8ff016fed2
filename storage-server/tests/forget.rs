//! `storage-server forget`, beside a running server.

use fence::{Fence, Holder, Token};
use storage_server::{
    Change, Content, Migrations, MissingFile, Replication, Row, StoredValue, Value, Wanted,
    WantedValue, open_store,
};

use crate::database::{Database, get, offer, on_empty_databases};

on_empty_databases! {
    forget_says_what_is_given_up_and_deletes_after_a_yes,
    row_that_was_deleted_after_a_guess_is_not_changed,
}

async fn forget_says_what_is_given_up_and_deletes_after_a_yes(database: Database) {
    let server = database.serve(&[]).await;
    for name in ["old/1", "old/2", "old/\u{17c}", "old", "older"] {
        let name = name.replace('\u{17c}', "%C5%BC");
        offer(&server, "PUT", &format!("/v1/resources/{name}"), 34, "x").await;
    }
    let error = database.run(&["forget", "old/"]).await;
    assert!(error.stdout.contains("3 resources, from \"old/1\""), "{error:?}");
    assert!(error.stdout.contains("fence raise"), "{error:?}");
    assert!(error.failed().contains("--yes"));
    assert_eq!(get(&server, "/v1/resources/old/1").await.status, 200, "nothing was deleted");

    let deleted = database.run(&["forget", "old/", "--yes"]).await.printed();
    assert!(deleted.ends_with("3 resources were deleted\n"), "{deleted}");
    for (name, status) in [("old/1", 404), ("old/%C5%BC", 404), ("old", 200), ("older", 200)] {
        assert_eq!(get(&server, &format!("/v1/resources/{name}")).await.status, status, "{name}");
        assert_eq!(get(&server, &format!("/v1/fences/{name}")).await.status, status, "{name}");
    }
    // What was given up. The server remembers the row, and finds out that it is gone.
    assert_eq!(offer(&server, "PUT", "/v1/resources/old/1", 33, "late").await.status, 201);
    assert_eq!(
        offer(&server, "PUT", "/v1/resources/old", 33, "x").await.problem(),
        "412 stale-token"
    );

    assert!(database.run(&["forget", "none/", "--yes"]).await.printed().contains("no resource"));
    assert_eq!(database.run(&["forget", "", "--yes"]).await.code, Some(2));
}

/// By neither statement: the one for a batch without new rows, and the one for a batch with some.
async fn row_that_was_deleted_after_a_guess_is_not_changed(database: Database) {
    let (missing_file, migrations) = (MissingFile::Create, Migrations::Apply);
    let replication = Replication::default();
    let store = open_store(&database.url, missing_file, migrations, &replication).await.unwrap();
    let (old, new) = ("old/1".parse().unwrap(), "new".parse().unwrap());
    let written = |version| {
        let fence = Fence { token: Token::new(34).unwrap(), holder: Holder::default() };
        let content = Content { content_type: "text/plain".to_owned(), bytes: "x".into() };
        let value = Value { content, written_with: Some(fence.clone()) };
        let value = StoredValue::Present(value);
        Row { fence: Some(fence), version, value, ..Row::default() }
    };
    let (unused, first, second) = (Row::default(), written(1), written(2));
    let create = Change { resource: &old, before: &unused, after: &first, group: None };
    assert_eq!(store.apply(&[create]).await.unwrap(), [true]);
    let update = Change { resource: &old, before: &first, after: &second, group: None };
    let create_new = Change { resource: &new, before: &unused, after: &first, group: None };

    database.run(&["forget", "old/", "--yes"]).await.printed();
    assert_eq!(store.apply(&[update]).await.unwrap(), [false]);
    assert_eq!(store.apply(&[create_new, update]).await.unwrap(), [true, false]);
    let wanted = Wanted { resource: &old, value: WantedValue::AtMost(usize::MAX) };
    assert_eq!(store.read(wanted).await.unwrap(), unused, "the row stays deleted");

    // The control: both statements change a row that is as expected.
    assert_eq!(store.apply(&[create]).await.unwrap(), [true]);
    assert_eq!(store.apply(&[update]).await.unwrap(), [true]);
    store.close().await;
}

/// More than one portion, in rows of all lengths.
#[tokio::test]
async fn forget_deletes_portion_by_portion() {
    let database = Database::sqlite();
    database.run(&["migrate"]).await.printed();
    let fill = "
        with recursive n (n) as (select 1 union all select n + 1 from n where n < 2500)
        insert into storage.resource (resource, token, holder, version)
        select 'old/' || n, 1, '', 0 from n union all select 'kept/' || n, 1, '', 0 from n";
    database.execute(fill).await.unwrap();
    let deleted = database.run(&["forget", "old/", "--yes"]).await.printed();
    assert!(deleted.ends_with("2500 resources were deleted\n"), "{deleted}");
    let kept = database.run(&["forget", "kept/"]).await;
    assert!(kept.stdout.starts_with("2500 resources"), "{kept:?}");
}
