//! The schema: who creates it, and which rights a server needs.

use sqlx::{Connection, SqliteConnection};

use crate::database::{Database, get, offer, on_empty_databases};

on_empty_databases! {
    no_migrate_fails_until_migrate_has_run,
    schema_that_was_changed_is_rejected,
    rows_of_another_build_are_carried_over_as_the_error_says,
}

async fn no_migrate_fails_until_migrate_has_run(database: Database) {
    let no_migrate = ["--listen", "127.0.0.1:0", "--no-migrate"];
    let error = database.run(&no_migrate).await.failed();
    let sqlite_error = "fenced.db: No such file or directory";
    assert!(error.contains("storage-server migrate") || error.contains(sqlite_error), "{error}");
    assert!(!database.file("fenced.db").exists(), "nothing was created");

    if database.postgres.is_none() {
        std::fs::write(database.file("fenced.db"), "").unwrap();
    }
    let error = database.run(&no_migrate).await.failed();
    assert!(error.contains("not up to date: run `storage-server migrate`"), "{error}");
    let error = database.run(&["fence", "show", "r"]).await.failed();
    assert!(error.contains("not up to date: run `storage-server migrate`"), "{error}");

    for _ in 0..2 {
        let migrated = database.run(&["migrate"]).await.printed();
        assert!(migrated.contains("is up to date"), "{migrated}");
    }
    let server = database.serve(&["--no-migrate"]).await;
    assert_eq!(offer(&server, "PUT", "/v1/resources/r", 1, "x").await.status, 201);

    let newer = "
        insert into storage.migrations (version, description, success, checksum, execution_time)
        values (9999, 'of the future', true, '', 0)";
    database.execute(newer).await.unwrap();
    let error = database.run(&no_migrate).await.failed();
    assert!(error.contains("newer than this server knows"), "{error}");
}

async fn schema_that_was_changed_is_rejected(database: Database) {
    database.run(&["migrate"]).await.printed();
    let changed = "update storage.migrations set checksum = '' where version = 1";
    database.execute(changed).await.unwrap();
    for arguments in [&["migrate"][..], &["--listen", "127.0.0.1:0", "--no-migrate"]] {
        let error = database.run(arguments).await.failed();
        assert!(error.contains("are of another build"), "{error}");
    }
}

/// The tables of the build before values had a table of their own, with two rows and a common fence.
const SQLITE_TABLES_BEFORE: &str = "
    drop table storage_large_value;
    drop table storage_resource;
    create table storage_resource (
        resource text primary key not null,
        token integer check (token between 1 and 999999999999999),
        holder text not null,
        version integer not null check (version >= 0),
        content_type text,
        bytes blob,
        value_token integer check (value_token between 1 and 999999999999999),
        value_holder text,
        answers text check (length(answers) between 33 and 2000 and answers not glob '*[^-0-9a-z: ]*'),
        check ((content_type is null) = (bytes is null)),
        check ((value_holder is null) = (bytes is null))
    ) strict;
    insert into storage_resource values
        ('r', 34, '', 1, 'text/plain', cast('x' as blob), 34, '', null),
        ('large', 34, '', 1, 'text/plain',
            cast(replace(hex(zeroblob(50000)), '0', 'x') as blob), 34, '', null);";

async fn rows_of_another_build_are_carried_over_as_the_error_says(database: Database) {
    let server = database.serve(&[]).await;
    let large = "x".repeat(100_000);
    if database.postgres.is_some() {
        assert_eq!(offer(&server, "PUT", "/v1/resources/r", 34, "x").await.status, 201);
        assert_eq!(offer(&server, "PUT", "/v1/resources/large", 34, &large).await.status, 201);
    }
    drop(server);
    if database.postgres.is_none() {
        database.execute(SQLITE_TABLES_BEFORE).await.unwrap();
    }
    let raised = "insert into storage.common_fence (id, token) values (1, 30)";
    database.execute(raised).await.unwrap();
    // An earlier build had other migrations.
    database.execute("update storage.migrations set checksum = ''").await.unwrap();
    let error = database.run(&["migrate"]).await.failed();
    for step in [
        "rename the schema `storage` of PostgreSQL to `storage_before`",
        "move the files of SQLite away and attach the old one as `storage_before`",
    ] {
        assert!(error.contains(step), "{error}");
    }
    let (of_postgres, of_sqlite) =
        error.split_once("PostgreSQL: ").unwrap().1.split_once("SQLite: ").unwrap();
    let rows = if database.postgres.is_some() {
        database.execute("alter schema storage rename to storage_before").await.unwrap();
        of_postgres.to_owned()
    } else {
        let folder = database.file("before");
        std::fs::create_dir(&folder).unwrap();
        for file in ["fenced.db", "fenced.db-wal", "fenced.db-shm"] {
            if database.file(file).exists() {
                std::fs::rename(database.file(file), folder.join(file)).unwrap();
            }
        }
        let copies = of_sqlite.split_once("Large values").unwrap().0;
        format!("attach '{}' as storage_before; {copies}", folder.join("fenced.db").display())
    };
    database.run(&["migrate"]).await.printed();
    database.execute(&rows).await.unwrap();
    let server = database.serve(&[]).await;
    let late = offer(&server, "PUT", "/v1/resources/r", 33, "late").await;
    assert_eq!(late.problem(), "412 stale-token");
    let below = offer(&server, "PUT", "/v1/resources/new", 30, "late").await;
    assert_eq!(below.problem(), "412 stale-token", "the common fence");
    assert_eq!(offer(&server, "GET", "/v1/resources/r", 34, "").await.text(), "x");
    let read = async || offer(&server, "GET", "/v1/resources/large", 34, "").await.text();
    assert_eq!(read().await, large);
    if database.postgres.is_some() {
        return;
    }
    // Once it is written again, it has a row of its own.
    let written = offer(&server, "PUT", "/v1/resources/large", 34, &large).await;
    assert_eq!((written.status, read().await), (200, large));
    let mut connection = SqliteConnection::connect(&database.url).await.unwrap();
    let count = sqlx::query_scalar::<_, i64>("select count(*) from storage_large_value");
    assert_eq!(count.fetch_one(&mut connection).await.unwrap(), 1);
}

/// The rights that the README documents are enough, and each of them is needed.
#[tokio::test]
async fn server_runs_with_the_documented_rights() {
    let mut database = Database::postgres().await;
    database.run(&["migrate"]).await.printed();
    let readme = include_str!("../README.md");
    let grants: Vec<_> = readme.lines().filter(|line| line.starts_with("grant ")).collect();
    assert!(grants.len() >= 3, "{grants:?}");
    database.execute("create role server login").await.unwrap();
    for grant in &grants {
        database.execute(grant).await.unwrap();
    }
    let owner = database.url.clone();
    database.url = owner.replace("postgres://postgres@", "postgres://server@");
    let server = database.serve(&["--no-migrate"]).await;
    for (token, status) in [(34, 201), (35, 200)] {
        assert_eq!(offer(&server, "PUT", "/v1/resources/r", token, "x").await.status, status);
    }
    assert_eq!(
        offer(&server, "PUT", "/v1/resources/r", 33, "x").await.problem(),
        "412 stale-token"
    );
    assert_eq!(offer(&server, "GET", "/v1/resources/r", 36, "").await.status, 200);
    assert_eq!(offer(&server, "DELETE", "/v1/resources/r", 36, "").await.status, 204);
    for path in ["/v1/resources", "/v1/fences/r", "/readyz"] {
        assert_eq!(get(&server, path).await.status, 200, "{path}");
    }
    // It may neither delete fences, nor lower the common fence, nor create anything.
    for sql in [
        "delete from storage.resource",
        "truncate storage.resource",
        "update storage.common_fence set token = 1",
        "insert into storage.common_fence (token) values (1)",
        "create table storage.t ()",
        "create schema s",
        "delete from storage.migrations",
    ] {
        let error = database.execute(sql).await.expect_err(sql).to_string();
        assert!(error.contains("permission denied"), "{sql}: {error}");
    }
    // Without --no-migrate it starts as well: there is nothing to create.
    database.serve(&[]).await;
}
