//! `fence.doctor()` names each setting that is wrong, and no other.

use std::{collections::BTreeMap, time::Duration};

use sqlx::{Connection, PgConnection, query_as};
use testbed::{Postgres, wait::until_async};

use super::{accounts, attempt, files, psql, session, session_of};

const SOON: Duration = Duration::from_secs(60);
/// The checks that SQL can't decide on a single server.
const UNDECIDED: [&str; 1] = ["unseen"];

type Checks = BTreeMap<String, Option<bool>>;

async fn checks(database: &mut PgConnection) -> Checks {
    let checks = query_as("select name, ok from fence.doctor()").persistent(false);
    checks.fetch_all(database).await.unwrap().into_iter().collect()
}

fn wrong(checks: &Checks) -> Vec<&str> {
    with(checks, Some(false))
}

fn undecided(checks: &Checks) -> Vec<&str> {
    with(checks, None)
}

fn with(checks: &Checks, ok: Option<bool>) -> Vec<&str> {
    checks.iter().filter(|(_, found)| **found == ok).map(|(name, _)| &**name).collect()
}

/// Waits until these checks are wrong, and those are undecided, as a reloaded setting takes a moment.
async fn until_it_finds(server: &Postgres, bad: &[&str], unsure: &[&str]) {
    let finds = || async {
        let checks = checks(&mut session(server).await).await;
        Ok(wrong(&checks) == bad && undecided(&checks) == unsure)
    };
    let found = until_async(SOON, finds).await;
    let last = checks(&mut session(server).await).await;
    found.unwrap_or_else(|_| panic!("expected {bad:?} and {unsure:?}: {last:?}"));
}

#[tokio::test]
async fn doctor_names_the_setting_that_is_wrong() {
    let (server, mut owner) = accounts().await;
    let found = checks(&mut owner).await;
    assert_eq!((wrong(&found), undecided(&found)), (vec![], UNDECIDED.to_vec()));
    for (setting, back, name) in [
        ("set synchronous_commit = off", "reset synchronous_commit", "synchronous_commit"),
        (
            "alter role postgres set synchronous_commit = off",
            "alter role postgres reset synchronous_commit",
            "stored_synchronous_commit",
        ),
        (
            "alter database postgres set synchronous_commit to false",
            "alter database postgres reset synchronous_commit",
            "stored_synchronous_commit",
        ),
        (
            "create function fast() returns void language sql set synchronous_commit = off as ''",
            "drop function fast",
            "stored_synchronous_commit",
        ),
        ("alter table fence.fence set unlogged", "alter table fence.fence set logged", "table"),
        (
            "alter table accounts set unlogged",
            "alter table accounts set logged",
            "protected_tables",
        ),
    ] {
        attempt(&mut owner, setting).await.unwrap();
        assert_eq!(wrong(&checks(&mut owner).await), [name], "{setting}");
        attempt(&mut owner, back).await.unwrap();
        assert_eq!(wrong(&checks(&mut owner).await), [""; 0], "{back}");
    }
    for name in ["fsync", "full_page_writes"] {
        server.reload_with(&format!("{name}=off")).unwrap();
        until_it_finds(&server, &[name], &UNDECIDED).await;
        server.reload_with(&format!("{name}=on")).unwrap();
        until_it_finds(&server, &[], &UNDECIDED).await;
    }
}

#[tokio::test]
async fn doctor_warns_of_standbys_that_may_lack_fences() {
    let (server, mut owner) = accounts().await;
    let role = "create role app login; grant usage on schema fence to app";
    attempt(&mut owner, role).await.unwrap();
    let first = server.start_replica().await.unwrap();
    until_it_finds(&server, &["standbys", "synchronous_standby_names"], &UNDECIDED).await;

    // A role without further rights sees that a connection is there, and nothing of it.
    let seen = checks(&mut session_of(&server, "app").await).await;
    let hidden = ["hidden_standbys", "synchronous_standby_names", "unseen"];
    assert_eq!((wrong(&seen), undecided(&seen)), (vec![], hidden.to_vec()));
    attempt(&mut owner, "grant pg_monitor to app").await.unwrap();
    let seen = checks(&mut session_of(&server, "app").await).await;
    assert_eq!(wrong(&seen), ["standbys", "synchronous_standby_names"]);

    // While a standby must confirm, a level that doesn't wait for it is too weak.
    server.reload_with("synchronous_standby_names='*'").unwrap();
    until_it_finds(&server, &[], &UNDECIDED).await;
    attempt(&mut owner, "set synchronous_commit = local").await.unwrap();
    assert_eq!(wrong(&checks(&mut owner).await), ["synchronous_commit"]);

    // The second one is asynchronous, or may lack what the first one has confirmed.
    let _second = server.start_replica().await.unwrap();
    until_it_finds(&server, &["standbys"], &UNDECIDED).await;
    server.reload_with("synchronous_standby_names='ANY 1 (*)'").unwrap();
    until_it_finds(&server, &[], &["standbys", "unseen"]).await;
    server.reload_with("synchronous_standby_names='FIRST 2 (*)'").unwrap();
    until_it_finds(&server, &[], &UNDECIDED).await;

    first.catch_up(&server).await.unwrap();
    let mut standby = PgConnection::connect(&first.url()).await.unwrap();
    assert!(wrong(&checks(&mut standby).await).contains(&"primary"));
}

#[tokio::test]
async fn administrator_decides_who_may_call_the_doctor() {
    let (server, mut owner) = accounts().await;
    let setup = "
        create role app login; grant usage on schema fence to app;
        revoke execute on function fence.doctor() from public";
    attempt(&mut owner, setup).await.unwrap();
    psql(&server.url(), &files()).unwrap();
    let mut app = session_of(&server, "app").await;
    assert_eq!(attempt(&mut app, "select * from fence.doctor()").await.unwrap_err(), "42501");
    attempt(&mut owner, "grant execute on function fence.doctor() to app").await.unwrap();
    psql(&server.url(), &files()).unwrap();
    attempt(&mut app, "select * from fence.doctor()").await.unwrap();
}
