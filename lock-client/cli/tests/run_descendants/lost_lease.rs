//! What the command has started, when the lease is lost.

use std::{
    fs,
    time::{Duration, Instant},
};

use rustix::process::{Signal, kill_process};
use testbed::{
    Proxy, Redis,
    process::{Process, lives},
    wait::{until, until_async},
};
use tokio::{join, time::sleep};

use super::{IN_BACKGROUND, IN_FOREGROUND, STUBBORN, WORKER, Work, held};
use crate::{
    command::{PATIENCE, as_nobody, as_root},
    programs::LOCK_CLIENT,
    terminal::pid,
};

const AT_MOST: Duration = Duration::from_secs(1);

/// Another user's process can't be signalled. A lost lease does not wait for it.
#[tokio::test]
async fn lost_lease_does_not_wait_for_what_it_can_not_end() {
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let root = as_root(&redis, folder.path()) + " sleep 601";
    // The command itself, and a process that it has started.
    for script in [format!("echo $$; exec {root}"), format!("{root} & echo $!; wait")] {
        for close in ["--close", ""] {
            let mut command = as_nobody();
            command.args(["run", "r", "--ttl", "6s", "--kill-after", "1s", "--locks"]);
            command.arg(redis.url()).args(Some(close).filter(|close| !close.is_empty()));
            command.args(["--", "sh", "-c", &script]);
            let mut run = Process::spawn("run", &command, folder.path()).unwrap();
            let others: u32 = run.line(PATIENCE).await.unwrap().parse().unwrap();
            let as_root = || {
                let command = fs::read_to_string(format!("/proc/{others}/cmdline"))?;
                Ok(command.starts_with("sleep"))
            };
            until(PATIENCE, as_root).await.unwrap();
            redis.command::<u64>(&["DEL", "fenced:{r}:lock"]).await.unwrap();
            let code = run.exit(PATIENCE).await.unwrap().code();
            let lives_on = lives(others);
            let pid = pid(others);
            kill_process(pid, Signal::KILL).unwrap();
            assert_eq!((code, lives_on), (Some(79), true));
            let message = format!("process {others} (sleep) can't be ended, and goes on without");
            assert!(run.stderr().unwrap().contains(&message), "{}", run.stderr().unwrap());
        }
    }
}

#[tokio::test]
async fn lost_lease_ends_what_the_command_has_started() {
    let redis = Redis::start().await.unwrap();
    let short = ["--ttl", "12s", "--kill-after", "5s"];
    for script in [IN_FOREGROUND, r#"sh -c "$WORKER" & trap '' TERM; wait"#, IN_BACKGROUND] {
        let mut work = Work::start(&redis, &short, script, WORKER);
        work.run.pid().await;
        work.run.event("started").await;
        let deleted: u64 = redis.command(&["DEL", "fenced:{r}:lock"]).await.unwrap();
        assert_eq!(deleted, 1);
        while work.run.line().await != "worker terminated" {}
        assert_eq!(work.run.exit_code().await, 79);
        assert_eq!(work.run.event_names().last().unwrap(), "not-held");
    }
}

/// Cuts `run` off from Redis, and returns how long the worker lives on after Redis has freed the lock:
/// `AT_MOST` if it lives on and on.
async fn worker_outlives_the_ttl(options: &[&str]) -> Duration {
    let redis = Redis::start().await.unwrap();
    let proxy = Proxy::start(redis.socket()).await.unwrap();
    let options = [&["--ttl", "30s", "--kill-after", "1s"], options].concat();
    let mut work = Work::start_at(&proxy.url("redis"), &options, IN_FOREGROUND, STUBBORN);
    let worker = work.run.pid().await;
    work.run.event("started").await;
    proxy.cut();
    assert!(held(&redis).await && lives(worker));
    let ends = async || Ok(!held(&redis).await || !lives(worker));
    until_async(3 * PATIENCE, ends).await.unwrap();
    let (ended, mut outlived) = (Instant::now(), Duration::ZERO);
    while lives(worker) && outlived < AT_MOST {
        sleep(Duration::from_millis(1)).await;
        outlived = ended.elapsed();
    }
    work.end();
    assert_eq!(work.run.exit_code().await, 79);
    outlived
}

#[tokio::test]
async fn what_the_command_has_started_is_dead_before_the_ttl_ends() {
    let (outlived, with_close, continued) = join!(
        worker_outlives_the_ttl(&[]),
        worker_outlives_the_ttl(&["--close"]),
        worker_outlives_the_ttl(&["--on-lost", "continue"])
    );
    assert_eq!((outlived, with_close), (Duration::ZERO, Duration::ZERO));
    assert!(continued >= AT_MOST, "the control");
}

/// The command has ended before the loss is noticed. What it has left behind would go on without the
/// lock.
#[tokio::test]
async fn closed_lock_that_was_lost_ends_what_the_command_has_started() {
    let redis = Redis::start().await.unwrap();
    let script = r#"sh -c "$WORKER" & echo began; read go; exit 5"#;
    let mut work = Work::start(&redis, &["--ttl", "600s", "--close"], script, WORKER);
    while work.run.line().await != "began" {}
    let deleted: u64 = redis.command(&["DEL", "fenced:{r}:lock"]).await.unwrap();
    assert_eq!(deleted, 1);
    work.run.continue_script();
    while work.run.line().await != "worker terminated" {}
    assert_eq!(work.run.exit_code().await, 79);
    assert_eq!(work.run.event_names().last().unwrap(), "not-held");
}

/// The command of the inner run has a handler, so that a signal to it alone ends nothing.
#[tokio::test]
async fn lost_lease_gives_what_an_inner_run_has_started_time_to_clean_up() {
    let redis = Redis::start().await.unwrap();
    let worker =
        "trap 'echo TERM' TERM; echo $$; while [ -e \"$WORK\" ]; do sleep 0.02 & wait; done";
    let short = ["--ttl", "12s", "--kill-after", "5s"];
    for name in ["other", "r"] {
        let inner = r#"trap : TERM; sh -c "$WORKER"; echo over"#;
        let inner = format!("{LOCK_CLIENT} run {name} -- sh -c '{inner}'");
        for script in [format!("exec {inner}"), format!("trap : TERM; {inner}")] {
            let mut work = Work::start(&redis, &short, &script, worker);
            work.run.pid().await;
            let deleted: u64 = redis.command(&["DEL", "fenced:{r}:lock"]).await.unwrap();
            assert_eq!(deleted, 1);
            assert_eq!(work.run.line().await, "TERM", "{script}");
            sleep(Duration::from_millis(300)).await;
            work.end();
            assert_eq!(work.run.line().await, "over", "and not once more: {script}");
            assert_eq!(work.run.exit_code().await, 79);
        }
    }
}
