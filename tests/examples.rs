//! The examples of the lock client, as several processes at once.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    time::Duration,
};

use lock_client::storage::Storage;
use testbed::{Redis, StorageServer};

use crate::{names::name, programs::storage_server};

const SOON: Duration = Duration::from_secs(30);

/// An example that runs. It is killed when this value is dropped.
struct Example {
    child: Child,
    lines: Receiver<String>,
}

impl Example {
    fn start(program: &str, argument: &str, redis: &Redis, storage: &str) -> Self {
        let mut command = Command::new(program);
        command.arg(argument).env("FENCED_LOCKS", redis.url()).env("FENCED_STORAGE", storage);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { child, lines }
    }

    /// Waits for a line with these words, and returns it.
    fn wait_for(&self, words: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(SOON).expect("the line is printed soon");
            if line.contains(words) {
                return line;
            }
        }
    }

    /// Waits for the end, and returns what was printed.
    fn finish(mut self) -> Vec<String> {
        let lines = self.lines.iter().collect();
        assert!(self.child.wait().unwrap().success(), "{lines:?}");
        lines
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_lose_no_update_of_each_other() {
    let redis = Redis::start().await.unwrap();
    let server = StorageServer::start(&storage_server(), &[]).await.unwrap();
    let start = || Example::start(env!("CARGO_BIN_EXE_worker"), "25", &redis, server.url());
    let workers = [start(), start()];
    let printed: Vec<_> = workers.map(Example::finish).into_iter().flatten().collect();
    // No count is printed twice: each update was computed from the one before.
    let mut counts: Vec<u32> =
        printed.iter().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    counts.sort_unstable();
    assert_eq!(counts, (1..=50).collect::<Vec<_>>());
    let storage = Storage::new(server.url()).unwrap();
    let value = storage.read(&name("visits")).await.unwrap().unwrap();
    assert_eq!((&value.bytes[..], value.version), (&b"50"[..], 50));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_replica_leads_and_another_follows_when_it_is_killed() {
    let redis = Redis::start().await.unwrap();
    let start = |replica| Example::start(env!("CARGO_BIN_EXE_leader"), replica, &redis, "");
    let first = start("first");
    let token = |line: String| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    let of_first = token(first.wait_for("leading with token"));
    let second = start("second");
    second.wait_for("waiting");
    // The lease renews itself: the second replica gets no turn while the first one lives.
    std::thread::sleep(Duration::from_secs(11));
    assert_eq!(second.lines.try_iter().count(), 0);
    drop(first);
    let of_second = token(second.wait_for("leading with token"));
    assert!(of_first < of_second);
}

#[tokio::test(flavor = "multi_thread")]
async fn scheduled_job_runs_on_one_machine_only() {
    let redis = Redis::start().await.unwrap();
    let start = |run| Example::start(env!("CARGO_BIN_EXE_scheduled_job"), run, &redis, "");
    let machines = ["2026-11-21"; 3].map(start);
    let printed: Vec<_> = machines.map(Example::finish).into_iter().flatten().collect();
    let count = |words| printed.iter().filter(|line| line.contains(words)).count();
    assert_eq!((count("done in"), count("another machine")), (1, 2), "{printed:?}");
    // Nor does a machine that is late; the next day's job runs.
    let late = start("2026-11-21").finish();
    assert!(late[0].contains("another machine"), "{late:?}");
    let next_day = start("2026-11-22").finish();
    assert!(next_day.iter().any(|line| line.contains("done in")), "{next_day:?}");
}

#[tokio::test]
async fn examples_without_a_lock_service_end_by_a_sentence() {
    let mut redis = Redis::start().await.unwrap();
    redis.process().kill().unwrap();
    for (program, argument, begin) in [
        (
            env!("CARGO_BIN_EXE_scheduled_job"),
            "today",
            "lock `nightly-report/today`: the lock service is unavailable",
        ),
        (env!("CARGO_BIN_EXE_worker"), "1", "lock `visits`: the lock service is unavailable"),
        (env!("CARGO_BIN_EXE_redis_session"), "", "no answer from Redis\n"),
    ] {
        let mut command = Command::new(program);
        command.arg(argument).env("FENCED_LOCKS", redis.url()).env_remove("RUST_BACKTRACE");
        command.env("FENCED_STORAGE", "http://127.0.0.1:1");
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.starts_with(&format!("Error: {begin}")), "{stderr}");
        let is_named = stderr.to_lowercase().contains("no answer from redis");
        assert!(is_named && !stderr.contains('{'), "{stderr}");
    }
}

/// The first world is the negative control: the same requests, without the fence.
#[tokio::test(flavor = "multi_thread")]
async fn fenced_session_keeps_the_item_that_a_paused_request_would_drop() {
    let redis = Redis::start().await.unwrap();
    let start = || Example::start(env!("CARGO_BIN_EXE_redis_session"), "", &redis, "");
    // It may be run again: fences outlive sessions.
    for _ in 0..2 {
        let printed = start().finish();
        let find = |words: &str| printed.iter().filter(|line| line.contains(words)).count();
        assert_eq!(find("request 1 is paused (SIGSTOP)"), 2, "{printed:?}");
        assert_eq!(find("the cart holds: a book"), 1, "the lamp is lost: {printed:?}");
        assert_eq!(find("the cart holds: a lamp, a book"), 1, "{printed:?}");
        assert_eq!(find("a book: rejected"), 1, "{printed:?}");
    }
}
