//! What MariaDB rejects: missing tables, wrong logins and certificates, missing rights, wrong arguments.

use fence::Holder;
use lock_client::{
    backend::{Backend, BackendError},
    mariadb::install,
};
use sqlx::{AssertSqlSafe, Executor};

use super::{connect, locked, patient};
use crate::{
    lock_service::with_causes,
    names::name,
    sql::{self, granted},
};

#[tokio::test]
async fn missing_table_is_rejected_with_a_hint() {
    let server = testbed::MariaDb::start().await.unwrap();
    let client = patient(&server.url());
    let missing = async || {
        let error = client.release(&name("r"), &Holder::random(), None).await.unwrap_err();
        assert!(matches!(error, BackendError::Rejected(_)), "{error:?}");
        assert!(with_causes(&error).contains("apply migrations/mariadb/lock"), "{error:?}");
    };
    missing().await;
    let mut connection = connect(&server).await;
    install(&mut connection).await.unwrap();
    client.status(&name("r")).await.unwrap();
    connection.execute("drop table fenced_lock").await.unwrap();
    missing().await;
}

#[tokio::test]
async fn wrong_password_is_rejected() {
    let (server, _) = locked().await;
    let create = "create user locker@localhost identified by 'right'";
    connect(&server).await.execute(create).await.unwrap();
    let url = server.url().replace("//root@", "//locker:wrong@");
    let client = patient(&url);
    let error = client.status(&name("r")).await.unwrap_err();
    assert!(matches!(error, BackendError::Rejected(_)), "{error:?}");
    assert!(!format!("{error:?} {client:?}").contains("wrong"));
}

#[tokio::test]
async fn encrypted_connections_need_a_trusted_certificate() {
    let server = testbed::MariaDb::start_tls().await.unwrap();
    let mut administrator = connect(&server).await;
    install(&mut administrator).await.unwrap();
    let proxy = testbed::Proxy::start(server.socket()).await.unwrap();
    let verifying = format!("mariadb://root@{}/test?ssl-mode=VERIFY_IDENTITY", proxy.address());
    let trusting = format!("{verifying}&ssl-ca={}", server.ca_file().display());
    let client = patient(&trusting);
    granted(&client, "r", &Holder::random(), 600_000).await.unwrap();
    let reason = rejected(&verifying).await;
    assert!(reason.contains("encrypted connection failed"), "{reason}");
    assert!(reason.contains("UnknownIssuer"), "{reason}");
    // The control: this user must encrypt.
    administrator.execute("create user locker@localhost require ssl").await.unwrap();
    administrator.execute("grant all on *.* to locker@localhost").await.unwrap();
    let [trusting, plain] = [&trusting, &trusting.replace("VERIFY_IDENTITY", "DISABLED")]
        .map(|url| url.replace("//root@", "//locker@"));
    granted(&patient(&trusting), "r2", &Holder::random(), 600_000).await.unwrap();
    assert!(rejected(&plain).await.contains("Access denied"));
}

#[tokio::test]
async fn server_without_tls_is_named() {
    let (server, _) = locked().await;
    let reason = rejected(&format!("{}&ssl-mode=REQUIRED", server.url())).await;
    assert!(reason.contains("encrypted connection failed"), "{reason}");
    assert!(reason.contains("server does not support TLS"), "{reason}");
}

async fn rejected(url: &str) -> String {
    let error = patient(url).status(&name("r")).await.unwrap_err();
    assert!(matches!(error, BackendError::Rejected(_)), "{error:?}");
    with_causes(&error)
}

#[tokio::test]
async fn user_needs_rights_on_the_procedures_only() {
    let (server, _) = locked().await;
    let mut connection = connect(&server).await;
    connection.execute("create user locker@localhost identified by 'right'").await.unwrap();
    let client = patient(&server.url().replace("//root@", "//locker:right@"));
    let error = client.status(&name("r")).await.unwrap_err();
    assert!(matches!(error, BackendError::Rejected(_)), "{error:?}");
    for procedure in ["acquire", "renew", "reissue", "release", "status"] {
        let grant =
            format!("grant execute on procedure test.fenced_lock_{procedure} to locker@localhost");
        connection.execute(AssertSqlSafe(grant)).await.unwrap();
    }
    sql::reissued_token_is_above_both(&client).await.unwrap();
}

/// Clients in other languages get an error that names the argument. An empty holder would be taken for
/// that of a free lock, and get an issued token again.
#[tokio::test]
async fn wrong_arguments_are_named() {
    let (server, _) = locked().await;
    let mut connection = connect(&server).await;
    for (arguments, part) in [
        ("null, 'me', 1000, null, 1700000000000, ''", "name must"),
        ("'', 'me', 1000, null, 1700000000000, ''", "name must"),
        ("'r', null, 1000, null, 1700000000000, ''", "holder must"),
        ("'r', '', 1000, null, 1700000000000, ''", "holder must"),
        ("'r', 'me\n', 1000, null, 1700000000000, ''", "holder must"),
        ("'r', 'me too', 1000, null, 1700000000000, ''", "holder must"),
        ("'r', x'6dff', 1000, null, 1700000000000, ''", "holder must"),
        ("'r', 'me', null, null, 1700000000000, ''", "ttl_ms must"),
        ("'r', 'me', 0, null, 1700000000000, ''", "ttl_ms must"),
        ("'r', 'me', -5, null, 1700000000000, ''", "ttl_ms must"),
        ("'r', 'me', 9223372036854775807, null, 1700000000000, ''", "ttl_ms must"),
        ("'r', 'me', 1000, 999, 1700000000000, ''", "patience_ms must"),
        ("'r', 'me', 1000, null, null, ''", "since_ms must"),
        ("'r', 'me', 1000, null, -1, ''", "since_ms must"),
        ("'r', 'me', 1000, null, 0, ''", "since_ms must"),
        // Seconds, and microseconds.
        ("'r', 'me', 1000, null, 1700000000, ''", "since_ms must"),
        ("'r', 'me', 1000, null, 1700000000000000, ''", "since_ms must"),
        // The year 2096.
        ("'r', 'me', 1000, null, 4000000000000, ''", "since_ms must"),
        ("'r', 'me', 1000, null, 1700000000000, null", "label must"),
    ] {
        let acquire = AssertSqlSafe(format!("call fenced_lock_acquire({arguments})"));
        let answer = sqlx::raw_sql(acquire).execute(&mut connection).await;
        let error = answer.expect_err(arguments).into_database_error().unwrap();
        assert_eq!(error.code().unwrap(), "22023", "{arguments}: {error}");
        assert!(error.message().contains(part), "{arguments}: {error}");
    }
    let rows = "select count(*) from fenced_lock";
    assert_eq!(sqlx::query_scalar::<_, i64>(rows).fetch_one(&mut connection).await.unwrap(), 0);
    let longest =
        "call fenced_lock_acquire('r', repeat('~', 128), 604800000, 3000, 1700000000000, '')";
    sqlx::raw_sql(longest).execute(&mut connection).await.unwrap();
}
