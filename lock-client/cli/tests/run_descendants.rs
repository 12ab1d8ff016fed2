//! `lock-client run` and the processes that its command has started: the lock is kept until none of
//! them is left.

mod lost_lease;

use std::{fs, path::Path, time::Duration};

use rustix::process::{Signal, kill_process_group};
use testbed::{
    Redis,
    process::{Process, lives},
    wait::{until, until_async},
};
use tokio::time::sleep;

use crate::{
    command::{PATIENCE, Run, locks, without_terminal},
    names::name,
    programs::LOCK_CLIENT,
};

/// Starts a worker as a process of its own. It says when it gets SIGTERM, and ends after that.
const WORKER: &str = "trap 'echo worker terminated; exit' TERM
    echo $$; while [ -e \"$WORK\" ]; do sleep 0.02; done; echo worker over";

/// A worker that ignores SIGTERM.
const STUBBORN: &str = "trap '' TERM; echo $$; while [ -e \"$WORK\" ]; do sleep 0.02; done";

/// Without a terminal, a shell gives its background jobs another stdin and ignores SIGINT for them.
const IN_BACKGROUND: &str = r#"sh -c "$WORKER" & echo $$; exit 5"#;

const IN_FOREGROUND: &str = r#"sh -c "$WORKER"; echo the script continues"#;

async fn held(redis: &Redis) -> bool {
    locks(redis).status(&name("r")).await.unwrap().held.is_some()
}

/// A script that starts a worker, which works as long as a file exists.
struct Work {
    run: Run,
    folder: tempfile::TempDir,
}

impl Work {
    fn start(redis: &Redis, options: &[&str], script: &str, worker: &str) -> Self {
        Self::start_at(&redis.url(), options, script, worker)
    }

    fn start_at(url: &str, options: &[&str], script: &str, worker: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().join("work");
        fs::write(&work, "").unwrap();
        let variables = [("WORK", work.to_str().unwrap()), ("WORKER", worker)];
        let run = Run::start_at(url, options, script, &variables);
        Self { run, folder }
    }

    fn end(&self) {
        fs::remove_file(self.folder.path().join("work")).unwrap();
    }
}

#[tokio::test]
async fn lock_is_held_until_no_process_that_the_command_started_is_left() {
    let redis = Redis::start().await.unwrap();
    for script in [
        IN_BACKGROUND,
        // A daemon: another session, and its parent has ended.
        r#"setsid sh -c '(sh -c "$WORKER" &) &'; echo $$; exit 5"#,
    ] {
        let mut work = Work::start(&redis, &[], script, WORKER);
        let pids = [work.run.pid().await, work.run.pid().await];
        assert_eq!(work.run.event("exited").await["code"], 5);
        let says = || Ok(work.run.stderr().contains("waits for process"));
        until(PATIENCE, says).await.unwrap();
        let stderr = work.run.stderr();
        let waits_for = pids.iter().filter(|pid| stderr.contains(&format!("process {pid} (")));
        assert_eq!(waits_for.filter(|pid| lives(**pid)).count(), 1, "{pids:?}: {stderr}");
        assert!(stderr.contains("--close"), "{stderr}");
        assert!(held(&redis).await, "the worker works");
        work.end();
        assert_eq!(work.run.line().await, "worker over");
        assert_eq!(work.run.exit_code().await, 5, "the command's own");
        assert!(!held(&redis).await);
        assert_eq!(work.run.event_names(), ["acquired", "started", "exited", "released"]);
    }
}

/// The control for the test above.
#[tokio::test]
async fn closed_lock_is_released_when_the_command_itself_has_ended() {
    let redis = Redis::start().await.unwrap();
    let mut work = Work::start(&redis, &["--close"], IN_BACKGROUND, WORKER);
    let pids = [work.run.pid().await, work.run.pid().await];
    assert_eq!(work.run.exit_code().await, 5);
    assert!(!held(&redis).await);
    assert_eq!(pids.into_iter().filter(|pid| lives(*pid)).count(), 1, "the worker works");
    work.end();
}

#[tokio::test]
async fn signal_that_ends_the_command_ends_what_it_has_started_before_the_lock_is_released() {
    let redis = Redis::start().await.unwrap();
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut work = Work::start(&redis, &[], IN_FOREGROUND, WORKER);
        let worker = work.run.pid().await;
        work.run.event("started").await;
        work.run.signal(signal);
        assert_eq!(work.run.line().await, "worker terminated");
        assert_eq!(work.run.exit_code().await, code);
        assert!(!lives(worker));
        assert!(!held(&redis).await);
        assert_eq!(work.run.event_names(), ["acquired", "started", "killed", "released"]);
    }
}

#[tokio::test]
async fn process_that_ignores_sigterm_holds_the_lock_until_it_is_killed() {
    let redis = Redis::start().await.unwrap();
    let mut work = Work::start(&redis, &["--kill-after", "500ms"], IN_FOREGROUND, STUBBORN);
    let worker = work.run.pid().await;
    work.run.event("started").await;
    work.run.signal(Signal::TERM);
    work.run.event("killed").await;
    let is_free = async || {
        // More signals don't give it more time.
        work.run.signal(Signal::TERM);
        Ok(!held(&redis).await)
    };
    assert!(lives(worker) && held(&redis).await);
    until_async(PATIENCE, is_free).await.unwrap();
    assert!(!lives(worker));
    assert_eq!(work.run.exit_code().await, 143, "the command's own");
}

/// The command has ended by itself, and run waits: a signal that comes then is not forwarded.
#[tokio::test]
async fn signal_that_comes_after_the_command_ends_what_is_left() {
    let redis = Redis::start().await.unwrap();
    for signal in [Signal::TERM, Signal::INT] {
        let mut work = Work::start(&redis, &[], IN_BACKGROUND, WORKER);
        work.run.pid().await;
        work.run.pid().await;
        work.run.event("exited").await;
        assert!(held(&redis).await);
        work.run.signal(signal);
        assert_eq!(work.run.line().await, "worker terminated");
        assert_eq!(work.run.exit_code().await, 5);
    }
}

/// A service manager signals all processes of a group: the worker has received the signal already.
#[tokio::test]
async fn what_is_left_gets_a_signal_of_the_whole_group_once() {
    let redis = Redis::start().await.unwrap();
    // `wait` is interrupted at once, so that two signals are two.
    let worker = "trap 'echo TERM' TERM; echo $$
        while [ -e \"$WORK\" ]; do sleep 0.02 & wait; done";
    let mut work = Work::start(&redis, &[], r#"sh -c "$WORKER" & echo $$; wait"#, worker);
    work.run.pid().await;
    work.run.pid().await;
    work.run.event("started").await;
    kill_process_group(work.run.process().pid(), Signal::TERM).unwrap();
    assert_eq!(work.run.line().await, "TERM");
    work.run.event("killed").await;
    sleep(Duration::from_millis(300)).await;
    work.end();
    assert_eq!(work.run.exit_code().await, 143);
    assert!(work.run.process().line(PATIENCE).await.is_err(), "and not once more");
}

/// The command starts it when the signal has come. Without SIGTERM, it would live on.
#[tokio::test]
async fn what_is_started_after_a_signal_of_the_whole_group_is_ended_too() {
    let redis = Redis::start().await.unwrap();
    let script =
        r#"trap 'sh -c "$WORKER" & exit 5' TERM; echo $$; while :; do sleep 0.02 & wait; done"#;
    let mut work = Work::start(&redis, &["--ttl", "4h", "--kill-after", "1h"], script, WORKER);
    work.run.pid().await;
    work.run.event("started").await;
    kill_process_group(work.run.process().pid(), Signal::TERM).unwrap();
    assert_eq!(work.run.exit_code().await, 5);
}

/// Each process starts the next one and ends: it forks while it is being killed.
#[tokio::test]
async fn process_that_forks_while_it_is_killed_does_not_escape() {
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("hop");
    fs::write(&script, "[ -e \"$WORK\" ] || exit; echo > \"$WORK.hops\"; sh $0 &").unwrap();
    let hop = format!("trap '' TERM; sh {}; echo hopping; exit 5", script.display());
    // The control: with --close, it lives on.
    for (close, escapes) in [(&[][..], false), (&["--close"], true)] {
        let work = folder.path().join(format!("work {escapes}"));
        let hops = folder.path().join(format!("work {escapes}.hops"));
        fs::write(&work, "").unwrap();
        let options = [&["--kill-after", "100ms"], close].concat();
        let variables = [("WORK", work.to_str().unwrap())];
        let mut run = Run::start_with(&redis, &options, &hop, &variables);
        assert_eq!(run.line().await, "hopping");
        run.event("exited").await;
        if !escapes {
            run.signal(Signal::TERM);
        }
        assert_eq!(run.exit_code().await, 5);
        fs::remove_file(&hops).unwrap();
        if escapes {
            until(PATIENCE, || Ok(hops.exists())).await.unwrap();
        } else {
            sleep(Duration::from_millis(300)).await;
            assert!(!hops.exists());
        }
        fs::remove_file(&work).unwrap();
    }
}

/// A process that was not started by the command is none of its descendants.
#[tokio::test]
async fn earlier_child_of_this_process_is_not_waited_for() {
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let work = folder.path().join("work");
    fs::write(&work, "").unwrap();
    let script = r#"sleep 600 & echo $!; exec "$@""#;
    let mut command = without_terminal("sh");
    command.args(["-c", script, "sh", LOCK_CLIENT, "run", "r", "--locks", &redis.url()]);
    let worker = r#"while [ -e "$0" ]; do sleep 0.02; done & exit 5"#;
    command.args(["--", "sh", "-c", worker]).arg(&work);
    let mut run = Process::spawn("run", &command, folder.path()).unwrap();
    let earlier: i32 = run.line(PATIENCE).await.unwrap().parse().unwrap();
    let waits = || {
        let messages = fs::read_to_string(folder.path().join("run.stderr"))?;
        assert!(!messages.contains(&format!("process {earlier} ")), "{messages}");
        Ok(messages.contains("run waits for process"))
    };
    until(PATIENCE, waits).await.unwrap();
    fs::remove_file(&work).unwrap();
    assert_eq!(run.exit(PATIENCE).await.unwrap().code(), Some(5));
    assert!(lives(earlier.cast_unsigned()));
    let earlier = rustix::process::Pid::from_raw(earlier).unwrap();
    rustix::process::kill_process(earlier, Signal::KILL).unwrap();
}

#[tokio::test]
async fn adopted_orphans_do_not_stay_zombies() {
    let redis = Redis::start().await.unwrap();
    let mut run = Run::start(&redis, &[], "(sleep 0.1 & echo $!); read go");
    let orphan = run.pid().await;
    let gone = || Ok(!Path::new(&format!("/proc/{orphan}")).exists());
    until(PATIENCE, gone).await.unwrap();
    run.continue_script();
    assert_eq!(run.exit_code().await, 0);
}

/// The inner run passes SIGTERM on to its own command. Its program may lie elsewhere.
#[tokio::test]
async fn command_of_an_inner_run_gets_sigterm_once() {
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir_in(Path::new(LOCK_CLIENT).parent().unwrap()).unwrap();
    let elsewhere = folder.path().join("elsewhere");
    fs::hard_link(LOCK_CLIENT, &elsewhere).unwrap();
    // `wait` is interrupted at once, so that two signals are two.
    let worker =
        "trap 'echo TERM' TERM; echo $$; while [ -e \"$WORK\" ]; do sleep 0.02 & wait; done";
    for program in [Path::new(LOCK_CLIENT), &elsewhere] {
        let inner = program.display();
        let script = format!(r#"{inner} run other -- sh -c "$WORKER" & echo $$; wait"#);
        let mut work = Work::start(&redis, &[], &script, worker);
        work.run.pid().await;
        work.run.pid().await;
        work.run.event("started").await;
        let inner = async || Ok(locks(&redis).status(&name("other")).await?.held.is_some());
        until_async(PATIENCE, inner).await.unwrap();
        work.run.signal(Signal::TERM);
        assert_eq!(work.run.line().await, "TERM");
        sleep(Duration::from_millis(300)).await;
        work.end();
        assert_eq!(work.run.exit_code().await, 143);
        assert!(work.run.process().line(PATIENCE).await.is_err(), "and not once more");
    }
}
