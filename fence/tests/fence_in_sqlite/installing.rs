//! Installing the fence, again.

use super::*;

#[tokio::test]
async fn installing_again_keeps_fences_and_protection() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("accounts.db");
    let sql = concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations/sqlite/fence/0001_fence.sql");
    let apply = || {
        let mut command = Command::new("sqlite3");
        command.arg("-bail").arg(&file).stdin(std::fs::File::open(sql).unwrap());
        let output = command.output().expect("sqlite3 is installed; the package sqlite3 has it");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    apply();
    apply();
    let mut database = settings_of(&file).connect().await.unwrap();
    attempt(&mut database, ACCOUNTS).await.unwrap();
    sqlite::install(&mut database).await.unwrap();
    sqlite::install(&mut database).await.unwrap();
    apply();
    let stale = presented(33, "a");
    let refused = attempt_and_roll_back(&mut database, &format!("{stale}{UPDATE}")).await;
    assert_eq!(refused.unwrap_err(), STALE);
    let valid = format!("begin immediate; {PRESENT}{UPDATE} {WITHDRAW} commit");
    attempt(&mut database, &valid).await.unwrap();
}
