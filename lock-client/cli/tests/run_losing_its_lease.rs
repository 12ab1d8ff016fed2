//! `lock-client run` when its lease is lost: it ends the command in time, and the exit code shows
//! it.

use std::time::Duration;

use lock_client::Ttl;
use rustix::process::{Pid, Signal, kill_process};
use testbed::{
    Proxy, Redis,
    process::{Process, lives},
    wait::{until, until_async},
};
use tokio::{join, time::sleep};

use crate::programs::LOCK_CLIENT;
use crate::{
    command::{PATIENCE, Run, locks, unix_millis},
    names::name,
};

const LOCK: &str = "fenced:{r}:lock";
/// A short lease, so that its loss is noticed soon.
const SHORT: [&str; 4] = ["--ttl", "6s", "--kill-after", "1s"];
/// Its command has time to clean up, on a busy machine, too.
const WITH_TIME: [&str; 4] = ["--ttl", "12s", "--kill-after", "5s"];
/// A lease that ends in time on a busy machine, too.
const LONGER: [&str; 4] = ["--ttl", "15s", "--kill-after", "1s"];
/// Ignores SIGTERM.
const STUBBORN: &str = "trap '' TERM; echo $$; while :; do sleep 0.05; done";
/// Cleans up and exits with 0 when it gets SIGTERM.
const ORDERLY: &str = "trap 'echo terminated; sleep 0.2; echo tidied; exit 0' TERM
    echo $$; while :; do sleep 0.05; done";

/// Deletes the lock.
async fn delete_lock(redis: &Redis) {
    let deleted: u64 = redis.command(&["DEL", LOCK]).await.unwrap();
    assert_eq!(deleted, 1);
}

/// When the ttl ends in Redis, in Unix time.
async fn end_of_ttl(redis: &Redis) -> u64 {
    redis.command(&["PEXPIRETIME", LOCK]).await.unwrap()
}

/// Waits for a renewal, and returns when the ttl ends in Redis.
async fn renewed(redis: &Redis) -> u64 {
    let before = end_of_ttl(redis).await;
    until_async(PATIENCE, || async { Ok(end_of_ttl(redis).await > before) }).await.unwrap();
    end_of_ttl(redis).await
}

#[tokio::test]
async fn lease_is_renewed_as_long_as_the_command_runs() {
    let redis = Redis::start().await.unwrap();
    redis.set("fenced:{r}:token", "32").await.unwrap();
    let mut run = Run::start(&redis, &["--ttl", "3s", "--kill-after", "500ms"], "sleep 5");
    assert_eq!(run.exit_code().await, 0);
    assert_eq!(run.event_names(), ["acquired", "started", "exited", "released"]);
    assert_eq!(locks(&redis).status(&name("r")).await.unwrap().last_token, Some(33));
}

#[tokio::test]
async fn command_is_ended_when_the_lock_was_held_for_as_long_as_it_may_be() {
    let redis = Redis::start().await.unwrap();
    let options = ["--ttl", "6s", "--kill-after", "3s", "--max-hold", "12s"];
    let before = unix_millis();
    let mut run = Run::start(&redis, &options, ORDERLY);
    run.pid().await;
    renewed(&redis).await;
    assert_eq!(run.line().await, "terminated");
    assert!(unix_millis() >= before + 8_400, "and not much earlier");
    assert_eq!(run.line().await, "tidied");
    assert_eq!(run.exit_code().await, 79);
    assert_eq!(run.event("lost").await["reason"], "max-hold");
    assert_eq!(run.event_names().last().unwrap(), "released", "it is still held at the end");

    // It may be shorter than the ttl.
    let options = ["--ttl", "60s", "--kill-after", "500ms", "--max-hold", "4s"];
    let mut run = Run::start(&redis, &options, STUBBORN);
    let child = run.pid().await;
    assert_eq!(run.exit_code().await, 79);
    assert!(!lives(child));
    assert_eq!(run.event("lost").await["reason"], "max-hold");
}

#[tokio::test]
async fn deleted_lock_ends_the_command_which_has_time_to_clean_up() {
    let redis = Redis::start().await.unwrap();
    let mut run = Run::start(&redis, &WITH_TIME, ORDERLY);
    let child = run.pid().await;
    delete_lock(&redis).await;
    let other = locks(&redis).acquire(&name("r"), Ttl::from_secs(60).unwrap()).await.unwrap();
    assert_eq!(run.line().await, "terminated");
    assert_eq!(run.line().await, "tidied", "the command has time");
    assert_eq!(run.exit_code().await, 79, "though the command exited with 0");
    assert!(!lives(child));
    assert_eq!(run.event("lost").await["reason"], "not-ours");
    assert_eq!(run.event("exited").await["code"], 0);
    assert_eq!(run.event_names().last().unwrap(), "not-held");
    assert!(other.renew().await.is_ok(), "the other client's lock is untouched");
}

#[tokio::test]
async fn command_that_ignores_sigterm_is_killed() {
    let redis = Redis::start().await.unwrap();
    let mut run = Run::start(&redis, &SHORT, STUBBORN);
    let child = run.pid().await;
    delete_lock(&redis).await;
    run.event("lost").await;
    assert_eq!(run.exit_code().await, 79);
    assert!(!lives(child));
    assert_eq!(run.event("killed").await["signal"], 9);
}

#[tokio::test]
async fn unnoticed_loss_is_reported_at_the_end() {
    let redis = Redis::start().await.unwrap();
    // The next renewal is far away.
    let mut run = Run::start(&redis, &["--ttl", "600s"], "echo began; read go");
    assert_eq!(run.line().await, "began");
    delete_lock(&redis).await;
    run.continue_script();
    assert_eq!(run.exit_code().await, 79, "though the command exited with 0");
    assert_eq!(run.event_names(), ["acquired", "started", "exited", "lost", "not-held"]);
}

#[tokio::test]
async fn command_that_continues_is_not_ended_and_the_exit_code_shows_the_loss() {
    let redis = Redis::start().await.unwrap();
    let continues = [&SHORT[..], &["--on-lost", "continue"]].concat();
    let mut run = Run::start(&redis, &continues, "echo $$; read go; exit 7");
    let child = run.pid().await;
    delete_lock(&redis).await;
    run.event("lost").await;
    // Longer than the ttl. Without --on-lost continue, the command would be killed by then.
    sleep(Duration::from_secs(5)).await;
    assert!(lives(child));
    run.continue_script();
    assert_eq!(run.exit_code().await, 79);
    assert_eq!(run.event("exited").await["code"], 7);
    assert!(run.stderr().contains("lock `r` is lost: it was deleted"));
}

/// Cuts `run` off from Redis, and returns whether the command is dead when Redis frees the lock.
async fn is_dead_when_the_ttl_ends(on_lost: &str, script: &str) -> bool {
    let redis = Redis::start().await.unwrap();
    let proxy = Proxy::start(redis.socket()).await.unwrap();
    let options = [&LONGER[..], &["--on-lost", on_lost]].concat();
    let mut run = Run::start_at(&proxy.url("redis"), &options, script, &[]);
    let child = run.pid().await;
    renewed(&redis).await;
    proxy.cut();
    let held = async || locks(&redis).status(&name("r")).await.unwrap().held.is_some();
    assert!(held().await && lives(child));
    until_async(PATIENCE, async || Ok(!held().await || !lives(child))).await.unwrap();
    let dead = !lives(child);
    if dead {
        assert_eq!(run.exit_code().await, 79);
        assert_eq!(run.event("lost").await["reason"], "not-renewed");
    }
    dead
}

#[tokio::test]
async fn command_is_dead_before_the_ttl_ends_in_a_redis_that_hangs() {
    let (stubborn, orderly, continued) = join!(
        is_dead_when_the_ttl_ends("term", STUBBORN),
        is_dead_when_the_ttl_ends("term", ORDERLY),
        is_dead_when_the_ttl_ends("continue", STUBBORN)
    );
    assert!(stubborn && orderly);
    // The control: a command that continues still runs when another client may acquire the lock.
    assert!(!continued);
}

#[tokio::test]
async fn command_is_ended_in_time_if_redis_is_killed() {
    let mut redis = Redis::start().await.unwrap();
    let mut run = Run::start(&redis, &LONGER, STUBBORN);
    let child = run.pid().await;
    // The next renewal is five seconds away: Redis is killed before it.
    let end = renewed(&redis).await;
    redis.process().kill().unwrap();
    until(PATIENCE, || Ok(!lives(child))).await.unwrap();
    assert!(unix_millis() < end);
    assert_eq!(run.exit_code().await, 79);
    assert_eq!(run.event_names().last().unwrap(), "not-released");
}

#[tokio::test]
async fn redis_that_hangs_for_less_than_the_lease_ends_nothing() {
    let mut redis = Redis::start().await.unwrap();
    let mut run = Run::start(&redis, &["--ttl", "12s", "--kill-after", "1s"], "echo $$; read go");
    let child = run.pid().await;
    renewed(&redis).await;
    redis.process().pause().await.unwrap();
    // The renewal is due after 4 s, and SIGTERM shortly before 11.
    sleep(Duration::from_secs(5)).await;
    redis.process().resume().unwrap();
    renewed(&redis).await;
    assert!(lives(child));
    run.continue_script();
    assert_eq!(run.exit_code().await, 0);
}

#[tokio::test]
async fn wrapper_stopped_past_the_deadline_kills_at_once_when_it_continues() {
    let redis = Redis::start().await.unwrap();
    redis.set("fenced:{r}:token", "32").await.unwrap();
    let mut run = Run::start(&redis, &SHORT, ORDERLY);
    let child = run.pid().await;
    run.process().pause().await.unwrap();
    let other = locks(&redis).acquire(&name("r"), Ttl::from_secs(60).unwrap()).await.unwrap();
    assert_eq!(other.token().unwrap().as_u64(), 34);
    // Nothing can end the command now. The token protects: its writes have token 33.
    assert!(lives(child));
    run.process().resume().unwrap();
    assert_eq!(run.exit_code().await, 79);
    assert!(!lives(child));
    assert_eq!(run.event("lost").await["reason"], "expired");
    assert_eq!(run.event("killed").await["signal"], 9, "there is no time for SIGTERM");
    assert!(other.renew().await.is_ok(), "the other client's lock is untouched");
}

/// A full stderr that nobody reads must not delay the end of the command.
#[tokio::test]
async fn command_is_ended_in_time_though_stderr_is_full() {
    let redis = Redis::start().await.unwrap();
    // As much as a pipe holds.
    let script = format!("dd if=/dev/zero bs=65536 count=1 status=none >&2; {STUBBORN}");
    let url = redis.url();
    let mut command = std::process::Command::new("sh");
    // Stderr is the pipe, and its reader sleeps.
    let reader = r#"{ echo reader $$ >&3; exec sleep 600; }"#;
    let piped = format!(r#"{{ "$@" 2>&1 >&3 3>&- | sh -c '{reader}'; }} 3>&1"#);
    command.args(["-c", &piped, "sh", "setsid"]).arg(LOCK_CLIENT);
    command.args(["run", "r", "--locks", &url, "--ttl", "6s", "--kill-after", "1s"]);
    command.args(["--", "sh", "-c", &script]);
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Process::spawn("shell", &command, folder.path()).unwrap();
    let (mut reader, mut child) = (None, None);
    while reader.is_none() || child.is_none() {
        let line = shell.line(PATIENCE).await.unwrap();
        match line.strip_prefix("reader ") {
            Some(pid) => reader = Some(pid.parse::<i32>().unwrap()),
            None => child = Some(line.parse::<u32>().unwrap()),
        }
    }
    // The loss is noticed after 2 seconds, and the command is killed one second later.
    let end = renewed(&redis).await;
    delete_lock(&redis).await;
    let died = until(PATIENCE, || Ok(!lives(child.unwrap()))).await;
    let died_at = unix_millis();
    kill_process(Pid::from_raw(reader.unwrap()).unwrap(), Signal::KILL).unwrap();
    died.unwrap();
    assert!(died_at < end, "the command died before the ttl would have ended");
}
