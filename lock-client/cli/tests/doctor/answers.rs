//! The text of the doctor, and its exit codes if there is nothing to examine.

use std::process::Output;

use testbed::Redis;

use super::doctor;

#[tokio::test]
async fn redis_that_rejects_the_database_has_answered() {
    let redis = Redis::start_on_tcp(&[]).await.unwrap();
    let rules = ["ACL", "SETUSER", "bob", "reset", "on", ">secret", "~*", "&*", "+@all", "-select"];
    redis.command::<()>(&rules).await.unwrap();
    let url = format!("{}/1", redis.url_as("bob", "secret"));
    let output = doctor(&["--locks", &url]).await;
    assert_fails(&output, 69, " rejected the connection: Redis server refused to switch database");
    let other = url.replace("/1", "/0");
    assert_ne!(doctor(&["--locks", &other]).await.status.code(), Some(69), "the control");
}

#[tokio::test]
async fn redis_that_does_not_answer_is_69() {
    let mut redis = Redis::start_with(&["--requirepass", "secret"]).await.unwrap();
    for (url, reason) in [
        (redis.url(), "Authentication required"),
        (redis.url_as("default", "wrong"), "rejected the password"),
        ("redis://127.0.0.1:1".to_owned(), "no answer from Redis at 127.0.0.1:1"),
        (
            "redis+sentinel://bob:secret@127.0.0.1:1/locks".to_owned(),
            "no answer from Redis at primary locks of the Sentinels 127.0.0.1:1",
        ),
    ] {
        let output = doctor(&["--locks", &url]).await;
        assert_fails(&output, 69, reason);
        assert!(!format!("{output:?}").contains("secret"), "{output:?}");
    }
    let url = redis.url_as("default", "secret");
    assert_eq!(doctor(&["--locks", &url]).await.status.code(), Some(4), "nothing is kept on disk");
    redis.process().pause().await.unwrap();
    assert_fails(&doctor(&["--locks", &url]).await, 69, "no answer from Redis");
    redis.process().kill().unwrap();
    assert_fails(&doctor(&["--locks", &url]).await, 69, "no answer from Redis");
}

#[tokio::test]
async fn wrong_usage_of_the_doctor_is_64() {
    assert_fails(&doctor(&[]).await, 64, "--locks");
    assert_fails(&doctor(&["--locks", "nonsense"]).await, 64, "begins with its scheme");
    assert_fails(&doctor(&["--locks", "redis://127.0.0.1:1", "--loudly"]).await, 64, "--loudly");
}

#[tokio::test]
async fn text_shows_cures_and_no_password() {
    let redis = Redis::start_with(&["--requirepass", "open-sesame"]).await.unwrap();
    let output = doctor(&["--locks", &redis.url_as("default", "open-sesame")]).await;
    let text = String::from_utf8(output.stdout).unwrap();
    for line in [
        "as user default",
        "UNFIT FOR FENCE  appendonly: no: nothing is kept on disk",
        "CONFIG SET appendfsync always",
        "in redis.conf, too",
        "ok               locking: user default acquired, renewed and released a lock",
        "Locks kept here need a storage that checks token and holder",
    ] {
        assert!(text.contains(line), "{line:?} is in {text}");
    }
    assert!(!text.contains("sesame"), "{text}");
}

#[track_caller]
fn assert_fails(output: &Output, code: i32, reason: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(reason), "{reason:?} is in {stderr:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
}
