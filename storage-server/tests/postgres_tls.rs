//! Encrypted connections to PostgreSQL.

use sqlx::{Connection, PgConnection};
use testbed::{Authority, Postgres};

use crate::database::{Database, offer};

/// The names of PostgreSQL's server in URLs of these tests.
const HOST: &str = "127.0.0.1";

fn url(postgres: &Postgres, settings: &str) -> String {
    format!("postgres://postgres@{HOST}:{}/postgres?{settings}", postgres.port())
}

/// Why a server with this database does not start.
async fn rejection(url: &str) -> String {
    let database = Database { url: url.to_owned(), ..Database::sqlite() };
    database.run(&["--listen", "127.0.0.1:0"]).await.failed()
}

#[tokio::test]
async fn certificate_of_postgres_is_checked_as_the_url_says() {
    let postgres = Postgres::start_tls().await.unwrap();
    let authority = postgres.ca_file();
    let verify_full = format!("sslmode=verify-full&sslrootcert={}", authority.display());
    let database = Database { url: url(&postgres, &verify_full), ..Database::sqlite() };
    let server = database.serve(&[]).await;
    assert_eq!(offer(&server, "PUT", "/v1/resources/r", 1, "x").await.status, 201);
    let mut observer = PgConnection::connect(&postgres.url()).await.unwrap();
    let plain = "select count(*) from pg_stat_ssl join pg_stat_activity using (pid)
        where client_addr is not null and not ssl";
    let encrypted = plain.replace("not ssl", "ssl");
    let plain: i64 = sqlx::query_scalar(plain).fetch_one(&mut observer).await.unwrap();
    let encrypted: i64 =
        sqlx::query_scalar(sqlx::AssertSqlSafe(encrypted)).fetch_one(&mut observer).await.unwrap();
    assert!(plain == 0 && encrypted > 0, "{plain} plain, {encrypted} encrypted");

    // Another authority, or the system's, has not signed it.
    let other = Authority::new().unwrap();
    let of_other = format!("sslrootcert={}", other.ca_file().display());
    for settings in ["sslmode=verify-full", &format!("sslmode=verify-full&{of_other}")] {
        let error = rejection(&url(&postgres, settings)).await;
        assert!(error.contains("UnknownIssuer"), "{settings}: {error}");
    }
}

#[tokio::test]
async fn certificate_of_postgres_for_another_name_is_rejected() {
    let postgres = Postgres::start_tls_as("DNS:db.example").await.unwrap();
    let root = format!("sslrootcert={}", postgres.ca_file().display());
    let error = rejection(&url(&postgres, &format!("sslmode=verify-full&{root}"))).await;
    assert!(error.contains("not valid for name"), "{error}");
    // The control: without a check of the name, the certificate is good.
    let verify_ca = url(&postgres, &format!("sslmode=verify-ca&{root}"));
    Database { url: verify_ca, ..Database::sqlite() }.serve(&[]).await;
}

#[tokio::test]
async fn postgres_without_tls_is_rejected_if_the_url_wants_it() {
    let postgres = Postgres::start().await.unwrap();
    let error = rejection(&format!("{}&sslmode=require", postgres.url())).await;
    assert!(error.contains("server does not support TLS"), "{error}");
}
