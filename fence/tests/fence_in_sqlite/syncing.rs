//! Each commit of a claim is synced, and with it everything that the transaction has read.

use std::fs;

use super::*;

const CLAIM: &str = "insert into fence_claim values ('alice', 34, 'a');";
const READ: &str = "select balance from accounts where account_id = 'alice';";

/// A database with a write-ahead log that only grows.
struct Logged {
    folder: TempDir,
    database: SqliteConnection,
}

impl Logged {
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let mut database = settings_of(&folder.path().join("accounts.db")).connect().await.unwrap();
        sqlite::install(&mut database).await.unwrap();
        attempt(&mut database, ACCOUNTS).await.unwrap();
        let settings = "
            pragma journal_mode = wal; pragma wal_autocheckpoint = 0; pragma synchronous = full;";
        attempt(&mut database, settings).await.unwrap();
        Self { folder, database }
    }

    /// Commits a transaction, and returns how much that has written to the log. SQLite syncs the log
    /// exactly if that is something.
    async fn written_by(&mut self, statements: &str) -> u64 {
        let log = self.folder.path().join("accounts.db-wal");
        let length = || fs::metadata(&log).map_or(0, |log| log.len());
        let before = length();
        let transaction = format!("begin immediate; {statements} commit");
        attempt(&mut self.database, &transaction).await.unwrap();
        length() - before
    }
}

/// After a crash of a writer, SQLite shows what it has written and not synced. A claim that reads it must not
/// report it before it is synced.
#[tokio::test]
async fn each_claim_writes_to_the_log_also_if_the_fence_stays_as_it_is() {
    let mut logged = Logged::new().await;
    for claim in [CLAIM.to_owned(), format!("{PRESENT}{WITHDRAW}")] {
        for _ in 0..3 {
            assert!(logged.written_by(&format!("{claim}{READ}")).await > 0, "{claim}");
        }
    }
    let tokens = "select group_concat(resource || token || holder) from fence";
    assert_eq!(texts(&mut logged.database, tokens).await, ["alice34a"]);
    // The controls: a transaction that only reads writes nothing, nor does a claim that leaves its row.
    assert_eq!(logged.written_by(READ).await, 0);
    let rule = "select replace(sql, ', toggle = 1 - toggle', ' where token < new.token')
        from sqlite_schema where name = 'fence_claim_by_the_rule'";
    let [rule] = texts(&mut logged.database, rule).await.try_into().unwrap();
    let changed = format!("drop trigger fence_claim_by_the_rule; {rule}");
    attempt(&mut logged.database, &changed).await.unwrap();
    assert_eq!(logged.written_by(&format!("{CLAIM}{READ}")).await, 0);
}
