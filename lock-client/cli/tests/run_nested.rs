//! `lock-client run` within another: the same name re-enters, and only while the lock is held.

use std::process::Command;

use lock_client::{Locks, Ttl, etcd::Etcd, zookeeper::ZooKeeper};
use testbed::{Redis, process::lives};
use tokio::join;

use crate::programs::LOCK_CLIENT;
use crate::{
    command::{Run, assert_failed, locks, unix_millis},
    names::name,
    services::Service,
};

/// The message of a run whose outer run has lost its lock.
const ANEW: &str = "lock-client: FENCING_OUTER names an outer `lock-client run r`, which does not \
    hold this lock: it is acquired anew";

/// The command, for a script under `run`.
fn lock_client() -> String {
    LOCK_CLIENT.to_owned()
}

#[tokio::test]
async fn same_name_re_enters_with_the_same_token() {
    let redis = Redis::start().await.unwrap();
    redis.set("fenced:{r}:token", "32").await.unwrap();
    let print = "echo $FENCING_TOKEN $FENCING_HOLDER $FENCING_DEADLINE_MS";
    let script = format!(
        "{print}; {0} run r --no-wait -- {0} run r -- sh -c '{print}; exit 6' || echo $?
        {0} status r",
        lock_client()
    );
    let mut run = Run::start(&redis, &[], &script);
    let outer = run.line().await;
    assert!(outer.starts_with("33 "), "{outer}");
    assert_eq!(run.line().await, outer, "the same variables");
    assert_eq!(run.line().await, "6", "and the command's own exit code");
    let status = run.line().await;
    assert!(
        status.contains(r#""held":true,"token":33"#),
        "the inner run does not release it: {status}"
    );
    assert_eq!(run.exit_code().await, 0);
    assert_eq!(locks(&redis).status(&name("r")).await.unwrap().last_token, Some(33));
}

/// They would wait for the outer `run`, which waits for them.
#[tokio::test]
async fn acquire_and_put_of_a_lock_of_an_outer_run_are_rejected() {
    let redis = Redis::start().await.unwrap();
    for command in ["acquire r", "put r value --storage http://127.0.0.1:1"] {
        let script = format!("{} {command}", lock_client());
        let mut run = Run::start(&redis, &[], &script);
        assert_eq!(run.exit_code().await, 64, "{command}");
        assert!(
            run.stderr().contains("an outer `lock-client run r` holds this lock"),
            "{}",
            run.stderr()
        );
    }
}

#[tokio::test]
async fn another_name_is_a_lock_of_its_own() {
    let redis = Redis::start().await.unwrap();
    redis.set("fenced:{r}:token", "32").await.unwrap();
    redis.set("fenced:{an other}:token", "70").await.unwrap();
    let print = "echo $FENCING_RESOURCE $FENCING_RESOURCE_PATH $FENCING_TOKEN";
    let script = format!(
        r#"{print}
        {0} run "an other" -- sh -c '{print}; {0} run r -- sh -c "$0"' '{print}'
        {print}"#,
        lock_client()
    );
    let mut run = Run::start(&redis, &[], &script);
    assert_eq!(run.line().await, "r r 33");
    assert_eq!(run.line().await, "an other an%20other 71");
    assert_eq!(run.line().await, "r r 33", "the inner run re-enters r");
    assert_eq!(run.line().await, "r r 33");
    assert_eq!(run.exit_code().await, 0);
}

#[tokio::test]
async fn name_is_re_entered_through_another() {
    let redis = Redis::start().await.unwrap();
    redis.set("fenced:{r}:token", "32").await.unwrap();
    redis.set("fenced:{other}:token", "70").await.unwrap();
    let print = "echo $FENCING_RESOURCE $FENCING_TOKEN $FENCING_HOLDER $FENCING_DEADLINE_MS";
    let program = lock_client();
    let again = |name: &str, script: &str| {
        // A run that doesn't re-enter fails, instead of waiting for itself.
        format!("{program} run {name} --no-wait -- sh -c {}", quoted(script))
    };
    let innermost = again("other", &format!("{print}; exit 6"));
    let third = again("r", &format!("{print}; {innermost}"));
    let second = again("other", &format!("{print}; {third}"));
    let mut run = Run::start(&redis, &[], &format!("{print}; {second}; echo $?; {print}"));
    let outer = run.line().await;
    assert!(outer.starts_with("r 33 "), "{outer}");
    let other = run.line().await;
    assert!(other.starts_with("other 71 "), "{other}");
    assert_eq!(run.line().await, outer, "as first granted");
    assert_eq!(run.line().await, other, "which the inner runs pass on as well");
    assert_eq!(run.line().await, "6", "the command's own exit code");
    assert_eq!(run.line().await, outer);
    assert_eq!(run.exit_code().await, 0);
}

fn quoted(script: &str) -> String {
    format!("'{}'", script.replace('\'', r"'\''"))
}

#[tokio::test]
async fn lock_that_an_outer_run_has_lost_is_acquired_anew() {
    let redis = Redis::start().await.unwrap();
    redis.set("fenced:{r}:token", "32").await.unwrap();
    let nested = format!("{} run r --no-wait -- sh -c 'echo $FENCING_TOKEN'", lock_client());
    let script = format!("echo began; read go; {nested} 2>&1; echo $?");
    let other = format!("exec {} run other -- sh -c {}", lock_client(), quoted(&script));
    let mut run = Run::start(&redis, &["--on-lost", "continue"], &other);
    assert_eq!(run.line().await, "began");
    let _: u64 = redis.command(&["DEL", "fenced:{r}:lock"]).await.unwrap();
    run.continue_script();
    assert_eq!(run.line().await, ANEW);
    assert_eq!(run.line().await, "34");
    assert_eq!(run.line().await, "0");
    assert_eq!(run.exit_code().await, 79, "the outer run has lost its own");
}

/// Starts a run within another one. Its command ignores SIGTERM. Returns the outer run and the inner
/// command.
async fn stubborn_inner_run(url: &str, options: &[&str]) -> (Run, u32) {
    let stubborn = "trap '' TERM; echo $$; exec sleep 600";
    let nested = format!("{} run r -- sh -c {}", lock_client(), quoted(stubborn));
    let script = format!("({nested}; echo code $?) & wait");
    let mut run = Run::start_at(url, options, &script, &[]);
    let child = run.pid().await;
    (run, child)
}

/// The outer run is killed, and its command with it. A process that the command has started lives on,
/// and an inner run within it.
async fn command_of_an_inner_run_is_dead_before_the_lock_is_free(url: &str, locks: Locks) {
    let (mut run, child) = stubborn_inner_run(url, &["--ttl", "6s"]).await;
    run.process().kill().unwrap();
    assert!(lives(child), "the lock is still held");
    let _lease = locks.acquire(&name("r"), Ttl::from_secs(6).unwrap()).await.unwrap();
    assert!(!lives(child), "{url}");
    assert_eq!(run.line().await, "code 79");
}

#[tokio::test]
async fn command_of_an_inner_run_is_dead_before_the_lock_of_its_killed_outer_run_is_free() {
    let (redis, etcd, zookeeper) = join!(Redis::start(), Service::etcd(), Service::zookeeper());
    let redis = redis.unwrap();
    let redis_url = redis.url();
    let in_etcd = Locks::new(Etcd::open(&etcd.url).unwrap());
    let in_zookeeper = Locks::new(ZooKeeper::open(&zookeeper.url).unwrap());
    join!(
        command_of_an_inner_run_is_dead_before_the_lock_is_free(&redis_url, locks(&redis)),
        command_of_an_inner_run_is_dead_before_the_lock_is_free(&etcd.url, in_etcd),
        command_of_an_inner_run_is_dead_before_the_lock_is_free(&zookeeper.url, in_zookeeper),
    );
}

/// A stopped process renews nothing, but it lives.
#[tokio::test]
async fn command_of_an_inner_run_is_dead_before_the_lock_of_its_stopped_outer_run_is_free() {
    let zookeeper = Service::zookeeper().await;
    let (mut run, child) = stubborn_inner_run(&zookeeper.url, &["--ttl", "6s"]).await;
    run.process().pause().await.unwrap();
    let locks = Locks::new(ZooKeeper::open(&zookeeper.url).unwrap());
    let _lease = locks.acquire(&name("r"), Ttl::from_secs(6).unwrap()).await.unwrap();
    assert!(!lives(child));
    run.process().resume().unwrap();
    assert_eq!(run.exit_code().await, 79);
}

/// The outer run renews its lease, and the inner one goes on. Without the file of the deadline, as on
/// another machine, it counts on the first deadline alone.
#[tokio::test]
async fn inner_run_goes_on_as_long_as_the_outer_run_renews_its_lease() {
    let zookeeper = Service::zookeeper().await;
    for (inner, code) in [
        (lock_client(), 0),
        (
            format!("sh -c {}", quoted(r#"rm $TMPDIR/lock-client-*; exec "$0" "$@""#))
                + " "
                + &lock_client(),
            79,
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("{inner} run r -- sleep 8; echo code $?");
        let variables = [("TMPDIR", folder.path().to_str().unwrap())];
        let mut run = Run::start_at(&zookeeper.url, &["--ttl", "5s"], &script, &variables);
        assert_eq!(run.line().await, format!("code {code}"));
        assert_eq!(run.exit_code().await, 0);
        assert_eq!(folder.path().read_dir().unwrap().count(), 0, "the file is gone");
    }
}

#[tokio::test]
async fn inner_run_has_its_own_kill_after_and_max_hold() {
    let redis = Redis::start().await.unwrap();
    let inner = |options: &str, script: &str| {
        format!("{} run r {options} -- sh -c {}; echo code $?", lock_client(), quoted(script))
    };
    let too_long = inner("--kill-after 6s", "true");
    let mut run = Run::start(&redis, &["--ttl", "10s"], &too_long);
    assert_eq!(run.line().await, "code 64");
    assert!(run.stderr().contains("--kill-after 6s is too long for a ttl of 10s"));

    let mut run = Run::start(&redis, &[], &inner("--max-hold 2s", "echo $$; exec sleep 600"));
    let child = run.pid().await;
    assert_eq!(run.line().await, "code 79");
    assert!(!lives(child));
    assert_eq!(run.exit_code().await, 0, "the outer run goes on");

    // The first grant of the outer run is shorter than its ttl.
    let mut run = Run::start(&redis, &["--max-hold", "5s"], &inner("", "true"));
    assert_eq!(run.line().await, "code 0");

    // The command has all of the time between SIGTERM and SIGKILL.
    let stubborn =
        "trap 'echo term; trap \"\" TERM' TERM; echo began; while :; do sleep 0.05; done";
    let mut run = Run::start(
        &redis,
        &["--ttl", "10s", "--on-lost", "continue"],
        &inner("--kill-after 4s", stubborn),
    );
    assert_eq!(run.line().await, "began");
    let _: u64 = redis.command(&["DEL", "fenced:{r}:lock"]).await.unwrap();
    assert_eq!(run.line().await, "term");
    let terminated = unix_millis();
    assert_eq!(run.line().await, "code 79");
    let graced = unix_millis() - terminated;
    assert!((3_500..6_000).contains(&graced), "{graced} ms");
}

/// As on another machine, after the first deadline of the outer run.
#[tokio::test]
async fn inner_run_without_the_file_of_the_deadline_knows_the_ttl() {
    let redis = Redis::start().await.unwrap();
    let lease = locks(&redis).acquire(&name("r"), Ttl::from_secs(60).unwrap()).await.unwrap();
    // The control: before the deadline, the command is started.
    for (deadline_ms, code) in [(unix_millis() + 50_000, 5), (unix_millis() - 1_000, 79)] {
        let outer = serde_json::json!([{
            "name": "r", "token": lease.token().unwrap(), "grant": lease.ownership().grant,
            "holder": lease.holder().as_str(), "ttl_ms": 60_000, "deadline_ms": deadline_ms,
            "lock_service": "",
        }]);
        let variables = [("FENCING_OUTER", &*outer.to_string())];
        let mut run = Run::start_with(&redis, &["--kill-after", "1s"], "exit 5", &variables);
        assert_eq!(run.exit_code().await, code, "{}", run.stderr());
    }
}

/// It would be ended as soon as it has started.
#[tokio::test]
async fn command_of_an_inner_run_is_not_started_without_time_to_end_it() {
    let redis = Redis::start().await.unwrap();
    let inner = |options: &str| {
        let program = lock_client();
        format!("{program} run r {options} --status-fd 3 -- echo it ran; echo code $?")
    };
    // When the first one starts, less than 4 s are left of the outer lease.
    let script = format!("sleep 6; {}; {}", inner("--kill-after 4s"), inner("--kill-after 10ms"));
    let options = ["--ttl", "10s", "--max-hold", "10s", "--kill-after", "10ms"];
    let mut run = Run::start(&redis, &options, &script);
    assert_eq!(run.line().await, "code 79");
    // The control.
    assert_eq!(run.line().await, "it ran");
    assert_eq!(run.line().await, "code 0");
    assert_eq!(run.exit_code().await, 0);
    let started = run.event_names().into_iter().filter(|name| name == "started").count();
    assert_eq!(started, 2, "that of the outer run, and one of the inner");
}

#[tokio::test]
async fn folder_for_temporary_files_may_have_any_name() {
    let redis = Redis::start().await.unwrap();
    let script = format!(
        r#"folder=$TMPDIR/$(printf '\377'); mkdir "$folder"
        TMPDIR=$folder {} run q -- true; echo code $?"#,
        lock_client()
    );
    let folder = tempfile::tempdir().unwrap();
    let variables = [("TMPDIR", folder.path().to_str().unwrap())];
    let mut run = Run::start_with(&redis, &[], &script, &variables);
    assert_eq!(run.line().await, "code 0");
}

#[tokio::test]
async fn command_of_an_inner_run_is_ended_when_another_client_has_the_lock() {
    let redis = Redis::start().await.unwrap();
    let nested = format!("{} run r -- sh -c 'echo $$; exec sleep 600'", lock_client());
    // The outer run notices it at its next renewal.
    let options = ["--ttl", "6s", "--on-lost", "continue"];
    let mut run = Run::start(&redis, &options, &format!("{nested}; echo code $?"));
    let child = run.pid().await;
    let _: u64 = redis.command(&["DEL", "fenced:{r}:lock"]).await.unwrap();
    let lease = locks(&redis).acquire(&name("r"), Ttl::from_secs(60).unwrap()).await.unwrap();
    assert_eq!(run.line().await, "code 79");
    assert!(!lives(child));
    assert!(lease.renew().await.is_ok(), "the other client's lock is untouched");
}

/// The loss comes after the last look.
#[tokio::test]
async fn inner_run_whose_outer_run_has_lost_the_lock_does_not_end_with_success() {
    let redis = Redis::start().await.unwrap();
    let nested = format!("{} run r -- sh -c 'echo began; read go'", lock_client());
    let mut run = Run::start(&redis, &["--ttl", "600s"], &format!("{nested}; echo code $?"));
    assert_eq!(run.line().await, "began");
    let _: u64 = redis.command(&["DEL", "fenced:{r}:lock"]).await.unwrap();
    run.continue_script();
    assert_eq!(run.line().await, "code 79");
}

#[tokio::test]
async fn same_name_on_another_redis_is_another_lock() {
    let (redis, other) = (Redis::start().await.unwrap(), Redis::start().await.unwrap());
    redis.set("fenced:{r}:token", "32").await.unwrap();
    other.set("fenced:{r}:token", "70").await.unwrap();
    let (program, here, there) = (lock_client(), redis.url(), other.url());
    let again = |url: &str, script: &str| {
        format!("{program} run r --locks {url} --no-wait -- sh -c {}", quoted(script))
    };
    let print = "echo $FENCING_RESOURCE $FENCING_TOKEN $FENCING_HOLDER $FENCING_DEADLINE_MS";
    let innermost = again(&there, &format!("{print}; exit 6"));
    let third = again(&here, &format!("{print}; {innermost}"));
    let second = again(&there, &format!("{print}; {third}"));
    let mut run = Run::start(&redis, &[], &format!("{print}; {second}; echo $?"));
    let outer = run.line().await;
    assert!(outer.starts_with("r 33 "), "{outer}");
    let second = run.line().await;
    assert!(second.starts_with("r 71 "), "{second}");
    assert_eq!(run.line().await, outer, "it re-enters each of them");
    assert_eq!(run.line().await, second);
    assert_eq!(run.line().await, "6");
    assert_eq!(run.exit_code().await, 0);

    let acquire = format!("{program} acquire r --no-wait --locks {there}");
    let mut run = Run::start(&redis, &[], &acquire);
    assert!(run.line().await.contains(r#""token":72"#));
    assert_eq!(run.exit_code().await, 0);
}

#[tokio::test]
async fn redis_by_another_name_is_the_same_lock_service() {
    let redis = Redis::start().await.unwrap();
    redis.set("fenced:{r}:token", "32").await.unwrap();
    let alias = redis.url().replace("/redis.sock", "/./redis.sock");
    assert_ne!(alias, redis.url());
    let inner = format!("{} run r --locks {alias} --no-wait --", lock_client());
    let mut run = Run::start(&redis, &[], &format!("{inner} sh -c 'echo $FENCING_TOKEN'"));
    assert_eq!(run.line().await, "33");
    assert_eq!(run.exit_code().await, 0);
}

#[tokio::test]
async fn malformed_outer_locks_are_wrong_usage() {
    for outer in ["", "r", r#"[{"name":"r"}]"#, r#""0123456789abcdef""#] {
        let mut command =
            crate::command::command(&["run", "r", "--locks", "redis://127.0.0.1:1", "--", "true"]);
        command.env("FENCING_OUTER", outer);
        let output = crate::command::output(command).await;
        assert_failed(&output, 64, "FENCING_OUTER is malformed");
        assert!(!String::from_utf8_lossy(&output.stderr).contains("0123456789abcdef"));
    }
}

#[tokio::test]
async fn url_with_a_password_must_be_given_again() {
    let redis = Redis::start_with(&["--requirepass", "secret"]).await.unwrap();
    let url = redis.url_as("default", "secret");
    let program = lock_client();
    let outer = ["run", "r", "--locks", &url, "--", &program, "run", "other", "--", "true"];
    let nested = crate::command::lock_client(&outer).await;
    assert_failed(&nested, 64, "set FENCED_LOCKS again, or give --locks");
    let alone = crate::command::lock_client(&outer[5..][1..]).await;
    assert_failed(&alone, 64, "set FENCED_LOCKS, or give --locks");
    assert!(!String::from_utf8_lossy(&alone.stderr).contains("again"), "the control");
}

/// An environment may be left over from a run that has ended.
#[tokio::test]
async fn variables_of_a_run_that_has_ended_do_not_re_enter() {
    let mut redis = Redis::start().await.unwrap();
    let lease = locks(&redis).acquire(&name("r"), Ttl::from_secs(60).unwrap()).await.unwrap();
    let (token, holder) = (lease.token().unwrap().to_string(), lease.holder().as_str().to_owned());
    let (url, deadline_ms) = (redis.url(), unix_millis() + 60_000);
    let address = locks(&redis).address();
    let run = |token: &str, holder: &str| {
        let mut command = Command::new(LOCK_CLIENT);
        command.args(["run", "r", "--no-wait", "--locks", &url, "--"]);
        command.args(["sh", "-c", "echo $FENCING_TOKEN"]);
        command.env(
            "FENCING_OUTER",
            format!(
                r#"[{{"name":"r","token":{token},"grant":{token},"holder":"{holder}",
                "ttl_ms":60000,"deadline_ms":{deadline_ms},"lock_service":"{address}"}}]"#
            ),
        );
        crate::command::output(command)
    };
    // The control: the variables of the present lock.
    assert_eq!(run(&token, &holder).await.stdout, format!("{token}\n").as_bytes());
    // Another client holds the lock. The run is not that client's.
    for (token, holder) in [("999", holder.as_str()), (&token, "somebody-else-entirely")] {
        let output = run(token, holder).await;
        assert_failed(&output, 75, ANEW);
        assert!(output.stdout.is_empty(), "the command is not run");
    }
    assert_failed(&run("0", &holder).await, 64, "FENCING_OUTER is malformed");
    // Nobody holds it.
    let next = lease.token().unwrap().as_u64() + 1;
    lease.release().await.unwrap();
    let anew = run(&token, &holder).await;
    assert_eq!(anew.stdout, format!("{next}\n").as_bytes());
    assert_failed(&anew, 0, ANEW);
    // The lock service does not answer.
    redis.process().kill().unwrap();
    let output = run(&token, &holder).await;
    assert_failed(&output, 69, "no answer");
    assert!(output.stdout.is_empty(), "the command is not run");
}
