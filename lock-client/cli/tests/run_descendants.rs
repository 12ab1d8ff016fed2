//! `lock-client run` and the processes that its command has started: the lock is kept until none of
//! them is left.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
    time::{Duration, Instant},
};

use rustix::process::{Signal, geteuid, kill_process_group};
use testbed::{
    Proxy, Redis,
    process::{Process, lives},
    wait::{until, until_async},
};
use tokio::{join, time::sleep};

use crate::{
    command::{PATIENCE, Run, locks, state, without_terminal},
    names::name,
    programs::LOCK_CLIENT,
};

/// Starts a worker as a process of its own. It says when it gets SIGTERM, and ends after that.
const WORKER: &str = "trap 'echo worker terminated; exit' TERM
    echo $$; while [ -e \"$WORK\" ]; do sleep 0.02; done; echo worker over";
/// A worker that ignores SIGTERM.
const STUBBORN: &str = "trap '' TERM; echo $$; while [ -e \"$WORK\" ]; do sleep 0.02; done";
const AT_MOST: Duration = Duration::from_secs(1);
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

#[tokio::test]
async fn ctrl_z_stops_run_and_what_is_left() {
    let redis = Redis::start().await.unwrap();
    // A shell that waits for a child to execute its program can't be stopped in that moment.
    let worker = "echo $$; exec sleep 600";
    let mut work = Work::start(&redis, &[], IN_BACKGROUND, worker);
    let pids = [work.run.pid().await, work.run.pid().await];
    work.run.event("exited").await;
    let worker = pids.into_iter().find(|pid| lives(*pid)).unwrap();
    let run = work.run.process().pid().as_raw_pid().cast_unsigned();
    for (signal, stops) in [(Signal::TSTP, true), (Signal::CONT, false)] {
        work.run.signal(signal);
        until(PATIENCE, || Ok([run, worker].map(|pid| state(pid) == 'T') == [stops; 2]))
            .await
            .unwrap();
    }
    work.run.signal(Signal::TERM);
    assert_eq!(work.run.exit_code().await, 5);
}

/// SIGCONT may come while run stops what works under the lock.
#[tokio::test]
async fn continuation_is_not_lost_while_run_stops() {
    let redis = Redis::start().await.unwrap();
    let worker = "trap 'echo USR1' USR1; echo $$; while :; do sleep 0.02 & wait; done";
    let mut run = Run::start(&redis, &[], worker);
    let command = run.pid().await;
    for round in 0..50 {
        run.signal(Signal::TSTP);
        std::thread::sleep(Duration::from_micros(round * 7_919 % 30_000));
        run.signal(Signal::CONT);
        // Neither takes it if it has stopped.
        run.signal(Signal::USR1);
        assert_eq!(run.line().await, "USR1", "round {round}");
    }
    sleep(Duration::from_secs(1)).await;
    let run = run.process().pid().as_raw_pid().cast_unsigned();
    assert!(![run, command].map(state).contains(&'T'));
}

/// A process that waits for its child to execute a program takes SIGSTOP only after that.
#[tokio::test]
async fn process_that_could_not_stop_yet_continues_with_run() {
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    rustix::fs::mkfifoat(rustix::fs::CWD, &file, rustix::fs::Mode::RWXU).unwrap();
    // Before the child executes its program, it opens a file that nobody has opened.
    let waiting = r#"import os
print(os.getpid(), flush=True)
open_file = (os.POSIX_SPAWN_OPEN, 0, os.environ["FILE"], os.O_RDONLY, 0)
os.posix_spawn("/bin/true", ["true"], os.environ, file_actions=[open_file])
print("over", flush=True)"#;
    let variables = [("FILE", file.to_str().unwrap()), ("WAITING", waiting)];
    let mut run =
        Run::start_with(&redis, &[], r#"setsid python3 -c "$WAITING" & wait"#, &variables);
    let waiting = run.pid().await;
    until(PATIENCE, || Ok(state(waiting) == 'D')).await.unwrap();
    run.event("started").await;
    let pid = run.process().pid().as_raw_pid().cast_unsigned();
    for (signal, stops) in [(Signal::TSTP, true), (Signal::CONT, false)] {
        run.signal(signal);
        until(PATIENCE, || Ok((state(pid) == 'T') == stops)).await.unwrap();
    }
    fs::OpenOptions::new().write(true).open(&file).unwrap();
    assert_eq!(run.line().await, "over");
    assert_eq!(run.exit_code().await, 0);
}

/// Otherwise nothing would renew the lock while that process works.
#[tokio::test]
async fn run_goes_on_if_something_under_the_lock_can_not_be_stopped() {
    assert!(geteuid().is_root(), "only root can start a process of another user");
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    for file in [folder.path(), redis.socket().parent().unwrap()] {
        fs::set_permissions(file, Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(redis.socket(), Permissions::from_mode(0o777)).unwrap();
    // It runs as root.
    let root = folder.path().join("as-root");
    fs::copy("/usr/bin/setpriv", &root).unwrap();
    fs::set_permissions(&root, Permissions::from_mode(0o4755)).unwrap();
    let root = format!("{} --reuid=0 --regid=0 --clear-groups sleep 601", root.display());
    // The control: a process of the same user is stopped.
    for (worker, stops) in [(&*root, false), ("sleep 601", true)] {
        let mut command = without_terminal("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", LOCK_CLIENT]);
        command.args(["run", "r", "--ttl", "2s", "--locks", &redis.url()]);
        command.args(["--", "sh", "-c", &format!("{worker} & echo $! $$; wait")]);
        let mut run = Process::spawn("run", &command, folder.path()).unwrap();
        let pids = run.line(PATIENCE).await.unwrap();
        let pids: Vec<u32> = pids.split(' ').map(|pid| pid.parse().unwrap()).collect();
        let is_worker = || {
            let command = fs::read_to_string(format!("/proc/{}/cmdline", pids[0]))?;
            Ok(command.starts_with("sleep"))
        };
        until(PATIENCE, is_worker).await.unwrap();
        let wrapper = run.pid().as_raw_pid().cast_unsigned();
        run.signal(Signal::TSTP).unwrap();
        if stops {
            until(PATIENCE, || Ok([wrapper, pids[0]].map(state) == ['T'; 2])).await.unwrap();
        } else {
            let says = || Ok(run.stderr().unwrap().contains("can't be stopped"));
            until(PATIENCE, says).await.unwrap();
            sleep(Duration::from_secs(3)).await;
            assert!(held(&redis).await, "it is renewed");
            assert!(![wrapper, pids[0], pids[1]].map(state).contains(&'T'));
        }
        let worker = rustix::process::Pid::from_raw(pids[0].cast_signed()).unwrap();
        rustix::process::kill_process(worker, Signal::KILL).unwrap();
        run.kill().unwrap();
    }
}

/// Another user's process can't be signalled. A lost lease does not wait for it.
#[tokio::test]
async fn lost_lease_does_not_wait_for_what_it_can_not_end() {
    assert!(geteuid().is_root(), "only root can start a process of another user");
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    for file in [folder.path(), redis.socket().parent().unwrap()] {
        fs::set_permissions(file, Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(redis.socket(), Permissions::from_mode(0o777)).unwrap();
    // It runs as root.
    let root = folder.path().join("as-root");
    fs::copy("/usr/bin/setpriv", &root).unwrap();
    fs::set_permissions(&root, Permissions::from_mode(0o4755)).unwrap();
    let root = format!("{} --reuid=0 --regid=0 --clear-groups sleep", root.display());
    // The command itself, and a process that it has started.
    for script in [format!("echo $$; exec {root} 601"), format!("{root} 601 & echo $!; wait")] {
        for close in ["--close", ""] {
            let mut command = without_terminal("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", LOCK_CLIENT]);
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
            let pid = rustix::process::Pid::from_raw(others.cast_signed()).unwrap();
            rustix::process::kill_process(pid, Signal::KILL).unwrap();
            assert_eq!((code, lives_on), (Some(79), true));
            let message = format!("process {others} (sleep) can't be ended, and goes on without");
            assert!(run.stderr().unwrap().contains(&message), "{}", run.stderr().unwrap());
        }
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
