//! An advisory lock of PostgreSQL, whose token comes from a sequence.

use sqlx::{Connection, PgConnection, raw_sql};
use testbed::Postgres;

use super::{page::commands, reader::Reader};

async fn start() -> (Postgres, Reader) {
    let postgres = Postgres::start().await.unwrap();
    let mut reader = Reader::start().await;
    reader.set("PGHOST", postgres.socket_folder().display().to_string());
    reader.set("PGUSER", "postgres");
    (postgres, reader)
}

async fn connect(postgres: &Postgres) -> PgConnection {
    PgConnection::connect(&postgres.url()).await.unwrap()
}

async fn draw(connection: &mut PgConnection) -> i64 {
    sqlx::query_scalar("select nextval('invoice_7_token')").fetch_one(connection).await.unwrap()
}

#[tokio::test]
async fn token_of_a_sequence_starts_again_at_1_when_it_is_lost_until_it_is_raised() {
    let (postgres, reader) = start().await;
    let (create, lock) = (commands("PostgreSQL", 0), commands("PostgreSQL", 1));
    reader.succeed(create).await;
    reader.stale_token_is_rejected(lock).await;

    raw_sql("drop sequence invoice_7_token").execute(&mut connect(&postgres).await).await.unwrap();
    reader.succeed(create).await;
    assert_eq!(reader.pay(lock).await.unwrap_err(), "stale-token");

    reader.succeed(commands("When a token went back", 1)).await;
    assert_eq!(reader.pay(lock).await.unwrap().token, 35);
}

/// Why the page says to leave `cache` at 1.
#[tokio::test]
async fn cached_sequence_gives_a_later_grant_a_lower_token() {
    let (postgres, reader) = start().await;
    let [mut one, mut other] = [connect(&postgres).await, connect(&postgres).await];
    reader.succeed(commands("PostgreSQL", 0)).await;
    assert_eq!((draw(&mut one).await, draw(&mut other).await, draw(&mut one).await), (1, 2, 3));
    raw_sql("alter sequence invoice_7_token cache 20").execute(&mut one).await.unwrap();
    let (first, second) = (draw(&mut one).await, draw(&mut other).await);
    let third = draw(&mut one).await;
    assert!(first < second && third < second, "{first} {second} {third}");
}
