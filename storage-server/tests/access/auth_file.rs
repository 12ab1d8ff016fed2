//! The file of identities: what it keeps, and its changes under a running server.

use std::{fs, os::unix::fs::PermissionsExt, process::Command, time::Instant};

use serde_json::json;
use testbed::{StorageServer, wait::until_async};

use super::{Guarded, IN_FORCE, ask};
use crate::logs::is_logged;

async fn is_known(server: &StorageServer, bearer: &str) -> bool {
    ask(server, bearer, "GET", "/v1/fences/orders/none", None).await.status != 401
}

#[tokio::test]
async fn changed_file_is_in_force_within_ten_seconds() {
    let guarded = Guarded::new();
    let first = guarded.identity("first", &["--prefix", "", "--allow", "read,operate"]).await;
    let server = guarded.serve().await;
    let before = fs::read_to_string(guarded.auth_file()).unwrap();
    assert!(is_known(&server, &first).await);

    let second = guarded.identity("second", &["--prefix", "", "--allow", "read"]).await;
    assert!(!is_known(&server, &second).await, "the file has not been read yet");
    until_async(IN_FORCE, async || Ok(is_known(&server, &second).await)).await.unwrap();
    assert!(is_known(&server, &first).await);

    // A broken file lets nobody new in, and nobody who was known loses anything.
    let added = fs::read_to_string(guarded.auth_file()).unwrap();
    let elsewhere = Guarded::new();
    let third = elsewhere.identity("third", &["--prefix", "", "--allow", "read"]).await;
    let with_third = added.clone() + &fs::read_to_string(elsewhere.auth_file()).unwrap();
    fs::write(guarded.auth_file(), format!("{with_third}\ncolour = \"red\"\n")).unwrap();
    let is_broken = async || {
        let ready = ask(&server, &first, "GET", "/readyz", None).await;
        Ok(ready.json()["auth_file"].as_str().is_some_and(|fault| fault.contains("colour")))
    };
    until_async(IN_FORCE, is_broken).await.unwrap();
    assert_eq!(ask(&server, &first, "GET", "/readyz", None).await.status, 200);
    assert!(is_known(&server, &first).await && is_known(&server, &second).await);
    assert!(!is_known(&server, &third).await);
    is_logged(&server, "colour").await;

    // A missing file changes as little.
    fs::remove_file(guarded.auth_file()).unwrap();
    let is_missing = async || {
        let ready = ask(&server, &first, "GET", "/readyz", None).await;
        Ok(ready.json()["auth_file"].as_str().is_some_and(|fault| fault.contains("No such file")))
    };
    until_async(IN_FORCE, is_missing).await.unwrap();
    assert!(is_known(&server, &first).await && is_known(&server, &second).await);

    // An identity that is not in the repaired file is unknown.
    assert_ne!(before, added);
    fs::write(guarded.auth_file(), &before).unwrap();
    let removed = Instant::now();
    until_async(IN_FORCE, async || Ok(!is_known(&server, &second).await)).await.unwrap();
    assert!(removed.elapsed() < IN_FORCE);
    let ready = ask(&server, &first, "GET", "/readyz", None).await;
    assert_eq!(ready.json()["auth_file"], json!(null));
}

#[tokio::test]
async fn server_does_not_start_with_a_file_that_it_can_not_trust() {
    let guarded = Guarded::new();
    let path = guarded.auth_file();
    let start = async || {
        let arguments = ["--listen", "127.0.0.1:0", "--auth-file", path.to_str().unwrap()];
        guarded.database.run(&arguments).await
    };
    // A wrong option: another try fails as well.
    let missing = start().await;
    assert_eq!(missing.code, Some(2), "{missing:?}");
    assert!(missing.stderr.contains("which does not exist"), "{missing:?}");
    guarded.identity("first", &["--prefix", "", "--allow", "read"]).await;
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("allow", "allows")).unwrap();
    let error = start().await.failed();
    assert!(error.contains("auth.toml") && error.contains("unknown field `allows`"), "{error}");
    fs::write(&path, &text).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
    let error = start().await.failed();
    assert!(error.contains("all users of this machine may write to it"), "{error}");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    guarded.serve().await;
    // Reading it would wait for ever.
    fs::remove_file(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let error = start().await.failed();
    assert!(error.contains("it is not a regular file"), "{error}");
}

#[tokio::test]
async fn new_identity_is_printed_once_and_kept_as_a_hash() {
    let guarded = Guarded::new();
    let path = guarded.auth_file();
    let one = ["--prefix", "orders/", "--allow", "read,write", "--token-ceiling", "1d"];
    let bearer = guarded.identity("one", &one).await;
    assert!(bearer.len() == 64 && bearer.bytes().all(|byte| byte.is_ascii_hexdigit()), "{bearer}");
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains(&bearer));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    let new = ["auth", "new", "--auth-file", path.to_str().unwrap(), "--name", "one"];
    let again = guarded.database.run(&[&new[..], &one[..]].concat()).await.failed();
    assert!(again.contains("\"one\" is there twice"), "{again}");
    let typo = [&new[..], &["--prefix", "a", "--allow", "wirte"]].concat();
    assert_eq!(guarded.database.run(&typo).await.code, Some(2));
    assert_eq!(fs::read_to_string(&path).unwrap(), text, "nothing was added");
}
