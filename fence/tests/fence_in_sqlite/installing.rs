//! Installing the fence, again, while clients write, and where there is one of another build.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
};

use sqlx::migrate::Migrator;

use super::*;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations/sqlite/fence");
const README: &str = include_str!("../../../migrations/README.md");
const SCHEMA: &str = "select group_concat(type || name || coalesce(sql, ''), char(10)) from (
    select * from sqlite_schema where name not like 'accounts%' order by name)";

/// The files in their order.
fn files() -> Vec<String> {
    let files = fs::read_dir(FOLDER).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = files.map(|path| path.display().to_string()).collect();
    files.sort();
    files
}

/// Applies the files as migrations/README.md says, or returns the error.
fn apply(file: &Path) -> Result<(), String> {
    let apply = format!(
        "(echo 'begin immediate;'; cat {FOLDER}/*.sql; echo 'commit;') |
         sqlite3 -bail -cmd '.timeout 30000' '{}'",
        file.display()
    );
    let output = Command::new("sh").args(["-c", &apply]).output().unwrap();
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

#[tokio::test]
async fn installing_again_keeps_fences_and_protection() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("accounts.db");
    apply(&file).unwrap();
    apply(&file).unwrap();
    let mut database = settings_of(&file).connect().await.unwrap();
    attempt(&mut database, ACCOUNTS).await.unwrap();
    attempt(&mut database, "insert into fence_protect values ('accounts', 'account_id')")
        .await
        .unwrap();
    execute_printed_sql(&mut database).await.unwrap();
    let schema = texts(&mut database, SCHEMA).await;
    sqlite::install(&mut database).await.unwrap();
    sqlite::install(&mut database).await.unwrap();
    apply(&file).unwrap();
    // Also in a transaction of the caller.
    attempt(&mut database, "begin").await.unwrap();
    for sql in files() {
        attempt(&mut database, &fs::read_to_string(sql).unwrap()).await.unwrap();
    }
    attempt(&mut database, "commit").await.unwrap();
    assert_eq!(texts(&mut database, SCHEMA).await, schema);
    assert_eq!(problem(&mut database).await, "");
    kept(&mut database).await;
}

/// By the statement of migrations/README.md, once the triggers of the tables are dropped.
#[tokio::test]
async fn removing_drops_the_fence_and_nothing_else() {
    let from = README.find("select format('drop").unwrap();
    let print = README[from..].split("```").next().unwrap();
    let mut database = settings("sqlite::memory:").connect().await.unwrap();
    let own = "create table fence_posts (id integer); create table accounts (account_id text);
        create trigger fence_moves after insert on fence_posts begin select 1; end";
    attempt(&mut database, own).await.unwrap();
    let schema = texts(&mut database, "select name from sqlite_schema order by name").await;
    sqlite::install(&mut database).await.unwrap();
    attempt(&mut database, "insert into fence_protect values ('accounts', 'account_id')")
        .await
        .unwrap();
    for drop in texts(&mut database, print).await {
        attempt(&mut database, &drop).await.expect(&drop);
    }
    assert_eq!(texts(&mut database, "select name from sqlite_schema order by name").await, schema);
}

#[tokio::test]
async fn migration_tool_applies_the_same_files() {
    let mut database = settings("sqlite::memory:").connect().await.unwrap();
    let migrator = Migrator::new(Path::new(FOLDER)).await.unwrap();
    migrator.run(&mut database).await.unwrap();
    attempt(&mut database, ACCOUNTS).await.unwrap();
    kept(&mut database).await;
    sqlite::install(&mut database).await.unwrap();
    kept(&mut database).await;
    assert_eq!(number(&mut database, "select version from fence_version").await, 7);
}

#[tokio::test]
async fn installing_again_repairs_what_is_damaged() {
    let mut database = accounts().await;
    let schema = texts(&mut database, SCHEMA).await;
    for damage in [
        "drop view fence_version",
        "drop view fence_claim",
        "drop view fence_status; drop view fence_protect_sql; drop view fence_trigger",
        "drop view fence_require; create view fence_require (protected, resource) as select 1, 2",
        "drop trigger fence_claim_by_the_rule; create trigger fence_claim_by_the_rule
         instead of insert on fence_claim begin select 1; end",
        "drop trigger fence_is_not_lowered",
        "drop trigger fence_presented_claims; drop trigger fence_presented_is_not_changed",
        "drop table fence_reports",
    ] {
        attempt(&mut database, damage).await.unwrap();
        assert_ne!(texts(&mut database, SCHEMA).await, schema, "{damage}");
        sqlite::install(&mut database).await.unwrap();
        assert_eq!(texts(&mut database, SCHEMA).await, schema, "{damage}");
        kept(&mut database).await;
    }
}

/// So is a later version applied. No write is lost, and no older token accepted.
#[tokio::test(flavor = "multi_thread")]
async fn installing_again_does_no_harm_while_clients_write() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("accounts.db");
    let mut database = settings_of(&file).connect().await.unwrap();
    attempt(&mut database, "pragma journal_mode = wal").await.unwrap();
    sqlite::install(&mut database).await.unwrap();
    attempt(&mut database, ACCOUNTS).await.unwrap();
    attempt(&mut database, "insert into fence_protect values ('accounts', 'account_id')")
        .await
        .unwrap();
    execute_printed_sql(&mut database).await.unwrap();

    let increment = "update accounts set balance = balance + 1 where account_id = 'alice';";
    let writers = [(PRESENT, true), ("", false)].map(|(offer, is_valid)| {
        let file = file.clone();
        tokio::spawn(async move {
            let mut database = settings_of(&file).connect().await.unwrap();
            let mut written = 0;
            while !IS_OVER.load(Ordering::Relaxed) {
                attempt(&mut database, "begin immediate").await.unwrap();
                let write = format!("{offer}{increment}{WITHDRAW}");
                let outcome = attempt(&mut database, &write).await;
                let end = if outcome.is_ok() { "commit" } else { "rollback" };
                attempt(&mut database, end).await.unwrap();
                match is_valid {
                    true => outcome.unwrap(),
                    false => assert_eq!(outcome.unwrap_err(), TOKEN_REQUIRED),
                }
                attempt(&mut database, "begin immediate").await.unwrap();
                let stale = attempt(&mut database, &presented(33, "a")).await;
                attempt(&mut database, "rollback").await.unwrap();
                assert_eq!(stale.unwrap_err(), STALE);
                written += 1;
            }
            written
        })
    });
    for _ in 0..20 {
        sqlite::install(&mut database).await.unwrap();
        apply(&file).unwrap();
    }
    IS_OVER.store(true, Ordering::Relaxed);
    let [valid, rejected] = writers;
    let (valid, rejected): (i64, i64) = (valid.await.unwrap(), rejected.await.unwrap());
    assert!(valid > 0 && rejected > 0, "{valid} {rejected}");
    let balance = "select balance - 100 from accounts where account_id = 'alice'";
    assert_eq!(number(&mut database, balance).await, valid);
    assert_eq!(problem(&mut database).await, "");

    // The control: without a transaction around them, the files would let an older token in for a moment.
    attempt(&mut database, "drop trigger fence_presented_claims").await.unwrap();
    attempt_and_roll_back(&mut database, &presented(33, "a")).await.unwrap();
}

/// What earlier builds had of the fence's table and version.
const EARLIER: [&str; 4] = [
    "create table fence (resource text not null primary key, token integer not null, holder text not null)
     strict, without rowid;",
    "create table fence (resource text not null primary key, token integer not null, holder text not null)
     strict, without rowid; create view fence_version (version) as select 3;",
    "create table fence (resource text not null primary key, token integer not null, holder text not null,
     toggle integer not null default 0); create view fence_version (version) as select 6;",
    // A later one.
    "create table fence (resource text not null primary key, token integer not null, holder text not null,
     toggle integer not null default 0); create view fence_version (version) as select 8;",
];

/// The statements are those of the error.
#[tokio::test]
async fn fence_of_another_build_is_rejected_and_its_fences_are_carried_over() {
    for earlier in EARLIER {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("accounts.db");
        let mut database = settings_of(&file).connect().await.unwrap();
        attempt(&mut database, earlier).await.unwrap();
        let fences = "insert into fence (resource, token, holder) values ('alice', 34, 'a')";
        attempt(&mut database, fences).await.unwrap();
        let schema = texts(&mut database, SCHEMA).await;
        let error = sqlite::install(&mut database).await.unwrap_err().to_string();
        let from_shell = apply(&file).unwrap_err();
        for error in [&error, &from_shell] {
            assert!(error.contains("a fence of another build, and nothing was changed"), "{error}");
        }
        assert_eq!(texts(&mut database, SCHEMA).await, schema, "nothing was changed");

        let step = |number| {
            let (_, step) = error.split_once(&format!("\n{number}. ")).unwrap();
            step.lines().next().unwrap().to_owned()
        };
        attempt(&mut database, &step(1)).await.unwrap();
        attempt(&mut database, "drop table fence; drop view if exists fence_version")
            .await
            .unwrap();
        sqlite::install(&mut database).await.unwrap();
        attempt(&mut database, &step(4)).await.unwrap();
        attempt(&mut database, &ACCOUNTS.replace("insert into fence_claim", "--")).await.unwrap();
        kept(&mut database).await;
    }
}

/// The fence of alice is at token 34 of holder a, and protects her row.
async fn kept(database: &mut SqliteConnection) {
    for (offered, expected) in [
        (String::new(), TOKEN_REQUIRED),
        (presented(33, "a"), STALE),
        (presented(34, "b"), HOLDER_CONFLICT),
    ] {
        let rejected = attempt_and_roll_back(database, &format!("{offered}{UPDATE}")).await;
        assert_eq!(rejected.unwrap_err(), expected);
    }
    let valid = format!("begin immediate; {PRESENT}{UPDATE} {WITHDRAW} commit");
    attempt(database, &valid).await.unwrap();
}
