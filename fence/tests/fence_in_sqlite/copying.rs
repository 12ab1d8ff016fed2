//! Copies of a database keep its fences, also copies of a part that takes the fence along.

use super::*;

/// A file with the fence of alice at token 34, and the protected table `accounts`.
async fn original(folder: &TempDir) -> (std::path::PathBuf, SqliteConnection) {
    let file = folder.path().join("accounts.db");
    let mut database = settings_of(&file).connect().await.unwrap();
    attempt(&mut database, "pragma journal_mode = wal").await.unwrap();
    sqlite::install(&mut database).await.unwrap();
    attempt(&mut database, ACCOUNTS).await.unwrap();
    attempt(&mut database, "create table others (id text); insert into others values ('x')")
        .await
        .unwrap();
    let note = "insert into fence_protect values ('accounts', 'account_id')";
    attempt(&mut database, note).await.unwrap();
    execute_printed_sql(&mut database).await.unwrap();
    (file, database)
}

/// The ways that migrations/README.md names.
#[tokio::test]
async fn copy_keeps_fences_notes_and_triggers() {
    for way in [".dump", ".dump accounts 'fence%'", "vacuum into", ".backup"] {
        let folder = TempDir::new().unwrap();
        let (file, _open) = original(&folder).await;
        let copy = folder.path().join("copy.db");
        match way {
            "vacuum into" => shell(&file, &format!("vacuum into '{}'", copy.display())),
            ".backup" => shell(&file, &format!(".backup '{}'", copy.display())),
            dump => shell(&copy, &shell(&file, dump)),
        };
        let mut database = settings_of(&copy).connect().await.unwrap();
        if way == ".dump accounts 'fence%'" {
            // The triggers have names of their own, which a dump of a part leaves out.
            assert_eq!(problem(&mut database).await, "missing");
            execute_printed_sql(&mut database).await.unwrap();
        }
        assert_eq!(problem(&mut database).await, "", "{way}");
        let balances = "select group_concat(account_id || balance, ' ') from accounts";
        assert_eq!(texts(&mut database, balances).await, ["alice100 bob100"], "{way}");
        assert_eq!(attempt(&mut database, UPDATE).await.unwrap_err(), TOKEN_REQUIRED, "{way}");
        assert_eq!(attempt(&mut database, &presented(33, "a")).await.unwrap_err(), STALE, "{way}");
        let valid = format!("begin immediate; {PRESENT}{UPDATE}{WITHDRAW} commit");
        attempt(&mut database, &valid).await.expect(way);
        // The files may be applied to it.
        sqlite::install(&mut database).await.unwrap();
        assert_eq!(attempt(&mut database, &presented(33, "a")).await.unwrap_err(), STALE, "{way}");
    }
}

#[tokio::test]
async fn dump_of_a_table_alone_has_no_fence() {
    let folder = TempDir::new().unwrap();
    let (file, _open) = original(&folder).await;
    let copy = folder.path().join("copy.db");
    shell(&copy, &shell(&file, ".dump accounts"));
    let mut database = settings_of(&copy).connect().await.unwrap();
    attempt(&mut database, UPDATE).await.expect("nothing protects it");
    // With a fresh fence, 33 is accepted after 34.
    sqlite::install(&mut database).await.unwrap();
    let note = "insert into fence_protect values ('accounts', 'account_id')";
    attempt(&mut database, note).await.unwrap();
    execute_printed_sql(&mut database).await.unwrap();
    assert_eq!(attempt(&mut database, UPDATE).await.unwrap_err(), TOKEN_REQUIRED);
    let older = PRESENT.replace("34", "33");
    let older = format!("begin immediate; {older}{UPDATE}{WITHDRAW} commit");
    attempt(&mut database, &older).await.unwrap();
}
