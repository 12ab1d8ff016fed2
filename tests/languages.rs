//! The fence in PostgreSQL from other languages: the programs in `tests/languages`, each of
//! which asserts what it claims. None of them needs Rust, so `psql` installs the fence.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use sqlx::{Connection, PgConnection};
use testbed::Postgres;

/// The command that runs a program on the database with this URL.
type Program = fn(&str) -> Command;

const MIGRATIONS: &str = "migrations/postgres/fence";

/// The programs run as a user who owns nothing, and has the rights that an application needs.
const ACCOUNTS: &str = "
    create table accounts (account_id text primary key, balance integer not null);
    insert into accounts values ('alice', 100);
    create role application login;
    grant usage on schema fence to application;
    grant select, insert, update, delete on accounts to application;
";
const PROTECT: &str = "select fence.protect('accounts', 'account_id')";

#[tokio::test]
async fn psql_writes_with_its_token_and_is_rejected_with_an_older_one() {
    is_right_in_the_end(psql).await;
}

#[tokio::test]
async fn psycopg_writes_with_its_token_and_is_rejected_with_an_older_one() {
    is_right_in_the_end(psycopg).await;
}

#[tokio::test]
async fn sqlalchemy_writes_with_its_token_and_is_rejected_with_an_older_one() {
    is_right_in_the_end(sqlalchemy).await;
}

#[tokio::test]
async fn node_writes_with_its_token_and_is_rejected_with_an_older_one() {
    is_right_in_the_end(node).await;
}

/// The negative control: without the protection, the stale write of the same programs goes through,
/// and they see it.
#[tokio::test]
async fn stale_write_goes_through_where_the_table_is_not_protected() {
    for program in [psql as Program, psycopg, sqlalchemy, node] {
        let postgres = with_accounts().await;
        let output = run(program, &postgres).await;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{stderr}");
        assert!(stderr.contains("the write with token 33 was not rejected"), "{stderr}");
        let mut connection = PgConnection::connect(&postgres.url()).await.unwrap();
        assert_eq!(balance(&mut connection).await, 0, "the stale write is there: {stderr}");
    }
}

/// Runs a program on a protected table, and checks the table afterwards from outside.
async fn is_right_in_the_end(program: Program) {
    let postgres = with_accounts().await;
    let mut connection = PgConnection::connect(&postgres.url()).await.unwrap();
    sqlx::raw_sql(PROTECT).execute(&mut connection).await.unwrap();

    let output = run(program, &postgres).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    assert_eq!(balance(&mut connection).await, 75, "70 by a write, and 5 by a read and a write");
    let fences: Vec<(String, i64, String)> =
        sqlx::query_as("select resource, token, holder from fence.fence")
            .fetch_all(&mut connection)
            .await
            .unwrap();
    assert_eq!(fences, [("alice".to_owned(), 34, "me".to_owned())]);
}

/// A PostgreSQL with the fence, and accounts that are not protected yet.
async fn with_accounts() -> Postgres {
    let postgres = Postgres::start().await.unwrap();
    let mut install = psql_on(&postgres.url());
    install.args(["--set=ON_ERROR_STOP=1", "--single-transaction"]);
    let files = fs::read_dir(root().join(MIGRATIONS)).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    for file in files {
        install.arg("--file").arg(file);
    }
    let output = output(install).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let mut connection = PgConnection::connect(&postgres.url()).await.unwrap();
    sqlx::raw_sql(ACCOUNTS).execute(&mut connection).await.unwrap();
    postgres
}

async fn balance(connection: &mut PgConnection) -> i32 {
    sqlx::query_scalar("select balance from accounts where account_id = 'alice'")
        .fetch_one(connection)
        .await
        .unwrap()
}

async fn run(program: Program, postgres: &Postgres) -> Output {
    output(program(&postgres.url().replace("//postgres@", "//application@"))).await
}

/// Runs a command to its end.
pub(crate) async fn output(mut command: Command) -> Output {
    let run = move || {
        command.output().unwrap_or_else(|error| {
            let program = command.get_program().display();
            panic!("{program}: {error}; `make postgresql python node` installs what is missing")
        })
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

fn psql(url: &str) -> Command {
    let mut command = psql_on(url);
    command.arg("--file").arg(source("account.sql"));
    command
}

fn psycopg(url: &str) -> Command {
    python("account.py", url)
}

fn sqlalchemy(url: &str) -> Command {
    python("account_sqlalchemy.py", url)
}

/// The program comes by stdin, as its imports are then looked for in the working folder, and not
/// where the program is.
fn node(url: &str) -> Command {
    let mut command = Command::new("node");
    command.args(["--input-type=module", "-"]).env("DATABASE_URL", url);
    command.current_dir(drivers("node")).stdin(File::open(source("account.mjs")).unwrap());
    command
}

fn psql_on(url: &str) -> Command {
    let mut command = Command::new("psql");
    command.args(["--no-psqlrc", "--quiet", "--dbname", url]);
    command
}

fn python(program: &str, url: &str) -> Command {
    let mut command = Command::new(drivers("python").join("bin/python"));
    command.arg(source(program)).env("DATABASE_URL", url);
    command
}

/// Where the Makefile puts the drivers of a language.
pub(crate) fn drivers(language: &str) -> PathBuf {
    let folder = root().join("target").join(language);
    let is_installed = folder.join("installed").exists();
    assert!(is_installed, "no drivers for {language} are here; `make {language}` installs them");
    folder
}

fn source(program: &str) -> PathBuf {
    root().join("tests/languages").join(program)
}

pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
