//! What READMEs say: the commands for lock and data in one PostgreSQL, and the tests and scenarios that
//! show what each deployment guarantees.

mod translation;

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

/// What the paths, or the names, of each service's tests and scenarios have in them.
const SERVICES: [(&str, &str); 5] = [
    ("etcd", "etcd"),
    ("ZooKeeper", "zookeeper"),
    ("PostgreSQL", "postgres"),
    ("MariaDB", "mariadb"),
    ("SQLite", "sqlite"),
];

/// A scenario that shows PostgreSQL.
const SCENARIO_OF_SQL: &str = "sql-expired";

#[test]
fn tables_of_guarantees_name_tests_and_scenarios_of_their_services() {
    let folders = ["tests", "lock-client/tests", "lock-client/cli/tests", "lab/src/scenario"];
    let sources = folders.map(sources).concat();
    let readme = fs::read_to_string(format!("{ROOT}/lock-client/README.md")).unwrap();
    let (_, section) = readme.split_once("## What each deployment guarantees").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let cells = |row: &str| row.split(" | ").map(str::to_owned).collect::<Vec<_>>();
    let (mut columns, mut count, mut missing) = (Vec::new(), 0, Vec::new());
    for row in section.lines() {
        if row.starts_with("| | ") {
            columns = cells(row.trim_end_matches(" |"));
        }
        if !row.starts_with("| **") {
            continue;
        }
        let cells = cells(row);
        assert_eq!(cells.len(), columns.len(), "{row}");
        for (column, cell) in columns.iter().zip(&cells) {
            let service = SERVICES.iter().find(|(title, _)| title == column);
            let word = service.map_or("", |(_, word)| word);
            // A path is none of a test's.
            let names = cell.split('`').skip(1).step_by(2).filter(|code| !code.contains('/'));
            count += names.clone().count();
            missing.extend(
                names
                    .filter(|name| !is_shown(&sources, name, word))
                    .map(|name| format!("{name} of {column}")),
            );
        }
    }
    assert!(count > 60, "{count}");
    assert!(missing.is_empty(), "there is no {missing:?}");
    let shown = |name, word| is_shown(&sources, name, word);
    assert!(!shown("token-34-33", "") && !shown("etcd-restored", "zookeeper"), "the control");
    let of_mariadb = "token_grows_over_a_crash";
    assert!(shown(of_mariadb, "mariadb") && !shown(of_mariadb, "sqlite"), "the control");
    assert!(!shown("token_grows_over_a_cras", "mariadb"), "the control: a part of a name");
    assert!(!shown("only_once_there_is_no_such_test", ""), "the control");
}

/// Whether a test, a scenario or a module of tests has this name, and is of the service with this word.
fn is_shown(sources: &[(String, String)], name: &str, word: &str) -> bool {
    let is_of_service = |path: &str| {
        // The tests of a quorum run on either service.
        let both = path.contains("/quorum/") && ["etcd", "zookeeper"].contains(&word);
        both || path.contains(word) || name.contains(word)
    };
    sources.iter().any(|(path, text)| {
        if path.starts_with("lab/") {
            let is_of_sql = word == "postgres" && name == SCENARIO_OF_SQL;
            return text.contains(&format!("name: \"{name}\"")) && (is_of_service("") || is_of_sql);
        }
        match name.split_once("::") {
            Some((module, name)) => path.ends_with(&format!("/{module}/{name}.rs")),
            None => is_of_service(path) && has_test(text, name),
        }
    })
}

/// Whether a file has a test of exactly this name, or makes one of each service out of a function.
fn has_test(text: &str, name: &str) -> bool {
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let functions = [format!("fn {name}("), format!("async fn {name}(")];
    let is_marked = |line: &str| line.starts_with("#[tokio::test") || line == "#[test]";
    let is_test = lines.windows(2).any(|pair| {
        is_marked(pair[0]) && functions.iter().any(|function| pair[1].starts_with(function))
    });
    let listed = text.split_once("test_each_service! {").map_or("", |(_, listed)| listed);
    is_test || listed.lines().any(|line| line.trim() == format!("{name},"))
}

#[test]
fn scenarios_of_the_readme_exist() {
    let readme = fs::read_to_string(format!("{ROOT}/README.md")).unwrap();
    let (_, section) = readme.split_once("### See it").unwrap();
    let (section, _) = section.split_once("\n### ").unwrap();
    let scenarios: String = sources("lab/src/scenario").into_iter().map(|(_, text)| text).collect();
    let count = scenarios.matches("\n    name: \"").count();
    assert!(section.contains(&format!("# {count} scenarios\n")), "there are {count}");
    let replayed = section.lines().filter_map(|line| line.strip_prefix("target/debug/lab replay "));
    let names: Vec<_> = replayed.filter(|arguments| !arguments.starts_with("--")).collect();
    assert!(!names.is_empty(), "{section}");
    for name in names {
        let name = name.split_whitespace().next().unwrap();
        assert!(scenarios.contains(&format!("name: \"{name}\"")), "there is no {name}");
    }
}

/// The paths and texts of all Rust files of a folder of the project.
fn sources(folder: &str) -> Vec<(String, String)> {
    let entries = Path::new(ROOT).join(folder).read_dir().unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let read = |name: String| {
        let path = format!("{folder}/{name}");
        if Path::new(ROOT).join(&path).is_dir() {
            return sources(&path);
        }
        match path.ends_with(".rs") {
            true => vec![(path.clone(), fs::read_to_string(Path::new(ROOT).join(path)).unwrap())],
            false => Vec::new(),
        }
    };
    names.flat_map(read).collect()
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
