//! `lock-client run` and signals: forwarded, and ending a wait.

use std::{
    fs::Permissions,
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    time::Duration,
};

use lock_client::Ttl;
use rustix::{
    fs::{CWD, Mode, OFlags, mkfifoat, open},
    process::{Pid, Signal, geteuid, kill_process, kill_process_group},
};
use testbed::{
    Redis,
    process::Process,
    wait::{until, until_async},
};
use tokio::time::sleep;

use crate::programs::LOCK_CLIENT;
use crate::{
    command::{PATIENCE, Run, code, locks, unix_millis, without_terminal},
    names::name,
};

/// Prints each signal that it receives, until the file `$END` exists.
const LISTEN: &str = r#"
    for signal in HUP INT QUIT TERM USR1 USR2 ALRM; do trap "echo $signal" $signal; done
    echo listening; while [ ! -e "$END" ]; do sleep 0.02; done"#;

const FORWARDED: [(&str, Signal); 7] = [
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("TERM", Signal::TERM),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("ALRM", Signal::ALARM),
];

#[tokio::test]
async fn signals_are_forwarded_to_the_command() {
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    let variables = [("END", end.to_str().unwrap())];
    let mut run = Run::start_with(&redis, &[], LISTEN, &variables);
    assert_eq!(run.line().await, "listening");
    for (signal_name, signal) in FORWARDED {
        run.signal(signal);
        assert_eq!(run.line().await, signal_name);
    }
    std::fs::write(&end, "").unwrap();
    assert_eq!(run.exit_code().await, 0, "none of them ended the wrapper");
    assert_eq!(run.event_names(), ["acquired", "started", "exited", "released"]);
}

/// A service manager, or `timeout`, signals all processes of a group.
#[tokio::test]
async fn signal_to_the_whole_group_comes_once() {
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    let variables = [("END", end.to_str().unwrap())];
    // `wait` is interrupted at once, so that two signals are two.
    let listen = LISTEN.replace("sleep 0.02", "sleep 0.02 & wait") + "; exit 0";
    let mut run = Run::start_with(&redis, &[], &listen, &variables);
    assert_eq!(run.line().await, "listening");
    for (signal_name, signal) in FORWARDED {
        kill_process_group(run.process().pid(), signal).unwrap();
        assert_eq!(run.line().await, signal_name);
        sleep(Duration::from_millis(200)).await;
        // The control: a signal to run alone is forwarded. It comes next.
        run.signal(Signal::ALARM);
        assert_eq!(run.line().await, "ALRM", "{signal_name} comes once");
    }
    std::fs::write(&end, "").unwrap();
    assert_eq!(run.exit_code().await, 0);
}

/// It signals its child, and then its group.
#[tokio::test]
async fn signal_of_timeout_comes_once() {
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    // `wait` is interrupted at once, so that two signals are two. The first signal may come before
    // the first `wait`, and a `sleep` that has just been forked may ignore it: so each one is short.
    let script = "trap 'echo TERM; received=1' TERM; echo listening; \
        while [ -z \"$received\" ]; do sleep 1 & wait $!; done; sleep 0.5 & wait $!";
    let mut command = without_terminal("timeout");
    command.args(["600", LOCK_CLIENT, "run", "r", "--locks", &redis.url(), "--close"]);
    command.args(["--", "bash", "-c", script]);
    let mut timeout = Process::spawn("timeout", &command, folder.path()).unwrap();
    assert_eq!(timeout.line(PATIENCE).await.unwrap(), "listening");
    // Its time is over at once.
    timeout.signal(Signal::ALARM).unwrap();
    assert_eq!(timeout.line(PATIENCE).await.unwrap(), "TERM");
    assert_eq!(timeout.exit(PATIENCE).await.unwrap().code(), Some(124));
    assert!(timeout.line(PATIENCE).await.is_err(), "and not once more");
}

/// Each is sent when the last one has reached the command: of two that are pending, the kernel makes one.
#[tokio::test]
async fn steady_signals_of_the_leader_of_the_group_are_all_forwarded() {
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    // It prints outside of its trap: bash forgets a signal that comes while the trap of the last one runs.
    let worker = r#"trap "come=1" USR1; echo began
        while :; do sleep 0.1 & wait $!; if [ "$come" ]; then come=; echo USR1; fi; done"#;
    // The shell leads the process group of run, as timeout does.
    let script = r#""$0" run r --close -- bash -c "$WORKER" &
        while read -r signal && kill -s "$signal" $! && [ "$signal" != TERM ]; do :; done; wait"#;
    let mut command = without_terminal("bash");
    command.args(["-c", script, LOCK_CLIENT]);
    command.env("FENCED_LOCKS", redis.url()).env("WORKER", worker);
    let mut shell = Process::spawn("shell", &command, folder.path()).unwrap();
    assert_eq!(shell.line(PATIENCE).await.unwrap(), "began");
    for _ in 0..8 {
        shell.write_line("USR1").unwrap();
        assert_eq!(shell.line(PATIENCE).await.unwrap(), "USR1");
    }
    shell.write_line("TERM").unwrap();
    assert!(shell.line(PATIENCE).await.is_err(), "and no more");
}

/// A second Ctrl-C, or a service manager that has no more patience, ends a wait for the lock service.
#[tokio::test]
async fn signal_ends_the_wait_for_a_release_that_is_not_answered() {
    let mut redis = Redis::start().await.unwrap();
    let (at_once, later) = (Duration::ZERO, Duration::from_secs(3));
    for (signal, pause) in [
        (Signal::TERM, at_once),
        (Signal::TERM, later),
        (Signal::INT, at_once),
        (Signal::HUP, later),
        (Signal::QUIT, at_once),
    ] {
        let mut run = Run::start(&redis, &["--ttl", "600s"], "echo began; read go");
        assert_eq!(run.line().await, "began");
        run.event("started").await;
        redis.process().pause().await.unwrap();
        run.continue_script();
        run.event("exited").await;
        // At once, or after the first try, which ends after 2 s. It also is the control: without a
        // signal, run waits.
        sleep(pause).await;
        assert!(!run.process().has_ended().unwrap());
        if pause == later {
            until(PATIENCE, || Ok(run.stderr().contains("; retrying for "))).await.unwrap();
            let stderr = run.stderr();
            assert!(
                stderr.starts_with("lock-client: the lock may stay held until its"),
                "{stderr}"
            );
        }
        run.signal(signal);
        assert_eq!(run.exit_code().await, 128 + signal.as_raw());
        redis.process().resume().unwrap();
        redis.command::<u64>(&["DEL", "fenced:{r}:lock"]).await.unwrap();
    }
}

/// The group's signal comes before the command exists. `run` notices it when the command runs, because
/// it was slow, and has to forward it.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn signal_to_the_group_before_the_command_started_ends_it() {
    let redis = Redis::start().await.unwrap();
    for _ in 0..20 {
        let mut run = Run::start(&redis, &[], "exec sleep 600");
        // In the moment of the grant, and without a pause of this thread.
        while !run.event_names().contains(&"acquired".to_owned()) {}
        let pid = run.process().pid();
        kill_process_group(pid, Signal::INT).unwrap();
        let children = format!("/proc/{0}/task/{0}/children", pid.as_raw_pid());
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_millis(20) {
            if std::fs::read_to_string(&children).unwrap().trim() != "" {
                kill_process(pid, Signal::STOP).unwrap();
                break;
            }
        }
        sleep(Duration::from_millis(50)).await;
        kill_process(pid, Signal::CONT).unwrap();
        assert_eq!(run.exit_code().await, 130);
    }
}

/// Who stops a service in the moment of the grant wants it not to start.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn command_is_not_started_after_a_signal() {
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let file = folder.path().join(format!("lock-client-{}-deadline", boot.trim()));
    mkfifoat(CWD, &file, Mode::RWXU).unwrap();
    let lease = locks(&redis).acquire(&name("r"), Ttl::from_secs(600).unwrap()).await.unwrap();
    let outer = serde_json::json!([{
        "name": "r", "token": lease.token().unwrap(), "grant": lease.ownership().grant,
        "holder": lease.holder().as_str(), "ttl_ms": 600_000,
        "deadline_ms": unix_millis() + 600_000, "lock_service": "", "deadline_file": file,
    }]);
    let variables = [("FENCING_OUTER", &*outer.to_string())];
    // The control: without a signal, it is started.
    for (signal, code) in
        [(None, 5), (Some(Signal::TERM), 143), (Some(Signal::INT), 130), (Some(Signal::USR1), 138)]
    {
        let mut run = Run::start_with(&redis, &[], "exit 5", &variables);
        run.event("re-entered").await;
        // Until this test opens the file too, run waits for that, with the lock, before the start.
        if let Some(signal) = signal {
            run.signal(signal);
        }
        let opens = || Ok(open(&file, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()).is_ok());
        until(PATIENCE, opens).await.unwrap();
        assert_eq!(run.exit_code().await, code);
        let last = if signal.is_some() { &["interrupted"][..] } else { &["started", "exited"] };
        assert_eq!(run.event_names(), [&["re-entered"], last].concat());
    }
}

/// As `run -- sudo worker` of a user.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn signal_that_the_command_can_not_get_is_named() {
    assert!(geteuid().is_root(), "only root can start a process of another user");
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (path, mode) in [
        (folder.path(), 0o755),
        (redis.socket().parent().unwrap(), 0o755),
        (&redis.socket(), 0o777),
    ] {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let root = folder.path().join("as-root");
    std::fs::copy("/usr/bin/setpriv", &root).unwrap();
    std::fs::set_permissions(&root, Permissions::from_mode(0o4755)).unwrap();
    let mut command = without_terminal("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", LOCK_CLIENT]);
    command.args(["run", "r", "--locks", &redis.url(), "--"]).arg(root);
    command.args(["--reuid=0", "--regid=0", "--clear-groups", "sh", "-c"]);
    command.arg("echo began; read go; exit 5");
    let mut run = Process::spawn("run", &command, folder.path()).unwrap();
    assert_eq!(run.line(PATIENCE).await.unwrap(), "began");
    run.signal(Signal::USR1).unwrap();
    let named = || Ok(run.stderr().unwrap().contains("SIGUSR1 did not reach the command: "));
    until(PATIENCE, named).await.unwrap();
    run.write_line("").unwrap();
    assert_eq!(run.exit(PATIENCE).await.unwrap().code(), Some(5));
}

/// A parent sees what has ended the command: a shell says "Killed", and a service manager counts a crash.
#[tokio::test]
async fn run_ends_by_the_signal_that_has_ended_the_command() {
    let redis = Redis::start().await.unwrap();
    let signals = [Signal::TERM, Signal::INT, Signal::HUP, Signal::KILL, Signal::SEGV];
    for signal in signals {
        let mut run = Run::start(&redis, &[], "echo $$; exec sleep 600");
        let command = Pid::from_raw(run.pid().await.cast_signed()).unwrap();
        run.event("started").await;
        kill_process(command, signal).unwrap();
        let status = run.process().exit(PATIENCE).await.unwrap();
        assert_eq!(status.signal(), Some(signal.as_raw()));
        assert_eq!(run.event("killed").await["signal"], signal.as_raw());
        assert_eq!(run.event_names().last().unwrap(), "released");
    }
    // The control: a command that takes the signal exits by itself.
    let mut run = Run::start(&redis, &[], "trap 'exit 130' INT; echo began; read go");
    assert_eq!(run.line().await, "began");
    run.signal(Signal::INT);
    assert_eq!(run.process().exit(PATIENCE).await.unwrap().code(), Some(130));
}

/// Linux does not end the first process of a container by a signal of its own.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn first_process_of_a_container_exits_with_128_and_the_signal() {
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut command = without_terminal("unshare");
    if !geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--pid", "--fork", "--mount-proc", LOCK_CLIENT, "run", "r", "--locks"]);
    command.args([&redis.url(), "--", "sh", "-c", "echo $PPID; exec sleep 600"]);
    let mut unshare = Process::spawn("unshare", &command, folder.path()).unwrap();
    assert_eq!(unshare.line(PATIENCE).await.unwrap(), "1");
    let parent = unshare.pid().as_raw_pid();
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let first = children.unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(first).unwrap(), Signal::TERM).unwrap();
    assert_eq!(unshare.exit(PATIENCE).await.unwrap().code(), Some(143));
    assert_eq!(locks(&redis).status(&name("r")).await.unwrap().held, None);
}

/// A program that waits for signals by itself, such as a supervisor, may start others with these
/// signals blocked.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn signals_that_the_parent_has_blocked_are_taken() {
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (script, end) in [("exit 5", 5), ("echo began; exec sleep 600", 143)] {
        let mut command = without_terminal("env");
        command.args(["--block-signal", LOCK_CLIENT, "run", "r", "--locks", &redis.url()]);
        command.args(["--", "sh", "-c", script]);
        let mut run = Process::spawn("run", &command, folder.path()).unwrap();
        if end == 143 {
            assert_eq!(run.line(PATIENCE).await.unwrap(), "began");
            run.signal(Signal::TERM).unwrap();
        }
        assert_eq!(code(run.exit(PATIENCE).await.unwrap()), end);
    }
}

#[tokio::test]
async fn signal_that_was_ignored_from_the_start_stays_ignored() {
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (trap, survives) in [(r#"trap "" HUP; "#, true), ("", false)] {
        let script = format!(r#"{trap}exec "$@""#);
        let mut command = without_terminal("sh");
        command.args(["-c", &script, "sh"]).arg(LOCK_CLIENT);
        command.args(["run", "r", "--locks", &redis.url(), "--", "sh", "-c"]);
        command.arg("echo $$; read go; echo continued");
        let mut run = Process::spawn("run", &command, folder.path()).unwrap();
        let child: u32 = run.line(PATIENCE).await.unwrap().parse().unwrap();
        run.signal(Signal::HUP).unwrap();
        if survives {
            // Also to the command itself, as a terminal that closes sends it.
            kill_process(Pid::from_raw(child.cast_signed()).unwrap(), Signal::HUP).unwrap();
            run.write_line("").unwrap();
            assert_eq!(run.line(PATIENCE).await.unwrap(), "continued");
            assert_eq!(run.exit(PATIENCE).await.unwrap().code(), Some(0));
        } else {
            assert_eq!(code(run.exit(PATIENCE).await.unwrap()), 129, "the control");
        }
    }
}

/// The Rust runtime ignores SIGPIPE. The command must inherit what this process was started with: it
/// may rely on SIGPIPE to end it.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn command_inherits_whether_sigpipe_is_ignored() {
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (trap, ignores) in [("", false), ("trap '' PIPE; ", true)] {
        let mut command = without_terminal("sh");
        command.arg("-c").arg(format!("{trap}exec \"$@\"")).args(["sh", LOCK_CLIENT, "run", "r"]);
        command.args(["--locks", &redis.url(), "--", "grep", "SigIgn", "/proc/self/status"]);
        let mut run = Process::spawn("run", &command, folder.path()).unwrap();
        let line = run.line(PATIENCE).await.unwrap();
        let mask = u64::from_str_radix(line.rsplit('\t').next().unwrap(), 16).unwrap();
        assert_eq!(mask >> (Signal::PIPE.as_raw() - 1) & 1 == 1, ignores, "{line}");
        assert_eq!(run.exit(PATIENCE).await.unwrap().code(), Some(0));
    }
}

#[tokio::test]
async fn signal_ends_the_wait_and_leaves_nothing_behind() {
    let redis = Redis::start().await.unwrap();
    let locks = locks(&redis);
    let lease = locks.acquire(&name("r"), Ttl::from_secs(60).unwrap()).await.unwrap();
    let queued = async || locks.status(&name("r")).await.unwrap().queued;
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::USR1, 138)] {
        let mut run = Run::start(&redis, &["--fair"], "echo it ran");
        until_async(PATIENCE, || async { Ok(queued().await == 1) }).await.unwrap();
        run.signal(signal);
        assert_eq!(run.exit_code().await, code);
        assert_eq!(queued().await, 0, "a run that has ended has left the queue");
        assert_eq!(run.event_names(), ["interrupted"]);
    }
    // The control: a run that is killed stays in the queue for a while.
    let mut run = Run::start(&redis, &["--fair"], "echo it ran");
    until_async(PATIENCE, || async { Ok(queued().await == 1) }).await.unwrap();
    run.process().kill().unwrap();
    assert_eq!(queued().await, 1);
    lease.release().await.unwrap();
}

/// `systemctl stop` with `KillMode=mixed` signals the main process, and the command through it.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn unit_of_the_readme_is_valid_and_stops_the_command_once() {
    let readme = include_str!("../README.md");
    let unit = readme.split("```ini\n").nth(1).unwrap().split("```").next().unwrap();
    assert!(unit.contains("\nKillMode=mixed\n"));
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let (program, arguments) = start.split_once(' ').unwrap();
    let (arguments, worker) = arguments.split_once(" -- ").unwrap();

    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("worker.service");
    let here = unit.replace(program, LOCK_CLIENT).replace(worker, "/bin/true");
    std::fs::write(&path, here).unwrap();
    let analyze = testbed::installed("systemd-analyze", &[], "the package systemd").unwrap();
    let verified = std::process::Command::new(analyze).arg("verify").arg(&path).output().unwrap();
    let found = String::from_utf8_lossy(&verified.stderr);
    assert!(!found.contains("worker.service"), "{found}");

    let mut service = without_terminal(LOCK_CLIENT);
    service.args(arguments.split(' ')).env("FENCED_LOCKS", redis.url());
    let script = "trap 'echo TERM; sleep 0.3 & wait $!; exit 0' TERM; echo began; sleep 600 & wait";
    service.args(["--", "bash", "-c", script]);
    let mut service = Process::spawn("service", &service, folder.path()).unwrap();
    assert_eq!(service.line(PATIENCE).await.unwrap(), "began");
    service.signal(Signal::TERM).unwrap();
    assert_eq!(service.line(PATIENCE).await.unwrap(), "TERM");
    assert_eq!(service.exit(PATIENCE).await.unwrap().code(), Some(0));
    assert!(service.line(PATIENCE).await.is_err(), "and not once more");
}
