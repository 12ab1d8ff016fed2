//! The limits of connections, and protected tables, in MariaDB.

use std::str::FromStr;

use doctor::{Verdict, sql::Session};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, mysql::MySqlConnectOptions};
use testbed::MariaDb;

/// The limit of a user counts its own connections, and not those of others.
#[tokio::test]
async fn limit_of_a_user_is_compared_with_its_own_connections() {
    let server = MariaDb::start().await.unwrap();
    let options = |url: &str| MySqlConnectOptions::from_str(url).unwrap();
    let mut owner = options(&server.url()).connect().await.unwrap();
    let create = "create user limited@localhost with max_user_connections 12";
    owner.execute(create).await.unwrap();
    owner.execute("grant select on test.* to limited@localhost").await.unwrap();
    let limited = options(&server.url().replace("//root@", "//limited@"));
    let connections = async || {
        let mut session = Session::<sqlx::MySql>::connect(&limited).await.unwrap();
        doctor::mariadb::connections(&mut session).await.unwrap()
    };
    let mut others = Vec::new();
    for _ in 0..10 {
        others.push(options(&server.url()).connect().await.unwrap());
    }
    let check = connections().await;
    assert_eq!(check.verdict, Verdict::Ok, "{}", check.found);
    assert!(check.found.starts_with("at most 12, "), "{}", check.found);
    // The control: its own connections count.
    for _ in 0..8 {
        others.push(limited.connect().await.unwrap());
    }
    let check = connections().await;
    assert_eq!(check.verdict, Verdict::Warning, "{}", check.found);
}

/// A statement on a protected table that MariaDB allows, and what is found after it.
#[tokio::test]
async fn table_that_lost_its_protection_is_found() {
    let server = MariaDb::start().await.unwrap();
    let options = MySqlConnectOptions::from_str(&server.url()).unwrap();
    let mut owner = options.connect().await.unwrap();
    fence::mariadb::install(&mut owner).await.unwrap();
    owner.execute("create table item (id int)").await.unwrap();
    let protect: Vec<String> = sqlx::query_scalar("call fence.protect_sql('test.item', 'id')")
        .fetch_all(&mut owner)
        .await
        .unwrap();
    for statement in protect {
        owner.execute(AssertSqlSafe(statement)).await.unwrap();
    }
    for (statement, expected, verdict) in [
        ("select 1", "", Verdict::Ok),
        ("alter table item engine = MyISAM", "test.item: engine MyISAM", Verdict::UnfitForFence),
        ("alter table item engine = InnoDB", "", Verdict::Ok),
        (
            "alter table item discard tablespace",
            "test.item: tablespace discarded",
            Verdict::UnfitForFence,
        ),
    ] {
        owner.execute(statement).await.unwrap();
        let report = doctor::mariadb::examine(&options).await.unwrap();
        let check = report.checks.iter().find(|check| check.name == "protected_tables").unwrap();
        assert_eq!(check.verdict, verdict, "{statement}: {}", check.found);
        assert!(check.found.contains(expected), "{statement}: {}", check.found);
    }
}
