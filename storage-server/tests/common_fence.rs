//! The common fence: `storage-server fence raise`, beside running servers.

use std::time::Duration;

use sqlx::{Connection, PgConnection};
use testbed::{StorageServer, wait::until_async};

use crate::{
    database::{Database, get, offer, on_empty_databases},
    wire,
};

on_empty_databases! {
    common_fence_rejects_old_tokens_of_every_resource_at_once,
    lowering_the_common_fence_needs_force,
}

/// The servers have the rows in memory, as guesses, from before the common fence was raised.
async fn common_fence_rejects_old_tokens_of_every_resource_at_once(database: Database) {
    let servers = [database.serve(&[]).await, database.serve(&[]).await];
    for (n, server) in servers.iter().enumerate() {
        let path = format!("/v1/resources/of-{n}");
        assert_eq!(offer(server, "PUT", &path, 10, "old").await.status, 201);
        assert_eq!(offer(server, "PUT", "/v1/resources/high", 200, "high").await.status / 100, 2);
    }
    let raised = database.run(&["fence", "raise", "--all", "--above", "100"]).await.printed();
    assert!(raised.contains("the common fence is at 100 now"), "{raised}");

    for (n, server) in servers.iter().enumerate() {
        for name in [format!("of-{n}"), format!("never-used-{n}")] {
            assert_rejects_up_to_100(server, &name).await;
            let path = format!("/v1/resources/{name}");
            assert_eq!(offer(server, "PUT", &path, 101, "new").await.status / 100, 2);
            assert_eq!(offer(server, "PUT", &path, 100, "x").await.problem(), "412 stale-token");
            assert_eq!(get(server, &format!("/v1/fences/{name}")).await.json()["token"], 101);
        }
        // The fence that was above the common fence is as it was.
        let high = offer(server, "PUT", "/v1/resources/high", 199, "x").await;
        assert_eq!(high.problem(), "412 stale-token");
        assert_eq!(high.json()["highest_token"], 200);
        assert_eq!(offer(server, "PUT", "/v1/resources/high", 200, "x").await.status, 200);
    }
}

async fn assert_rejects_up_to_100(server: &StorageServer, name: &str) {
    let (resource, fence) = (format!("/v1/resources/{name}"), format!("/v1/fences/{name}"));
    for token in [11, 99, 100] {
        for (method, path) in [("PUT", &resource), ("GET", &resource), ("PUT", &fence)] {
            let answer = offer(server, method, path, token, "").await;
            assert_eq!(answer.problem(), "412 stale-token", "{method} {path} {token}");
            assert_eq!(answer.json()["highest_token"], 100);
        }
    }
    let equal = offer(server, "PUT", &resource, 100, "").await.json();
    assert_eq!(equal["detail"], "token 100 is not above the common fence at 100");
    let shown = get(server, &fence).await.json();
    assert_eq!((&shown["token"], &shown["holder"]), (&100.into(), &"...".into()));
    // Nobody is the holder of the common fence.
    let headers = [("Fencing-Token", "100"), ("Fencing-Holder", "...")];
    let answer = wire::request(server.url(), "PUT", &resource, &headers, "x").await;
    assert_eq!(answer.problem(), "412 stale-token");
}

async fn lowering_the_common_fence_needs_force(database: Database) {
    let server = database.serve(&[]).await;
    database.run(&["fence", "raise", "--all", "--above", "100"]).await.printed();
    let lower = ["fence", "raise", "--all", "--above", "50"];
    let error = database.run(&lower).await.failed();
    assert!(error.contains("common fence is at 100") && error.contains("--force"), "{error}");
    assert_eq!(
        offer(&server, "PUT", "/v1/resources/r", 51, "x").await.problem(),
        "412 stale-token"
    );
    let shown = database.run(&["fence", "show", "r"]).await.printed();
    assert!(shown.contains("up to 100"), "{shown}");

    database.run(&[&lower[..], &["--force"]].concat()).await.printed();
    assert_eq!(offer(&server, "PUT", "/v1/resources/r", 51, "x").await.status, 201);

    let without_all = database.run(&["fence", "raise", "--above", "200"]).await;
    assert_eq!(without_all.code, Some(2), "{without_all:?}");
}

/// The sessions avoid scans of whole tables. A plan with one looks so expensive that PostgreSQL
/// compiles it each time, which takes a hundred times as long as the statement.
#[tokio::test]
async fn common_fence_is_looked_up_by_its_index() {
    let database = Database::postgres().await;
    let server = database.serve(&[]).await;
    for token in 1..20 {
        offer(&server, "PUT", "/v1/resources/r", token, "x").await;
        offer(&server, "GET", "/v1/resources/r", token, "").await;
    }
    // The sessions report their scans when they end.
    drop(server);
    let scans = "
        select coalesce(sum(idx_scan), 0)::bigint, coalesce(sum(seq_scan), 0)::bigint
        from pg_stat_user_tables
        where schemaname = 'storage' and relname = 'common_fence'";
    let scans = async || -> (i64, i64) {
        let mut connection = PgConnection::connect(&database.url).await.unwrap();
        sqlx::query_as(scans).fetch_one(&mut connection).await.unwrap()
    };
    let reported = until_async(Duration::from_secs(20), async || {
        let (by_index, whole) = scans().await;
        Ok(by_index + whole > 19)
    });
    reported.await.unwrap();
    assert!(scans().await.1 <= 1, "only the migration, to build the index");
}
