//! How much of a value a store loads.

use storage_server::{
    Change, Content, Described, Migrations, MissingFile, Replication, Row, StoredValue, Value,
    Wanted, WantedValue, open_store,
};

use crate::database::{Database, on_empty_databases};

on_empty_databases! {
    value_is_loaded_unless_it_is_larger_than_wanted,
}

async fn value_is_loaded_unless_it_is_larger_than_wanted(database: Database) {
    let (missing_file, migrations) = (MissingFile::Create, Migrations::Apply);
    let replication = Replication::default();
    let store = open_store(&database.url, missing_file, migrations, &replication).await.unwrap();
    let [empty, large] = ["empty", "large"].map(|name| name.parse().unwrap());
    let written = |bytes: Vec<u8>| {
        let content = Content { content_type: "text/plain".to_owned(), bytes: bytes.into() };
        let value = StoredValue::Present(Value { content, written_with: None });
        Row { version: 1, value, ..Row::default() }
    };
    let (unused, row_of_empty, row_of_large) =
        (Row::default(), written(Vec::new()), written(vec![b'x'; 100_000]));
    let changes = [
        Change { resource: &empty, before: &unused, after: &row_of_empty, group: None },
        Change { resource: &large, before: &unused, after: &row_of_large, group: None },
    ];
    assert_eq!(store.apply(&changes).await.unwrap(), [true, true]);
    let not_loaded = |row: &Row, size| {
        let content_type = Some("text/plain".to_owned());
        let described = Described { content_type, size, written_with: None };
        Row { value: StoredValue::NotLoaded(described), ..row.clone() }
    };
    for (value, loads_empty, loads_large) in [
        (WantedValue::AtMost(usize::MAX), true, true),
        (WantedValue::AtMost(100_000), true, true),
        (WantedValue::AtMost(99_999), true, false),
        (WantedValue::AtMost(0), true, false),
        (WantedValue::Description, false, false),
    ] {
        for (resource, row, size, loads) in
            [(&empty, &row_of_empty, 0, loads_empty), (&large, &row_of_large, 100_000, loads_large)]
        {
            let loaded = store.read(Wanted { resource, value }).await.unwrap();
            let expected = if loads { row.clone() } else { not_loaded(row, size) };
            assert_eq!(loaded, expected, "{value:?} of {resource}");
        }
    }
    store.close().await;
}
