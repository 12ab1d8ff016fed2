//! What READMEs say: the commands for lock and data in one PostgreSQL, and the tests and scenarios that
//! show what each deployment guarantees.

use std::{
    fs,
    path::Path,
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
        .replace("target/debug/lock-client", LOCK_CLIENT);
    run(&server, &["sh", "-euc", &commands]).await;
    assert_eq!(query(&server, "mydatabase", "select balance from accounts").await, "70\n");
}

#[test]
fn tables_of_guarantees_name_tests_and_scenarios_that_exist() {
    let folders = ["tests", "lock-client/tests", "lock-client/cli/tests", "lab/src/scenario"];
    let sources = folders.map(sources).concat();
    let exists = |name: &str| {
        let (module, name) = name.split_once("::").unwrap_or(("", name));
        sources.contains(&format!("fn {name}"))
            || sources.contains(&format!("name: \"{name}\""))
            || sources.contains(&format!("mod {module};"))
                && sources.contains(&format!("mod {name};"))
    };
    let readme = fs::read_to_string(format!("{ROOT}/lock-client/README.md")).unwrap();
    let (_, section) = readme.split_once("## What each deployment guarantees").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| **"));
    let code = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    // A path is none of a test's.
    let names: Vec<_> = code.filter(|code| !code.contains('/')).collect();
    assert!(names.len() > 40, "{names:?}");
    let missing: Vec<_> = names.into_iter().filter(|name| !exists(name)).collect();
    assert!(missing.is_empty(), "there is no {missing:?}");
    assert!(!exists("token_grows_for_ever") && !exists("token-34-33"), "the control");
}

#[test]
fn scenarios_of_the_readme_exist() {
    let readme = fs::read_to_string(format!("{ROOT}/README.md")).unwrap();
    let (_, section) = readme.split_once("### See it").unwrap();
    let (section, _) = section.split_once("\n### ").unwrap();
    let scenarios = sources("lab/src/scenario");
    let count = scenarios.matches("\n    name: \"").count();
    assert!(section.contains(&format!("# {count} scenarios\n")), "there are {count}");
    let (_, text) = section.rsplit_once("```").unwrap();
    let code = text.split('`').skip(1).step_by(2);
    let names: Vec<_> = code.filter(|code| !code.contains('/')).collect();
    assert!(names.len() >= 7, "{names:?}");
    for name in names {
        assert!(scenarios.contains(&format!("name: \"{name}\"")), "there is no {name}");
    }
}

/// All Rust files of a folder.
fn sources(folder: impl AsRef<Path>) -> String {
    let entries = Path::new(ROOT).join(folder).read_dir().unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let texts = paths.map(|path| match path.is_dir() {
        true => sources(path),
        false if path.extension().is_some_and(|extension| extension == "rs") => {
            fs::read_to_string(path).unwrap()
        }
        false => String::new(),
    });
    texts.collect()
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
