//! Settings of a connection, and two connections at once.

use super::*;

#[tokio::test]
async fn connection_without_its_settings_can_not_write() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("accounts.db");
    let mut database = settings_of(&file).connect().await.unwrap();
    sqlite::install(&mut database).await.unwrap();
    attempt(&mut database, ACCOUNTS).await.unwrap();
    for setting in ["foreign_keys", "recursive_triggers"] {
        let mut careless = settings_of(&file).pragma(setting, "off").connect().await.unwrap();
        for write in [
            UPDATE,
            "replace into accounts values ('alice', 7)",
            "delete from accounts",
            "insert into accounts values ('carol', 7)",
        ] {
            let write = format!("{PRESENT}{write}");
            let rejected = attempt_and_roll_back(&mut careless, &write).await;
            assert_eq!(rejected.unwrap_err(), SETTING_NEEDED, "{setting}");
        }
    }
    // A token that a connection without foreign keys presents does not stay for others.
    let mut careless = settings_of(&file).pragma("foreign_keys", "off").connect().await.unwrap();
    assert_eq!(attempt(&mut careless, PRESENT).await.unwrap_err(), SETTING_NEEDED);
    assert_eq!(attempt(&mut database, UPDATE).await.unwrap_err(), TOKEN_REQUIRED);
}

#[tokio::test]
async fn second_writer_waits_and_sees_what_the_first_wrote() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("accounts.db");
    let mut first = settings_of(&file).connect().await.unwrap();
    sqlite::install(&mut first).await.unwrap();
    attempt(&mut first, ACCOUNTS).await.unwrap();
    let mut second = settings_of(&file).connect().await.unwrap();
    let write = format!("begin immediate; {PRESENT}{UPDATE} {WITHDRAW}");
    attempt(&mut first, &write).await.unwrap();
    let at_once = "pragma busy_timeout = 0; begin immediate";
    assert_eq!(attempt(&mut second, at_once).await.unwrap_err(), "database", "it is locked");
    attempt(&mut second, "pragma busy_timeout = 20000").await.unwrap();

    let waiting = tokio::spawn(async move {
        let claim = "begin immediate; insert into fence_claim values ('alice', 35, 'b')";
        attempt(&mut second, claim).await.unwrap();
        let balance = "select balance from accounts where account_id = 'alice'";
        number(&mut second, balance).await
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!waiting.is_finished());
    attempt(&mut first, "commit").await.unwrap();
    assert_eq!(waiting.await.unwrap(), 7);
}

/// The negative control of the test above, and why it says `immediate`.
#[tokio::test]
async fn deferred_transaction_that_has_read_can_not_claim_after_another_write() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("accounts.db");
    let wal = settings_of(&file).journal_mode(sqlx::sqlite::SqliteJournalMode::Wal);
    let mut first = wal.connect().await.unwrap();
    sqlite::install(&mut first).await.unwrap();
    attempt(&mut first, ACCOUNTS).await.unwrap();
    let mut second = wal.connect().await.unwrap();
    attempt(&mut second, "begin").await.unwrap();
    let balance = "select balance from accounts where account_id = 'alice'";
    assert_eq!(number(&mut second, balance).await, 100);
    let write = format!("begin immediate; {PRESENT}{UPDATE} {WITHDRAW} commit");
    attempt(&mut first, &write).await.unwrap();
    assert_eq!(number(&mut second, balance).await, 100, "it is 7 by now");
    let claim = "insert into fence_claim values ('alice', 35, 'b')";
    assert_eq!(attempt(&mut second, claim).await.unwrap_err(), "database");
}
