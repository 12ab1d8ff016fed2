//! The programs in the READMEs of both packages, as commands of `lock-client run`.

use std::{fs, process::Command};

use sqlx::{Connection, PgConnection};
use testbed::Redis;

use super::{database::Database, node, python};
use crate::{
    languages::{output, root},
    programs::LOCK_CLIENT,
};

#[tokio::test(flavor = "multi_thread")]
async fn python_program_claims_with_the_lease_of_lock_client_run() {
    let program = "fence/python/tests/deposit.py";
    is_in_the_readme(program, "fence/python/README.md");
    let installed = python::install().await;
    let mut deposit = python::python(&installed);
    deposit.arg(root().join(program));
    deposits_under_a_lock(&deposit).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_program_claims_with_the_lease_of_lock_client_run() {
    is_in_the_readme("fence/node/test/deposit.mjs", "fence/node/README.md");
    let installed = node::install().await;
    let mut deposit = Command::new("node");
    deposit.arg(installed.path().join("deposit.mjs"));
    deposits_under_a_lock(&deposit).await;
}

fn is_in_the_readme(program: &str, readme: &str) {
    let [program, readme] =
        [program, readme].map(|file| fs::read_to_string(root().join(file)).unwrap());
    assert!(readme.contains(&program), "the program differs from the README");
}

/// Deposits twice under a lock, and once more with the lease of the first run.
async fn deposits_under_a_lock(deposit: &Command) {
    let (redis, database) = (Redis::start().await.unwrap(), Database::start().await);
    let mut superuser = PgConnection::connect(&database.superuser_url()).await.unwrap();
    let account = "insert into accounts values ('alice', 100)";
    sqlx::raw_sql(account).execute(&mut superuser).await.unwrap();

    let mut leases = Vec::new();
    for _ in 0..2 {
        let mut run = Command::new(LOCK_CLIENT);
        run.args(["run", "alice", "--locks", &redis.url(), "--"]);
        let deposited = output(with_program(run, deposit, &database)).await;
        assert!(deposited.status.success(), "{}", String::from_utf8_lossy(&deposited.stderr));
        let lease: (i64, String) = sqlx::query_as("select token, holder from fence.fence")
            .fetch_one(&mut superuser)
            .await
            .unwrap();
        leases.push(lease);
    }
    assert!(leases[0] < leases[1], "each run has a lease of its own");

    let (token, holder) = &leases[0];
    let mut late = with_program(Command::new("env"), deposit, &database);
    late.env("FENCING_RESOURCE", "alice").env("FENCING_HOLDER", holder);
    late.env("FENCING_TOKEN", token.to_string());
    let late = output(late).await;
    let stderr = String::from_utf8_lossy(&late.stderr);
    assert!(!late.status.success() && stderr.contains("Stale"), "{stderr}");

    let balance: i64 =
        sqlx::query_scalar("select balance from accounts").fetch_one(&mut superuser).await.unwrap();
    assert_eq!(balance, 110, "two deposits of 5");
}

/// The command, followed by the program, which uses the database.
fn with_program(mut command: Command, program: &Command, database: &Database) -> Command {
    command.arg(program.get_program()).args(program.get_args()).envs(database.urls());
    for (variable, value) in program.get_envs() {
        command.env(variable, value.expect("no variable is removed"));
    }
    command
}
