//! What `lock-client run` and `acquire` say while they wait for a lock, when they give up, and in
//! their logs.

use std::{fs, time::Duration};

use lock_client::{Lease, Terms, Ttl};
use rustix::process::Signal;
use sqlx::{Connection, PgConnection};
use testbed::{
    Redis,
    process::Process,
    wait::{until, until_async},
};
use tokio::time::sleep;

use crate::{
    command::{
        PATIENCE, Run, assert_failed, command, lock_client, locks, output, without_terminal,
    },
    names::name,
    programs::LOCK_CLIENT,
    services::Service,
};

async fn held_lease(redis: &Redis) -> Lease {
    locks(redis).acquire(&name("r"), Ttl::from_secs(60).unwrap()).await.unwrap()
}

/// Waits until the queue of the lock has this length.
async fn until_queued(redis: &Redis, queued: u64) {
    let is_queued = async || Ok(locks(redis).status(&name("r")).await?.queued == queued);
    until_async(PATIENCE, is_queued).await.unwrap();
}

#[tokio::test]
async fn wait_is_one_line_on_a_terminal_which_is_cleared_at_its_end() {
    let redis = Redis::start().await.unwrap();
    let url = redis.url();
    for waiting in [
        format!("{LOCK_CLIENT} run r --locks {url} --fair -- echo began"),
        format!("{LOCK_CLIENT} acquire r --locks {url} --fair --ttl 60s"),
    ] {
        let lease = held_lease(&redis).await;
        let holder = lease.holder().redacted();
        let mut first = Run::start(&redis, &["--fair"], "true");
        until_queued(&redis, 1).await;
        let folder = tempfile::tempdir().unwrap();
        let screen = folder.path().join("screen");
        let mut command = without_terminal("script");
        command.args(["-qefc", &waiting]).arg(&screen);
        let mut terminal = Process::spawn("terminal", &command, folder.path()).unwrap();
        let shown = || fs::read_to_string(&screen).unwrap_or_default();
        let expected = format!("\r\u{1b}[Kwaiting for r: held by {holder}, ");
        let shows = |text: &str| Ok(shown().contains(text));
        until(PATIENCE, || shows(&expected)).await.unwrap();
        until(PATIENCE, || shows(" s left, 1 ahead\r\u{1b}[K")).await.unwrap();
        lease.release().await.unwrap();
        assert_eq!(first.exit_code().await, 0);
        assert_eq!(terminal.exit(PATIENCE).await.unwrap().code(), Some(0));
        let shown = shown();
        let after = shown.rsplit_once("\r\u{1b}[K").unwrap().1;
        assert!(after.contains("began") || after.contains("\"token\""), "{shown:?}");
        assert!(!after.contains("waiting for"), "{shown:?}");
        // `acquire` leaves it held.
        redis.command::<u64>(&["DEL", "fenced:{r}:lock"]).await.unwrap();
    }
}

/// The terminal belongs to what the user types meanwhile.
#[tokio::test]
async fn wait_in_the_background_of_a_terminal_shows_nothing() {
    let redis = Redis::start().await.unwrap();
    let lease = held_lease(&redis).await;
    let folder = tempfile::tempdir().unwrap();
    let (screen, events) = (folder.path().join("screen"), folder.path().join("events"));
    let run = format!("{LOCK_CLIENT} run r --locks {} --status-fd 3 -- true", redis.url());
    let in_background = format!("set -m; {run} 3>> {} & wait", events.display());
    let mut command = without_terminal("script");
    command.args(["-qefc", &format!("bash -c '{in_background}'")]).arg(&screen);
    let mut terminal = Process::spawn("terminal", &command, folder.path()).unwrap();
    let has_waited = || Ok(fs::read_to_string(&events).is_ok_and(|line| line.contains("waiting")));
    until(PATIENCE, has_waited).await.unwrap();
    lease.release().await.unwrap();
    assert_eq!(terminal.exit(PATIENCE).await.unwrap().code(), Some(0));
    let shown = fs::read_to_string(&screen).unwrap();
    assert!(!shown.contains("waiting"), "{shown:?}");
}

#[tokio::test]
async fn wait_without_a_terminal_is_an_event_and_nothing_on_stderr() {
    let redis = Redis::start().await.unwrap();
    let lease = held_lease(&redis).await;
    let mut run = Run::start(&redis, &[], "true");
    let waiting = run.event("waiting").await;
    assert_eq!(waiting["name"], "r");
    assert_eq!(waiting["holder"], lease.holder().redacted());
    assert!((1..=60_000).contains(&waiting["remaining_ms"].as_u64().unwrap()), "{waiting}");
    sleep(Duration::from_millis(1_500)).await;
    lease.release().await.unwrap();
    assert_eq!(run.exit_code().await, 0);
    let waits = run.events().iter().filter(|event| event["event"] == "waiting").count();
    assert_eq!((waits, run.stderr().as_str()), (1, ""));
}

#[tokio::test]
async fn service_that_is_down_is_named_while_it_is_asked_again() {
    let mut redis = Redis::start().await.unwrap();
    redis.process().kill().unwrap();
    let url = redis.url();
    for arguments in [&["run", "r", "--wait", "3s"][..], &["acquire", "r", "--wait", "3s"]] {
        let command = if arguments[0] == "run" { &["--", "true"][..] } else { &[] };
        let failed = lock_client(&[arguments, &["--locks", &url], command].concat()).await;
        let stderr = String::from_utf8_lossy(&failed.stderr);
        let begin = format!("lock-client: no answer from {url}: ");
        let line = stderr.lines().next().unwrap_or_default();
        assert!(line.starts_with(&begin), "{stderr}");
        assert!(line.ends_with("; retrying for 2 s"), "{stderr}");
        let last = stderr.lines().last().unwrap_or_default();
        assert_eq!((stderr.lines().count(), failed.status.code()), (2, Some(69)), "{stderr}");
        assert!(last.contains("lock `r`: the lock service is unavailable"), "{stderr}");
    }
    let logged = lock_client(&["acquire", "r", "--no-wait", "-v", "--locks", &url]).await;
    assert_failed(&logged, 69, "the lock service is unavailable: the request is repeated");
}

/// It answers, so it is not called silent.
#[tokio::test]
async fn server_that_takes_no_writes_is_named_while_it_is_asked_again() {
    let primary = Redis::start().await.unwrap();
    let replica = Redis::replica_of(&primary).await.unwrap();
    let standby = Service::postgres().await;
    let mut administrator = PgConnection::connect(&standby.url).await.unwrap();
    let read_only = "alter role postgres set default_transaction_read_only = on";
    sqlx::query(read_only).execute(&mut administrator).await.unwrap();
    for (url, role) in [
        (&replica.redis().url(), ": it is a replica, which takes no writes: name the primary"),
        (&standby.url, ": it takes no writes: it is a standby"),
    ] {
        let arguments = ["acquire", "r", "--wait", "3s", "-v", "--locks", url];
        let failed = lock_client(&arguments).await;
        assert_failed(&failed, 69, "lock `r`: the lock service is unavailable");
        let stderr = String::from_utf8_lossy(&failed.stderr);
        let find = |text: &str| stderr.lines().find(|line| line.contains(text)).unwrap_or_default();
        assert!(find("the request is repeated").contains(role), "{stderr}");
        let line = find("; retrying for ");
        assert!(line.starts_with("lock-client: ") && line.contains(role), "{stderr}");
        let last = stderr.lines().last().unwrap_or_default();
        assert!(last.contains(role) && !stderr.contains("no answer"), "{stderr}");
    }
}

/// No lock is left that must be released, only a try, which the library undoes for four answers' time.
#[tokio::test]
async fn interrupted_wait_for_a_service_that_is_down_is_not_followed_by_another() {
    let mut redis = Redis::start().await.unwrap();
    redis.process().kill().unwrap();
    let mut run = Run::start(&redis, &["--answer-timeout", "2s"], "true");
    let is_waiting = || Ok(run.stderr().contains("; retrying for "));
    until(PATIENCE, is_waiting).await.unwrap();
    let waited = run.stderr();
    run.signal(Signal::INT);
    assert_eq!(run.exit_code().await, 130);
    let more = "lock-client: lock `r` may stay held until its ttl ends\n";
    assert_eq!(run.stderr(), waited + more, "nothing is retried");
}

/// The wait also looks at the lock. The command reports the lock service only for the wait itself.
#[tokio::test]
async fn look_at_a_lock_does_not_count_as_a_request_that_is_repeated() {
    let mut redis = Redis::start().await.unwrap();
    redis.process().kill().unwrap();
    let locks = locks(&redis);
    locks.status(&name("r")).await.unwrap_err();
    assert!(locks.unanswered().is_none());
    // The control.
    let terms = Terms::new(Ttl::from_secs(60).unwrap()).no_wait();
    locks.acquire(&name("r"), terms).await.unwrap_err();
    assert!(locks.unanswered().is_some());
}

#[tokio::test]
async fn failure_names_the_holder_and_the_queue() {
    let redis = Redis::start().await.unwrap();
    let url = redis.url();
    let lease = held_lease(&redis).await;
    let holder = lease.holder().redacted();
    let mut queued = Run::start(&redis, &["--fair"], "true");
    until_queued(&redis, 1).await;
    let expected = format!(" s more (holder {holder}, 1 in the queue)");
    for arguments in [&["run", "r", "--no-wait"][..], &["acquire", "r", "--no-wait"]] {
        let command = if arguments[0] == "run" { &["--", "true"][..] } else { &[] };
        let failed = lock_client(&[arguments, &["--locks", &url], command].concat()).await;
        assert_failed(&failed, 75, "lock `r` is held by another client for ");
        assert_failed(&failed, 75, &expected);
        assert!(!String::from_utf8_lossy(&failed.stderr).contains(lease.holder().as_str()));
    }
    lease.release().await.unwrap();
    assert_eq!(queued.exit_code().await, 0);
}

#[tokio::test]
async fn logs_are_printed_if_they_are_asked_for() {
    let redis = Redis::start().await.unwrap();
    let url = redis.url();
    let run = |arguments: &[&str], log: Option<&str>| {
        let mut run = command(arguments);
        run.args(["run", "r", "--locks", &url, "--", "true"]);
        run.envs(log.map(|log| ("RUST_LOG", log)));
        async move { String::from_utf8(output(run).await.stderr).unwrap() }
    };
    assert_eq!(run(&[], None).await, "", "the control");
    for logged in [run(&["-v"], None).await, run(&[], Some("lock_client=debug")).await] {
        assert!(logged.contains("acquired") && logged.contains("released"), "{logged}");
        assert!(logged.contains("name=r") && logged.contains("holder=\""), "{logged}");
    }
    assert_eq!(run(&["-v"], Some("error")).await, "", "RUST_LOG decides");
}
