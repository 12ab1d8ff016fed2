//! How PostgreSQL executes the statements of batches: they read their own rows, and no others.

use std::time::Duration;

use serde_json::json;
use sqlx::{Connection, PgConnection};
use testbed::{Postgres, StorageServer, wait::until_async};
use tokio::task::JoinSet;

use crate::{
    database::{get, offer},
    programs::storage_server,
    transactions::{JSON, transact, write},
    wire,
};

const BATCHES: i64 = 5;
const BATCH: i64 = 64;

/// A plan that was made for the only row of a table starts with a scan of that table.
#[tokio::test]
async fn batch_reads_only_its_own_rows_though_the_table_had_one_row_when_it_was_analyzed() {
    batches_read_only_their_own_rows(1, false).await;
}

/// A plan that was made for three rows joins each change with the whole table.
#[tokio::test]
async fn batch_reads_only_its_own_rows_though_the_table_had_three_rows_when_it_was_analyzed() {
    batches_read_only_their_own_rows(3, false).await;
}

#[tokio::test]
async fn batch_of_transactions_reads_only_its_own_rows() {
    batches_read_only_their_own_rows(3, true).await;
}

async fn batches_read_only_their_own_rows(analyzed: u64, of_transactions: bool) {
    let postgres = Postgres::start_with(&["autovacuum=off"]).await.unwrap();
    let server = StorageServer::start_on(&storage_server(), &postgres.url(), &[]).await.unwrap();
    let mut admin = PgConnection::connect(&postgres.url()).await.unwrap();
    // 1. Have each statement planned while the table is small: an update, an insert and a load.
    for n in 0..analyzed {
        offer(&server, "PUT", &format!("/v1/resources/first/{n}"), 1, "x").await;
    }
    sqlx::query("analyze storage.resource").execute(&mut admin).await.unwrap();
    offer(&server, "PUT", "/v1/resources/first/0", 1, "x").await;
    offer(&server, "GET", "/v1/resources/first/0", 1, "").await;
    offer(&server, "PUT", "/v1/resources/planned", 1, "x").await;

    // 2. Let the table grow, without an ANALYZE.
    let fill = "insert into storage.resource
        select 'fill/' || i, 1, '', 1, 'text/plain', 'x'::bytea, 1, '' from generate_series(1, 20000) i";
    for sql in [fill, "select pg_stat_reset()"] {
        sqlx::query(sql).execute(&mut admin).await.unwrap();
    }

    // 3. Write to rows that exist, to rows that the server knows already, and to new ones.
    for batch in 0..BATCHES {
        let mut writes = JoinSet::new();
        for n in 0..BATCH {
            let name = match n % 4 {
                0 => format!("new/{batch}/{n}"),
                1 => format!("fill/{}", 1000 + n),
                _ => format!("fill/{}", 2000 * (batch + 1) + n),
            };
            let (url, path) = (server.url().to_owned(), format!("/v1/resources/{name}"));
            writes.spawn(async move {
                if of_transactions {
                    let second = write(&format!("second/{batch}/{n}"), 2, "y");
                    let both = json!({"writes": [write(&name, 2, "y"), second]}).to_string();
                    wire::request(&url, "POST", "/v1/transactions", &[JSON], &both).await.status
                } else {
                    wire::request(&url, "PUT", &path, &[("Fencing-Token", "2")], "y").await.status
                }
            });
        }
        assert!(writes.join_all().await.iter().all(|status| [200, 201].contains(status)));
    }
    let written = BATCHES * BATCH * if of_transactions { 2 } else { 1 };
    let read = rows_read(&postgres, written).await;
    // A row that exists is read by a load and by an update, and a new one by neither. That of a
    // transaction is locked before, but each second one is new.
    assert!(read <= 2 * written, "{read} rows were read for {written} writes");
    assert_eq!(get(&server, "/v1/resources/fill/1001").await.text(), "y");
}

/// How many rows were read for these writes. Sessions report their counts a little later.
async fn rows_read(postgres: &Postgres, writes: i64) -> i64 {
    let counts = async || -> anyhow::Result<(i64, i64)> {
        let counts = "select n_tup_ins + n_tup_upd, coalesce(idx_tup_fetch, 0) + seq_tup_read
            from pg_stat_user_tables where relname = 'resource'";
        let mut connection = PgConnection::connect(&postgres.url()).await?;
        Ok(sqlx::query_as(counts).fetch_one(&mut connection).await?)
    };
    let all_reported = async || Ok(counts().await?.0 >= writes);
    until_async(Duration::from_secs(40), all_reported).await.unwrap();
    counts().await.unwrap().1
}

/// The rows of a batch are sorted before they are locked. Their new values do not go along.
#[tokio::test]
async fn values_of_transactions_are_not_sorted() {
    let postgres = Postgres::start_with(&["autovacuum=off"]).await.unwrap();
    let server = StorageServer::start_on(
        &storage_server(),
        &postgres.url(),
        &["--max-value-bytes", "33554432"],
    )
    .await
    .unwrap();
    let text = "x".repeat(1 << 18);
    for token in 1..3 {
        let writes = (0..20).map(|number| write(&format!("r/{number}"), token, &text));
        let writes = json!({"writes": writes.collect::<Vec<_>>()});
        let answer = transact(&server, &writes).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    rows_read(&postgres, 40).await;
    let mut connection = PgConnection::connect(&postgres.url()).await.unwrap();
    let bytes = "select temp_bytes from pg_stat_database where datname = current_database()";
    let bytes: i64 = sqlx::query_scalar(bytes).fetch_one(&mut connection).await.unwrap();
    // PostgreSQL keeps the argument, the table of it, and the rows that it inserts in their order.
    let values = 20 * text.len() as i64;
    assert!(bytes < 6 * values, "{bytes} for {values} twice");
}
