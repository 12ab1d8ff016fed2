//! The commands in the README for lock and data in one PostgreSQL.

use std::{
    fs,
    process::{Command, Output},
};

use testbed::Postgres;

use crate::{command::output, programs::LOCK_CLIENT};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[tokio::test]
async fn lock_and_data_in_one_postgresql_work_as_the_readme_says() {
    let server = Postgres::start().await.unwrap();
    query(&server, "postgres", "create database mydatabase").await;
    query(&server, "mydatabase", "create table accounts (account_id text, balance bigint)").await;
    query(&server, "mydatabase", "insert into accounts values ('alice', 100)").await;
    let commands = commands("### Lock and data in one PostgreSQL")
        .replace("postgres://localhost/mydatabase", &server.url_of("mydatabase"))
        .replace("target/debug/lock-client", LOCK_CLIENT);
    run(&server, &["sh", "-euc", &commands]).await;
    assert_eq!(query(&server, "mydatabase", "select balance from accounts").await, "70\n");
}

/// The first commands below a heading of the README.
fn commands(heading: &str) -> String {
    let readme = fs::read_to_string(format!("{ROOT}/README.md")).unwrap();
    let (_, section) = readme.split_once(heading).unwrap();
    let (_, commands) = section.split_once("```sh\n").unwrap();
    commands.split_once("```").unwrap().0.to_owned()
}

/// Runs one statement, and returns its output.
async fn query(server: &Postgres, database: &str, sql: &str) -> String {
    run(server, &["psql", database, "-qAt", "-c", sql]).await
}

/// Runs a command that connects to this server by default, from the root of the project.
async fn run(server: &Postgres, arguments: &[&str]) -> String {
    let mut command = Command::new(arguments[0]);
    command.args(&arguments[1..]).current_dir(ROOT).env_remove("FENCED_LOCKS");
    command.env("PGHOST", server.socket_folder()).env("PGPORT", server.port().to_string());
    command.env("PGUSER", "postgres");
    let Output { status, stdout, stderr } = output(command).await;
    assert!(status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}
