//! `lock-client watch`: a line on every change of a lock's state.

use lock_client::{Terms, Ttl};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use testbed::{
    Redis,
    process::Process,
    wait::{until, until_async},
};

use crate::handle::full_stdout;
use crate::programs::LOCK_CLIENT;
use crate::{
    command::{
        NO_ANSWER, PATIENCE, assert_failed, command, lock_client, locks, output, without_terminal,
    },
    names::name,
};

struct Watch {
    process: Process,
    folder: TempDir,
}

impl Watch {
    fn start(redis: &Redis) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = without_terminal(LOCK_CLIENT);
        command.args(["watch", "r", "--locks", &redis.url()]);
        Self { process: Process::spawn("watch", &command, folder.path()).unwrap(), folder }
    }

    /// The next state: the holder's token, the last token, and the length of the queue.
    async fn state(&mut self) -> (Option<u64>, u64, u64) {
        let line = self.process.line(PATIENCE).await.unwrap();
        let state: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(state["held"], !state["token"].is_null());
        let number = |field: &str| state[field].as_u64();
        (number("token"), number("last_token").unwrap(), number("queued").unwrap())
    }
}

#[tokio::test]
async fn watch_prints_each_grant_and_release() {
    let redis = Redis::start().await.unwrap();
    redis.set("fenced:{r}:token", "32").await.unwrap();
    let locks = locks(&redis);
    let ttl = Ttl::from_secs(60).unwrap();
    let mut watch = Watch::start(&redis);
    assert_eq!(watch.state().await, (None, 32, 0), "first the present state");

    let lease = locks.acquire(&name("r"), ttl).await.unwrap();
    assert_eq!(watch.state().await, (Some(33), 33, 0));
    // A renewal prints no line: the next line shows the queue.
    lease.renew().await.unwrap();
    let r = name("r");
    tokio::select! {
        acquired = locks.acquire(&r, Terms::new(ttl).fair()) => panic!("{acquired:?}"),
        state = watch.state() => assert_eq!(state, (Some(33), 33, 1)),
    }
    assert_eq!(watch.state().await, (Some(33), 33, 0), "the client has left the queue");
    lease.release().await.unwrap();
    assert_eq!(watch.state().await, (None, 33, 0));

    // A lock that expires.
    let short = Terms::new(Ttl::from_secs(5).unwrap()).without_renewal();
    let lease = locks.acquire(&name("r"), short).await.unwrap();
    assert_eq!(watch.state().await, (Some(34), 34, 0));
    assert_eq!(watch.state().await, (None, 34, 0));
    drop(lease);

    for signal in [Signal::INT, Signal::TERM] {
        let mut watch = Watch::start(&redis);
        watch.state().await;
        watch.process.signal(signal).unwrap();
        assert_eq!(watch.process.exit(PATIENCE).await.unwrap().code(), Some(0));
    }
}

#[tokio::test]
async fn watch_retries_while_redis_is_down() {
    let mut redis = Redis::start_with(&["--appendonly", "yes"]).await.unwrap();
    redis.set("fenced:{r}:token", "32").await.unwrap();
    let mut watch = Watch::start(&redis);
    assert_eq!(watch.state().await, (None, 32, 0));
    redis.process().kill().unwrap();
    let stderr = watch.folder.path().join("watch.stderr");
    let reported = || Ok(std::fs::read_to_string(&stderr)?.contains("retrying"));
    testbed::wait::until(PATIENCE, reported).await.unwrap();
    redis.restart().await.unwrap();
    let lease = locks(&redis).acquire(&name("r"), Ttl::from_secs(60).unwrap()).await.unwrap();
    assert_eq!(watch.state().await, (Some(33), 33, 0));
    lease.release().await.unwrap();
}

#[tokio::test]
async fn watch_of_an_unreachable_redis_is_69() {
    let missing = lock_client(&["watch", "r", "--locks", "redis://127.0.0.1:1"]).await;
    assert_failed(&missing, 69, NO_ANSWER);
    assert_failed(&missing, 69, "127.0.0.1:1");
}

#[tokio::test]
async fn signal_ends_a_watch_without_a_reader() {
    let redis = Redis::start().await.unwrap();
    let (stdout, _reader) = full_stdout();
    let mut child =
        command(&["watch", "r", "--locks", &redis.url()]).stdout(stdout).spawn().unwrap();
    let has_looked = async || Ok(redis.info("cmdstat_zcard").await.is_ok());
    until_async(PATIENCE, has_looked).await.unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let ended = until(PATIENCE, || Ok(child.try_wait()?.is_some())).await;
    child.kill().unwrap();
    ended.unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[tokio::test]
async fn watch_ends_with_its_reader() {
    let redis = Redis::start().await.unwrap();
    let url = redis.url();
    let mut shell = std::process::Command::new("sh");
    // The lock doesn't change meanwhile.
    let script =
        r#"{ timeout -s KILL 20 "$0" watch r --locks "$1"; echo "code $?" >&2; } | head -n 1"#;
    shell.args(["-c", script]).arg(command(&[]).get_program()).arg(&url);
    let output = output(shell).await;
    assert_eq!(String::from_utf8_lossy(&output.stderr), "code 0\n");
    assert_eq!(output.stdout.split(|byte| *byte == b'\n').count(), 2, "one line");
}
