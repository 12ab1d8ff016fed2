//! `lock-client run` and signals: forwarded, and ending a wait.

use std::time::Duration;

use lock_client::Ttl;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use testbed::{Redis, process::Process, wait::until_async};
use tokio::time::sleep;

use crate::programs::LOCK_CLIENT;
use crate::{
    command::{PATIENCE, Run, locks, without_terminal},
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
            if std::fs::read_to_string(&children).unwrap().split_whitespace().count() > 1 {
                kill_process(pid, Signal::STOP).unwrap();
                break;
            }
        }
        sleep(Duration::from_millis(50)).await;
        kill_process(pid, Signal::CONT).unwrap();
        assert_eq!(run.exit_code().await, 130);
    }
}

#[tokio::test]
async fn command_ended_by_a_forwarded_signal_exits_with_128_and_its_number() {
    let redis = Redis::start().await.unwrap();
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let mut run = Run::start(&redis, &[], "echo began; exec sleep 600");
        assert_eq!(run.line().await, "began");
        run.event("started").await;
        run.signal(signal);
        assert_eq!(run.exit_code().await, code);
        assert_eq!(run.event("killed").await["signal"], signal.as_raw());
        assert_eq!(run.event_names().last().unwrap(), "released");
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
            assert_eq!(run.exit(PATIENCE).await.unwrap().code(), Some(129), "the control");
        }
    }
}

/// Wrapper and command both receive SIGINT from a terminal; forwarded, it would come twice. A
/// command that is detached by `setsid` does not receive it from the terminal.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn interrupt_from_a_terminal_comes_once() {
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let listen = r#"trap 'echo INT' INT; echo $PPID
        while [ ! -e "$END" ]; do sleep 0.02; done; echo over"#;
    let script = folder.path().join("listen");
    std::fs::write(&script, listen).unwrap();
    for (session, by_terminal) in [("", true), ("setsid ", false)] {
        let end = folder.path().join(format!("end {session}"));
        let run = format!(
            "trap : INT; {} run r --locks {} -- {session}sh {}; exit $?",
            LOCK_CLIENT,
            redis.url(),
            script.display()
        );
        let mut command = without_terminal("script");
        command.args(["-qec", &run, "/dev/null"]).env("END", &end);
        let mut terminal = Process::spawn("terminal", &command, folder.path()).unwrap();
        let wrapper = terminal.line(PATIENCE).await.unwrap().trim().parse().unwrap();
        let wrapper = Pid::from_raw(wrapper).unwrap();
        // Two signals become one if the second comes before the first is taken. So the wrapper is
        // stopped until the command has taken its own.
        kill_process(wrapper, Signal::STOP).unwrap();
        terminal.write_line("\u{3}").unwrap();
        let mut printed = String::new();
        if !by_terminal {
            kill_process(wrapper, Signal::CONT).unwrap();
        }
        while !printed.contains("INT") {
            printed += &terminal.line(PATIENCE).await.unwrap();
        }
        kill_process(wrapper, Signal::CONT).unwrap();
        // Nothing else shows that it does not come once more.
        sleep(Duration::from_millis(200)).await;
        std::fs::write(&end, "").unwrap();
        while !printed.contains("over") {
            printed += &terminal.line(PATIENCE).await.unwrap();
        }
        assert_eq!(printed.matches("INT").count(), 1, "{session}: {printed}");
        assert_eq!(terminal.exit(PATIENCE).await.unwrap().code(), Some(0));
    }
}

/// In the foreground of a terminal, but not from the terminal.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn interrupt_to_run_alone_is_forwarded() {
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("listen");
    let listen = "trap 'echo INT; exit' INT; echo $PPID; while :; do sleep 0.02; done";
    std::fs::write(&script, listen).unwrap();
    let run = format!("{LOCK_CLIENT} run r --locks {} -- sh {}", redis.url(), script.display());
    let mut command = without_terminal("script");
    command.args(["-qec", &run, "/dev/null"]);
    let mut terminal = Process::spawn("terminal", &command, folder.path()).unwrap();
    let wrapper = terminal.line(PATIENCE).await.unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(wrapper).unwrap(), Signal::INT).unwrap();
    assert_eq!(terminal.line(PATIENCE).await.unwrap().trim(), "INT");
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

/// A shell ends its loop if SIGINT itself ended the program in it. It continues after an exit with
/// 130.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn interrupt_from_a_terminal_ends_the_loop_of_a_shell() {
    let redis = Redis::start().await.unwrap();
    let locks = locks(&redis);
    let lease = locks.acquire(&name("held"), Ttl::from_secs(60).unwrap()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("loop");
    for run in ["run r -- sh -c 'exec sleep 600'", "run held --fair -- true"] {
        let program = LOCK_CLIENT;
        let round = format!("echo round; {} {run}", program);
        std::fs::write(&script, format!("for i in 1 2 3; do {round}; done")).unwrap();
        let looped = format!("trap : INT; bash {}; echo over $?", script.display());
        let mut command = without_terminal("script");
        command.args(["-qec", &looped, "/dev/null"]).env("FENCED_LOCKS", redis.url());
        let mut terminal = Process::spawn("terminal", &command, folder.path()).unwrap();
        assert_eq!(terminal.line(PATIENCE).await.unwrap().trim(), "round");
        let has_begun = || async {
            let (r, held) = (locks.status(&name("r")).await?, locks.status(&name("held")).await?);
            Ok(r.held.is_some() || held.queued == 1)
        };
        until_async(PATIENCE, has_begun).await.unwrap();
        terminal.write_line("\u{3}").unwrap();
        let mut printed = String::new();
        while !printed.contains("over") {
            printed += &terminal.line(PATIENCE).await.unwrap();
        }
        assert!(printed.contains("over 130") && !printed.contains("round"), "{run}: {printed}");
        assert_eq!(
            locks.status(&name("r")).await.unwrap().held,
            None,
            "the lock is released before"
        );
    }
    lease.release().await.unwrap();
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
