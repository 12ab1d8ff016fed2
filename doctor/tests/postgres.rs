//! The checks of PostgreSQL find what endangers a fence, and a session hides nothing.

use std::{cell::RefCell, collections::BTreeMap, process::Command, str::FromStr, time::Duration};

use doctor::{Verdict, sql::Session};
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection, postgres::PgConnectOptions, raw_sql};
use testbed::{Postgres, wait::until_async};

const SOON: Duration = Duration::from_secs(60);

async fn execute(database: &mut PgConnection, sql: &str) {
    raw_sql(AssertSqlSafe(sql.to_owned())).execute(database).await.unwrap();
}

fn options(url: &str) -> PgConnectOptions {
    PgConnectOptions::from_str(url).unwrap()
}

async fn with_fence(settings: &[&str]) -> (Postgres, PgConnection) {
    let server = Postgres::start_with(settings).await.unwrap();
    let mut owner = options(&server.url()).connect().await.unwrap();
    fence::postgres::install(&mut owner).await.unwrap();
    (server, owner)
}

/// Waits until these checks are not ok, and all others are. A standby may change its state at any moment.
async fn assert_complaints(options: &PgConnectOptions, expected: &BTreeMap<String, Verdict>) {
    let last = RefCell::default();
    let agree = until_async(SOON, async || {
        let report = doctor::postgres::examine(options).await?;
        let complaints = report.checks.iter().filter(|check| check.verdict != Verdict::Ok);
        let complaints: BTreeMap<_, _> =
            complaints.map(|check| (check.name.to_string(), check.verdict)).collect();
        last.replace(report.to_string());
        Ok(complaints == *expected)
    });
    let agree = agree.await;
    assert!(agree.is_ok(), "expected {expected:?}: {}", last.into_inner());
}

fn found<const N: usize>(checks: [(&str, Verdict); N]) -> BTreeMap<String, Verdict> {
    checks.map(|(name, verdict)| (name.to_owned(), verdict)).into()
}

#[tokio::test]
async fn settings_that_endanger_a_fence_are_found() {
    let unfit = Verdict::UnfitForFence;
    let (server, mut owner) = with_fence(&[]).await;
    let options = options(&server.url());
    assert_complaints(&options, &found([])).await;
    for (wrong, back, expected) in [
        (
            "alter table fence.fence set unlogged",
            "alter table fence.fence set logged",
            found([("table", unfit)]),
        ),
        (
            "create table item (id int); select fence.protect('item', 'id'); alter table item set unlogged",
            "drop table item",
            found([("protected_tables", unfit)]),
        ),
        (
            "create function fast() returns void language sql set synchronous_commit = off as ''",
            "drop function fast",
            found([("stored_synchronous_commit", unfit)]),
        ),
        (
            "alter database postgres set synchronous_commit to false",
            "alter database postgres reset synchronous_commit",
            found([("stored_synchronous_commit", unfit), ("synchronous_commit", unfit)]),
        ),
        (
            "alter role postgres set synchronous_commit = off",
            "alter role postgres reset synchronous_commit",
            found([("stored_synchronous_commit", unfit), ("synchronous_commit", unfit)]),
        ),
        // Only the sessions of one role have it for sure.
        (
            "alter role postgres set synchronous_commit = on",
            "alter role postgres reset synchronous_commit",
            found([("synchronous_commit", Verdict::Unseen)]),
        ),
    ] {
        execute(&mut owner, wrong).await;
        assert_complaints(&options, &expected).await;
        execute(&mut owner, back).await;
    }
    for setting in ["fsync", "full_page_writes"] {
        let (server, _) = with_fence(&[&format!("{setting}=off")]).await;
        let options = self::options(&server.url());
        assert_complaints(&options, &found([(setting, unfit)])).await;
    }
}

/// What a session has set says nothing of the sessions that write.
#[tokio::test]
async fn setting_of_the_asking_session_does_not_hide_the_servers() {
    let name = "synchronous_commit";
    let (server, mut owner) = with_fence(&["synchronous_commit=off"]).await;
    let plain = options(&server.url());
    assert_complaints(&plain, &found([(name, Verdict::UnfitForFence)])).await;
    let by_url = plain.options([(name, "on")]);
    assert_complaints(&by_url, &found([(name, Verdict::Unseen)])).await;
    // The control: the same value, and it is the server's.
    execute(&mut owner, "alter database postgres set synchronous_commit = on").await;
    assert_complaints(&options(&server.url()), &found([])).await;
}

#[tokio::test]
async fn standbys_that_may_lack_a_fence_are_found() {
    let (unfit, names) = (Verdict::UnfitForFence, "synchronous_standby_names");
    let (server, mut owner) = with_fence(&[]).await;
    let options = options(&server.url());
    let until = async |setting: &str, expected: BTreeMap<String, Verdict>| {
        server.reload_with(&format!("{names}='{setting}'")).unwrap();
        assert_complaints(&options, &expected).await;
    };
    let first = server.start_replica().await.unwrap();
    until("", found([("standbys", unfit), (names, unfit)])).await;

    // A role without rights sees only that there is one.
    execute(&mut owner, "create role app login").await;
    let blind = options.clone().username("app");
    let expected = found([("hidden_standbys", Verdict::Unseen), (names, Verdict::Unseen)]);
    assert_complaints(&blind, &expected).await;

    execute(&mut owner, "grant pg_monitor to app").await;
    assert_complaints(&blind, &found([("standbys", unfit), (names, unfit)])).await;

    // While a standby must confirm, a level that doesn't wait for it is too weak.
    until("*", found([])).await;
    execute(&mut owner, "alter database postgres set synchronous_commit = local").await;
    let weak = [("stored_synchronous_commit", unfit), ("synchronous_commit", unfit)];
    assert_complaints(&options, &found(weak)).await;
    execute(&mut owner, "alter database postgres reset synchronous_commit").await;
    let _second = server.start_replica().await.unwrap();
    until("*", found([("standbys", unfit)])).await;
    until("ANY 1 (*)", found([("standbys", Verdict::Unseen)])).await;
    // Patroni sees to it that the right one is promoted. SQL doesn't show how.
    let _patroni = options.clone().application_name("Patroni heartbeat").connect().await.unwrap();
    let unclear = [("standbys", Verdict::Unseen), ("patroni", Verdict::Unseen)];
    until("*", found(unclear)).await;
    until("FIRST 2 (*)", found([("patroni", Verdict::Unseen)])).await;

    first.catch_up(&server).await.unwrap();
    let standby = self::options(&first.url());
    assert_complaints(&standby, &found([("primary", Verdict::Unfit)])).await;
}

/// The guide runs the query by psql. It needs no fence and no rights.
#[tokio::test]
async fn query_runs_in_psql() {
    let server = Postgres::start_with(&[]).await.unwrap();
    let mut owner = options(&server.url()).connect().await.unwrap();
    execute(&mut owner, "create role app login").await;
    let query = concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations/postgres/doctor.sql");
    let mut psql = Command::new("psql");
    psql.args(["--no-psqlrc", "--set", "ON_ERROR_STOP=1", "--csv", "--file", query]);
    let app = server.url().replace("//postgres@", "//app@");
    let output = psql.arg(app).output().expect("the package postgresql-client has psql");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let fsync = "fsync,ok,on,,";
    assert!(
        printed.contains("name,verdict,found,why,cure") && printed.contains(fsync),
        "{printed}"
    );
}

/// The limit of a role counts its own connections, and not those of others.
#[tokio::test]
async fn limit_of_a_user_is_compared_with_its_own_connections() {
    let (server, mut owner) = with_fence(&[]).await;
    execute(&mut owner, "create role limited login connection limit 25").await;
    let limited = options(&server.url().replace("//postgres@", "//limited@"));
    let connections = async || {
        let mut session = Session::<sqlx::Postgres>::connect(&limited).await.unwrap();
        doctor::postgres::connections(&mut session).await.unwrap()
    };
    let mut others = Vec::new();
    for _ in 0..20 {
        others.push(options(&server.url()).connect().await.unwrap());
    }
    let check = connections().await;
    assert_eq!(check.verdict, Verdict::Ok, "{}", check.found);
    assert!(check.found.starts_with("at most 25, "), "{}", check.found);
    // The control: its own connections count.
    for _ in 0..20 {
        others.push(limited.connect().await.unwrap());
    }
    let check = connections().await;
    assert_eq!(check.verdict, Verdict::Warning, "{}", check.found);
}
