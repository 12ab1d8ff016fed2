//! The commands of operators.

use object_store::ObjectStoreExt;
use testbed::ObjectStorage;

use super::{bucket, serve};
use crate::{
    database::{Database, get, offer},
    doctor::{database_at, verdict},
};

async fn fails(database: &Database, arguments: &[&str], reason: &str) {
    let error = database.run(arguments).await.failed();
    assert!(error.contains(reason), "{arguments:?}: {error}");
}

pub(super) async fn commands_do_what_object_storage_can(storage: &ObjectStorage) {
    let database = database_at(storage.url("commands"));
    // 1. An empty folder may be a wrong one.
    database.run(&["--check"]).await.printed();
    fails(&database, &["--check", "--no-create"], "its folder is empty").await;
    assert_eq!(verdict(&database, "replace", &[]).await, "ok");
    let server = serve(&database.url, &[]).await;
    offer(&server, "PUT", "/v1/resources/r", 33, "hello").await;
    database.run(&["--check", "--no-create"]).await.printed();
    let config = database.run(&["config"]).await.printed();
    assert!(config.contains(&database.url), "{config}");

    // 2. Fences are shown and set beside a running server.
    let shown = database.run(&["fence", "show", "r"]).await.printed();
    assert_eq!(shown, "r: token 33, no holder\na value of 5 bytes, version 1\n");
    fails(&database, &["fence", "set", "r", "--token", "32"], "is at 33").await;
    for (resource, token) in [("r", "35"), ("new", "9")] {
        database.run(&["fence", "set", resource, "--token", token]).await.printed();
    }
    for (path, token) in [("/v1/resources/r", 34), ("/v1/resources/new", 8)] {
        let late = offer(&server, "PUT", path, token, "late").await;
        assert_eq!(late.problem(), "412 stale-token");
    }
    assert_eq!(get(&server, "/v1/resources/r").await.text(), "hello");

    // 3. What needs all resources at once fails, and says so.
    fails(&database, &["fence", "raise", "--all", "--above", "99"], "has no common fence").await;
    fails(&database, &["forget", "r", "--yes"], "the store's own tools").await;
    fails(&database, &["backup", "copy.db"], "backed up by its store").await;
    fails(&database, &["restore", "copy.db"], "the store's own tools").await;
    fails(&database, &["--read-url", "postgres://h/d", "--check"], "no standbys").await;

    // 4. A register that was lost is no resource that was never used, also not one that was held just before.
    for _ in 0..3 {
        let written = offer(&server, "PUT", "/v1/resources/r", 36, "x").await;
        assert_eq!(written.status, 200, "{written:?}");
    }
    let register = "commands/r/fence.register".into();
    bucket(storage).delete(&register).await.unwrap();
    for token in [36, 33, 1] {
        let lost = offer(&server, "PUT", "/v1/resources/r", token, "x").await;
        assert_eq!(lost.problem(), "503 unavailable");
        assert!(lost.text().contains("the register of `r` was lost"), "{lost:?}");
    }
    for path in ["/v1/resources/r", "/v1/fences/r"] {
        assert_eq!(get(&server, path).await.problem(), "503 unavailable");
    }
    assert_eq!(offer(&server, "PUT", "/v1/resources/new", 9, "x").await.status, 201);
}
