//! The settings of the server, and those in a URL.

use std::time::Duration;

use fence::Holder;
use futures_util::TryStreamExt;
use lock_client::{Locks, Released, Terms, backend::Backend, mariadb::MariaDb};
use tokio::time::sleep;

use super::{locked_with, patient};
use crate::{
    lock_service::{lasting, ttl, with_causes},
    names::name,
    sql::granted,
};

#[tokio::test]
async fn lock_is_released_though_idle_connections_are_closed() {
    let server = locked_with(&["--wait-timeout=2"]).await;
    let locks = Locks::new(patient(&server.url()));
    let lease = locks.acquire(&name("idle"), lasting()).await.unwrap();
    sleep(Duration::from_secs(5)).await;
    assert_eq!(lease.release().await.unwrap(), Released::Released);
}

/// Without a commit after each statement, all reads of a connection would see the state at its first one.
#[tokio::test]
async fn state_is_the_present_one_without_autocommit() {
    let server = locked_with(&["--autocommit=0"]).await;
    let (observer, other) = (patient(&server.url()), patient(&server.url()));
    let names = async || observer.held_names("").try_concat().await.unwrap();
    assert_eq!(observer.status(&name("r")).await.unwrap().held, None);
    assert!(names().await.is_empty());
    let holder = Holder::random();
    granted(&other, "r", &holder, 600_000).await.unwrap();
    let held = observer.status(&name("r")).await.unwrap().held.expect("it is held");
    assert_eq!(held.ownership.holder, holder);
    assert_eq!(names().await, [name("r")]);
}

#[tokio::test]
async fn binary_log_of_statements_is_named() {
    let server = locked_with(&["--log-bin", "--binlog-format=STATEMENT"]).await;
    let terms = Terms::new(ttl(60_000)).wait(Duration::from_secs(1));
    let locks = Locks::new(patient(&server.url()));
    let error = locks.acquire(&name("r"), terms).await.unwrap_err();
    let text = with_causes(&error);
    assert!(text.contains("set global binlog_format = 'MIXED'"), "{text}");
}

#[test]
fn setting_that_is_not_known_is_rejected_and_so_are_several_hosts() {
    for setting in ["sslmod=verify-full", "tls-ca=/ca.pem", "SSL-MODE=REQUIRED"] {
        let text = MariaDb::open(&format!("mariadb://db/locks?{setting}")).unwrap_err().to_string();
        let name = setting.split('=').next().unwrap();
        assert!(text.contains(&format!("`{name}` is no setting here")), "{text}");
        assert!(text.contains("the settings are ssl-mode, ssl-ca"), "{text}");
    }
    MariaDb::open("mariadb://db/locks?connect-timeout=3&ssl-mode=VERIFY_CA").unwrap();
    let text = MariaDb::open("mariadb://me:secret@a,b:3307/locks").unwrap_err().to_string();
    assert!(text.contains("several hosts (a,b:3307)"), "{text}");
    // A comma in a password that is not encoded is none between hosts.
    for password in ["sec,ret/x", "sec,ret?x", "sec,ret#x"] {
        let url = format!("mariadb://me:{password}@db/locks");
        let text = MariaDb::open(&url).unwrap_err().to_string();
        assert!(text.contains("write %2F") && !text.contains("sec"), "{text}");
    }
}
