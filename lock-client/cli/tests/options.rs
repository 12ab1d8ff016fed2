//! The options for a Redis that is far away, and for names that are many.

use std::time::Duration;

use testbed::{Proxy, Redis, proxy::Latency};

use crate::command::{NO_ANSWER, assert_failed, command, events, lock_client, output};

#[tokio::test]
async fn redis_that_is_far_away_needs_a_longer_answer_timeout() {
    let redis = Redis::start().await.unwrap();
    let proxy = Proxy::start(redis.socket()).await.unwrap();
    proxy.add(Latency(Duration::from_millis(600)));
    let url = proxy.url("redis");
    let run = ["run", "r", "--locks", &url, "--no-wait", "--", "true"];
    assert_failed(&lock_client(&run).await, 69, NO_ANSWER);
    let patient = [&["run", "--answer-timeout", "1500ms"], &run[1..]].concat();
    let output = lock_client(&patient).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lock: Option<String> = redis.command(&["GET", "fenced:{r}:lock"]).await.unwrap();
    assert_eq!(lock, None, "it was released");
}

#[tokio::test]
async fn counter_is_kept_for_the_time_of_the_option() {
    let redis = Redis::start().await.unwrap();
    let url = redis.url();
    let run = ["run", "r", "--locks", &url, "--keep-counter-for", "1h", "--", "true"];
    let left = async || redis.command::<i64>(&["PTTL", "fenced:{r}:token"]).await.unwrap();
    assert_eq!(lock_client(&run).await.status.code(), Some(0));
    let hour = 3_600_000;
    assert!((hour - 60_000..=hour + 30_000).contains(&left().await), "{}", left().await);
    // Without the option, the retention stays.
    let acquire = lock_client(&["acquire", "r", "--locks", &url]).await;
    assert_eq!(acquire.status.code(), Some(0));
    assert!((hour - 60_000..=hour + 30_000).contains(&left().await), "{}", left().await);
    // By default, a counter is kept for ever.
    let run = ["run", "other", "--locks", &url, "--", "true"];
    assert_eq!(lock_client(&run).await.status.code(), Some(0));
    let left: i64 = redis.command(&["PTTL", "fenced:{other}:token"]).await.unwrap();
    assert_eq!(left, -1);
}

#[tokio::test]
async fn options_of_one_redis_are_wrong_usage_with_redlock() {
    let nodes = "redis://n1 redis://n2 redis://n3";
    let acquire = ["acquire", "r", "--locks", nodes, "--keep-counter-for", "1s", "--no-wait"];
    assert_failed(&lock_client(&acquire).await, 64, "not for Redlock");
}

#[tokio::test]
async fn manual_page_of_a_command_is_found_by_its_words() {
    let page = lock_client(&["man", "node", "admit"]).await;
    assert_eq!(page.status.code(), Some(0), "{page:?}");
    assert_eq!(page.stdout, lock_client(&["man", "node-admit"]).await.stdout);
    for words in [["node", "abacus"], ["run", "change"]] {
        assert_failed(&lock_client(&[&["man"], &words[..]].concat()).await, 64, "no command");
    }
}

#[tokio::test]
async fn help_of_run_and_readme_name_the_same_variables() {
    let help = lock_client(&["run", "--help"]).await;
    let help = String::from_utf8(help.stdout).unwrap();
    let readme = include_str!("../README.md");
    let of_readme = readme.lines().filter_map(|line| line.strip_prefix("| `FENCING_"));
    let of_readme: Vec<_> = of_readme.filter_map(|line| line.split('`').next()).collect();
    let of_help = help.lines().filter_map(|line| line.strip_prefix("  FENCING_"));
    let of_help: Vec<_> = of_help.filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(of_help, of_readme);
    assert_eq!(of_help.len(), 8);
}

#[tokio::test]
async fn lock_service_is_named_before_the_command_or_behind_it() {
    let redis = Redis::start().await.unwrap();
    let url = redis.url();
    let (locks, patient, status) = (["--locks", &url], ["--answer-timeout", "2s"], ["status", "r"]);
    for arguments in [
        [&locks[..], &patient, &status].concat(),
        [&patient[..], &status, &locks].concat(),
        [&status[..], &locks, &patient].concat(),
    ] {
        // Both are stronger than the environment.
        let mut command = command(&arguments);
        command.env("FENCED_LOCKS", "redis://127.0.0.1:1");
        let shown = output(command).await;
        assert_eq!(shown.status.code(), Some(0), "{arguments:?}: {shown:?}");
        assert_eq!(events(&shown)[0]["name"], "r");
    }
    // The control: other options belong to their command.
    let misplaced = [&["--ttl", "60s", "acquire", "r"], &locks[..]].concat();
    assert_failed(&lock_client(&misplaced).await, 64, "unexpected argument '--ttl'");
    // A subcommand below another has them, too.
    let etcd = "etcd://127.0.0.1:1";
    for arguments in [["--locks", etcd, "node", "status"], ["node", "--locks", etcd, "status"]] {
        assert_failed(&lock_client(&arguments).await, 64, "for the nodes of Redlock, not for etcd");
    }
    let without_dashes = [&locks[..], &["run", "r", "echo", "hi"]].concat();
    let advice = "write -- before it: lock-client run NAME -- COMMAND";
    assert_failed(&lock_client(&without_dashes).await, 64, advice);
    let unrelated = lock_client(&["status", "r", "run"]).await;
    assert!(!String::from_utf8_lossy(&unrelated.stderr).contains(advice), "{unrelated:?}");
}

#[tokio::test]
async fn help_that_cannot_be_printed_is_74() {
    for option in ["--help", "--version"] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = command(&[option]);
        command.stdout(full);
        assert_failed(&output(command).await, 74, "can't print");
        // A reader that has read enough is no failure.
        let (reader, stdout) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = crate::command::command(&[option]);
        command.stdout(stdout);
        let closed = output(command).await;
        assert_eq!((closed.status.code(), closed.stderr.as_slice()), (Some(0), &[][..]));
    }
}

/// The help of a command shows the options that it uses.
#[tokio::test]
async fn help_of_a_command_without_a_lock_service_shows_no_option_for_it() {
    for (command, shows) in [("status", true), ("put", true), ("get", false), ("man", false)] {
        let help = lock_client(&[command, "--help"]).await;
        let help = String::from_utf8(help.stdout).unwrap();
        assert_eq!(help.contains("--locks"), shows, "{command}: {help}");
        assert_eq!(help.contains("--answer-timeout"), shows, "{command}: {help}");
    }
}
