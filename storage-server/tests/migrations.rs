//! The schema: who creates it, and which rights a server needs.

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

async fn rows_of_another_build_are_carried_over_as_the_error_says(database: Database) {
    let server = database.serve(&[]).await;
    assert_eq!(offer(&server, "PUT", "/v1/resources/r", 34, "x").await.status, 201);
    let large = "x".repeat(100_000);
    assert_eq!(offer(&server, "PUT", "/v1/resources/large", 34, &large).await.status, 201);
    drop(server);
    // An earlier build had other migrations.
    database.execute("update storage.migrations set checksum = ''").await.unwrap();
    let error = database.run(&["migrate"]).await.failed();
    for step in [
        "rename the schema `storage` of PostgreSQL to `storage_before`",
        "move the files of SQLite away",
        "insert into storage.resource select * from storage_before.resource",
    ] {
        assert!(error.contains(step), "{error}");
    }
    let aside = if database.postgres.is_some() {
        database.execute("alter schema storage rename to storage_before").await.unwrap();
        String::new()
    } else {
        let folder = database.file("before");
        std::fs::create_dir(&folder).unwrap();
        for file in ["fenced.db", "fenced.db-wal", "fenced.db-shm"] {
            if database.file(file).exists() {
                std::fs::rename(database.file(file), folder.join(file)).unwrap();
            }
        }
        format!("attach '{}' as before;", folder.join("fenced.db").display())
    };
    database.run(&["migrate"]).await.printed();
    let rows = if database.postgres.is_some() {
        "insert into storage.resource select * from storage_before.resource".to_owned()
    } else {
        let copy = |table| format!("insert into {table} select * from before.{table};");
        [aside, copy("storage_resource"), copy("storage_large_value")].concat()
    };
    database.execute(&rows).await.unwrap();
    let server = database.serve(&[]).await;
    let late = offer(&server, "PUT", "/v1/resources/r", 33, "late").await;
    assert_eq!(late.problem(), "412 stale-token");
    assert_eq!(offer(&server, "GET", "/v1/resources/r", 34, "").await.text(), "x");
    assert_eq!(offer(&server, "GET", "/v1/resources/large", 34, "").await.text(), large);
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
