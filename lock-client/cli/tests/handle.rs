//! `lock-client acquire`, `renew` and `release`: a lock that scripts pass from one to the next.

use std::{
    io::Write,
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::Stdio,
};

use lock_client::Ttl;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testbed::{
    Redis,
    wait::{until, until_async},
};

use crate::{
    command::{
        BUSY, LOST, PATIENCE, assert_failed, code, command, events, lock_client, locks, output,
        unix_millis,
    },
    names::name,
};

/// Acquires `r`, and returns its handle.
async fn acquire(redis: &Redis, options: &[&str]) -> Value {
    let url = redis.url();
    let output = lock_client(&[&["acquire", "r", "--locks", &url], options].concat()).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let [handle] = events(&output).try_into().unwrap();
    handle
}

async fn held(redis: &Redis) -> bool {
    locks(redis).status(&name("r")).await.unwrap().held.is_some()
}

#[tokio::test]
async fn handle_passes_a_lock_from_one_process_to_the_next() {
    let redis = Redis::start().await.unwrap();
    redis.set("fenced:{r}:token", "32").await.unwrap();
    let url = redis.url();
    let before = unix_millis();
    let handle = acquire(&redis, &["--ttl", "60s"]).await;
    let deadline = handle["deadline_ms"].as_u64().unwrap();
    assert!((before + 50_000..=unix_millis() + 60_000).contains(&deadline), "{deadline}");
    let holder = handle["holder"].as_str().unwrap();
    let expected = json!({
        "name": "r", "token": 33, "holder": holder, "grant": 33, "ttl_ms": 60_000,
        "deadline_ms": deadline,
    });
    assert_eq!(handle, expected);
    let lock: String = redis.command(&["GET", "fenced:{r}:lock"]).await.unwrap();
    assert!(lock.starts_with(&format!("33 33 {holder} ")), "the lock stays held: {lock}");
    let busy = lock_client(&["acquire", "r", "--locks", &url, "--no-wait"]).await;
    assert_failed(&busy, 75, BUSY);

    let text = handle.to_string();
    let renewed = lock_client(&["renew", &text, "--locks", &url, "--ttl", "10m"]).await;
    let [renewed] = events(&renewed).try_into().unwrap();
    assert_eq!((&renewed["token"], &renewed["ttl_ms"]), (&json!(33), &json!(600_000)));
    assert!(renewed["deadline_ms"].as_u64().unwrap() > before + 500_000);
    let remaining: u64 = redis.command(&["PTTL", "fenced:{r}:lock"]).await.unwrap();
    assert!(remaining > 500_000, "{remaining}");

    let released = lock_client(&["release", &renewed.to_string(), "--locks", &url]).await;
    assert_eq!(released.status.code(), Some(0), "{released:?}");
    assert!(!held(&redis).await);
    let again = lock_client(&["release", &text, "--locks", &url]).await;
    assert_failed(&again, 79, LOST);
}

#[tokio::test]
async fn handle_of_a_lost_lock_is_79_and_touches_nothing() {
    let redis = Redis::start().await.unwrap();
    let url = redis.url();
    let handle = acquire(&redis, &["--ttl", "3s"]).await.to_string();
    // The negative control of renewal: without one, the lock expires.
    until_async(PATIENCE, || async { Ok(!held(&redis).await) }).await.unwrap();
    for command in ["renew", "release"] {
        let lost = lock_client(&[command, &handle, "--locks", &url]).await;
        assert_failed(&lost, 79, LOST);
        assert!(lost.stdout.is_empty());
    }
    let other = locks(&redis).acquire(&name("r"), Ttl::from_secs(60).unwrap()).await.unwrap();
    for command in ["renew", "release"] {
        let lost = lock_client(&[command, &handle, "--locks", &url]).await;
        assert_failed(&lost, 79, LOST);
    }
    assert!(other.renew().await.is_ok(), "the other client's lock is untouched");
}

#[tokio::test]
async fn renewed_handle_has_the_token_of_a_reissue() {
    let redis = Redis::start().await.unwrap();
    redis.set("fenced:{r}:token", "32").await.unwrap();
    let handle = acquire(&redis, &[]).await;
    let holder = handle["holder"].as_str().unwrap();
    // The lock after a reissue.
    let _: String = redis
        .command(&["SET", "fenced:{r}:lock", &format!("40 33 {holder}"), "KEEPTTL"])
        .await
        .unwrap();
    let url = redis.url();
    let renewed = lock_client(&["renew", &handle.to_string(), "--locks", &url]).await;
    let [renewed] = events(&renewed).try_into().unwrap();
    assert_eq!((&renewed["token"], &renewed["grant"]), (&json!(40), &json!(33)));
}

#[tokio::test]
async fn handle_is_read_from_stdin_where_other_users_do_not_see_it() {
    let redis = Redis::start().await.unwrap();
    let script = r#"set -e; handle=$("$0" acquire r --locks "$1")
        handle=$(echo "$handle" | "$0" renew - --locks "$1")
        echo "$handle" | "$0" release - --locks "$1""#;
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script]).arg(command(&[]).get_program()).arg(redis.url());
    let output = output(shell).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!held(&redis).await);
}

#[tokio::test]
async fn lock_whose_handle_cannot_be_printed_is_released() {
    let redis = Redis::start().await.unwrap();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut acquire = command(&["acquire", "r", "--locks", &redis.url()]);
    acquire.stdout(full).stderr(Stdio::piped());
    let child = acquire.spawn().unwrap();
    let output =
        tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    assert_failed(&output, 74, "can't print");
    assert!(!held(&redis).await);
}

#[tokio::test]
async fn acquire_without_stdout_fails_and_leaves_the_lock_free() {
    let redis = Redis::start().await.unwrap();
    let acquire = |redirection: &str| {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &format!(r#""$0" acquire r --locks "$1" {redirection}"#)]);
        shell.arg(command(&[]).get_program()).arg(redis.url());
        output(shell)
    };
    assert_failed(&acquire(">&-").await, 74, "stdout is closed");
    assert!(!held(&redis).await);
    // The control: a handle may be thrown away, for a lock that stays until its ttl ends.
    assert_eq!(acquire("> /dev/null").await.status.code(), Some(0));
    assert!(held(&redis).await);
}

/// A full stdout, and the reader that keeps it open.
pub(crate) fn full_stdout() -> (Stdio, UnixStream) {
    let (mut stdout, reader) = UnixStream::pair().unwrap();
    stdout.set_nonblocking(true).unwrap();
    while stdout.write(&[b'\n'; 1024]).is_ok() {}
    stdout.set_nonblocking(false).unwrap();
    (OwnedFd::from(stdout).into(), reader)
}

#[tokio::test]
async fn signal_ends_an_acquire_whose_handle_nobody_reads_and_releases_the_lock() {
    let redis = Redis::start().await.unwrap();
    let (stdout, _reader) = full_stdout();
    let mut child =
        command(&["acquire", "r", "--locks", &redis.url()]).stdout(stdout).spawn().unwrap();
    until_async(PATIENCE, || async { Ok(held(&redis).await) }).await.unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let ended = until(PATIENCE, || Ok(child.try_wait()?.is_some())).await;
    child.kill().unwrap();
    ended.unwrap();
    assert_eq!(code(child.wait().unwrap()), 143);
    assert!(!held(&redis).await);
}

#[tokio::test]
async fn signal_ends_an_acquire_that_waits_and_leaves_nothing_behind() {
    let redis = Redis::start().await.unwrap();
    let locks = locks(&redis);
    let lease = locks.acquire(&name("r"), Ttl::from_secs(60).unwrap()).await.unwrap();
    let queued = async || locks.status(&name("r")).await.unwrap().queued;
    let mut waiting = command(&["acquire", "r", "--fair", "--locks", &redis.url()]);
    let mut child = waiting.stdout(Stdio::null()).spawn().unwrap();
    until_async(PATIENCE, || async { Ok(queued().await == 1) }).await.unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let status = tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap();
    assert_eq!(code(status), 143);
    assert_eq!(queued().await, 0);
    lease.release().await.unwrap();
}

#[tokio::test]
async fn malformed_handle_is_64_and_shows_no_holder() {
    let holder = "0123456789abcdef0123456789abcdef";
    let handle = json!({
        "name": "r", "token": 33, "holder": holder, "grant": 33, "ttl_ms": 60_000, "deadline_ms": 1,
    });
    let handle = handle.to_string();
    let in_quotes = json!(handle).to_string();
    let split = handle.replace("\"r\"", "\"a b\"").replace("}", "");
    let words: Vec<_> = split.split(' ').collect();
    let url = "redis://127.0.0.1:1";
    let split = lock_client(&[&["release"], &words[..], &["--locks", url]].concat()).await;
    assert_failed(&split, 64, "EOF while parsing");
    assert!(!String::from_utf8_lossy(&split.stderr).contains(&holder[..8]), "{split:?}");
    for (handle, reason) in [
        ("x", "expected value"),
        ("{}", "a field is missing or wrong"),
        ("-", "EOF while parsing"),
        (handle.trim_end_matches('}'), "EOF while parsing"),
        (&format!("{handle}}}"), "trailing characters"),
        (&in_quotes, "a field is missing or wrong"),
        (&handle.replace("33", "0"), "a field is missing or wrong"),
        (&handle.replace("60000", "1"), "the ttl_ms of the handle is wrong"),
    ] {
        for command in ["renew", "release"] {
            let wrong = lock_client(&[command, handle, "--locks", url]).await;
            assert_failed(&wrong, 64, reason);
            assert!(!String::from_utf8_lossy(&wrong.stderr).contains(&holder[..8]), "{wrong:?}");
        }
    }
}

/// An argument may be in the wrong place, and the terminal's text may be logged.
#[tokio::test]
async fn error_of_a_misplaced_argument_shows_no_secret() {
    let handle = r#"{"name":"r","token":33,"holder":"secret","grant":33,"ttl_ms":60000}"#;
    let url = "redis://:secret@localhost";
    for arguments in [
        &["renew", "-", "--ttl", handle][..],
        &["break", "r", "--token", handle],
        &["status", "r", handle],
        &["status", "r", "--answer-timeout", url],
        &["status", "r", url],
        &[handle],
        &[url, "status", "r"],
    ] {
        let wrong = lock_client(arguments).await;
        assert_failed(&wrong, 64, "");
        let text = String::from_utf8_lossy(&wrong.stderr);
        assert!(!text.contains("secret"), "{arguments:?}: {text}");
    }
    // The control: what is no secret is shown.
    let wrong = lock_client(&["renew", "-", "--ttl", "soon"]).await;
    assert_failed(&wrong, 64, "'soon' for '--ttl <DURATION>'");
}

/// The name of a lock is printed, and a handle has the holder.
#[tokio::test]
async fn handle_is_not_taken_for_a_name() {
    let redis = Redis::start().await.unwrap();
    let (url, handle) = (redis.url(), acquire(&redis, &[]).await);
    let (holder, text) = (handle["holder"].as_str().unwrap(), handle.to_string());
    // One that was cut off, too, that `xargs` has printed, or that is a string of JSON.
    let part = text.split_inclusive(holder).next().unwrap();
    let (bare, quoted) = (text.replace('"', ""), json!(text).to_string());
    for command in [
        &["status", &text][..],
        &["status", part],
        &["status", &bare],
        &["status", &quoted],
        &["acquire", &text, "--no-wait"],
        &["break", &text, "--token", "33"],
        &["run", &text, "--no-wait", "--", "true"],
        &["watch", &text],
    ] {
        let output = lock_client(&[&["--locks", &url], command].concat()).await;
        assert_failed(&output, 64, "this is a handle, not a name");
        assert!(!format!("{output:?}").contains(holder), "{output:?}");
    }
    for command in [&["get", &text][..], &["put", &text, "value", "--locks", &url]] {
        let output = lock_client(&[command, &["--storage", "http://127.0.0.1:1"]].concat()).await;
        assert_failed(&output, 64, "this is a handle, not a name");
        assert!(!format!("{output:?}").contains(holder), "{output:?}");
    }
}
