//! Encrypted connections to PostgreSQL.

use fence::Holder;
use lock_client::{
    backend::{Backend, BackendError},
    postgres::install,
};
use sqlx::{Connection, PgConnection};

use super::{locked, patient};
use crate::{lock_service::with_causes, names::name, sql::granted};

async fn rejected(url: &str) -> String {
    let client = patient(url);
    let error = client.status(&name("r")).await.unwrap_err();
    assert!(matches!(error, BackendError::Rejected(_)), "{error:?}");
    with_causes(&error)
}

#[tokio::test]
async fn encrypted_connections_need_a_trusted_certificate() {
    let server = testbed::Postgres::start_tls().await.unwrap();
    let mut observer = PgConnection::connect(&server.url()).await.unwrap();
    install(&mut observer).await.unwrap();
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port());
    let verifying = format!("{url}?sslmode=verify-full");
    let trusting = format!("{verifying}&sslrootcert={}", server.ca_file().display());
    let client = patient(&trusting);
    granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
    let encrypted = "select count(*) from pg_stat_ssl where ssl";
    let encrypted: i64 = sqlx::query_scalar(encrypted).fetch_one(&mut observer).await.unwrap();
    assert!(encrypted > 0);
    let host = format!("127.0.0.1:{}", server.port());
    let twice = verifying.replace(&host, &format!("{host},{host}"));
    for untrusting in [verifying, twice] {
        let reason = rejected(&untrusting).await;
        assert!(reason.contains("encrypted connection failed"), "{reason}");
        assert!(reason.contains("UnknownIssuer"), "{reason}");
    }
}

#[tokio::test]
async fn server_without_tls_is_named() {
    let (server, _) = locked().await;
    let hosts = testbed::Postgres::url_of_all(&[&server, &server]);
    for url in [server.url() + "&sslmode=require", hosts + "?sslmode=require"] {
        let reason = rejected(&url).await;
        assert!(reason.contains("encrypted connection failed"), "{reason}");
        assert!(reason.contains("server does not support TLS"), "{reason}");
    }
}
