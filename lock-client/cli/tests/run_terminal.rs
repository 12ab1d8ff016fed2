//! `lock-client run` on a terminal: the signals of its keys, the foreground and the background.

use std::time::Duration;

use lock_client::Ttl;
use rustix::process::{Pid, Signal, getpgid, kill_process};
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
    terminal::{CTRL_BACKSLASH, CTRL_C, SHELL, Terminal, is_free, is_stopped, parent, pid},
};

/// After `stty tostop`, the terminal stops a process in the background that writes to it.
#[tokio::test]
async fn message_in_the_background_does_not_stop_run() {
    let redis = Redis::start().await.unwrap();
    let mut terminal = Terminal::start(&redis, &format!("stty tostop; {SHELL}"));
    for (options, printed) in [
        ("", "run waits for process"),
        ("--status-fd 3", "exited"),
        // The last message, before the end.
        ("--kill-after 1h", "is too long for a ttl"),
    ] {
        // The shell prints the process id of its job. The terminal may also print what is typed.
        let run = format!("$LC run r {options} -- sh -c 'sleep 600 &' 3>&1");
        terminal.type_line(&format!("{run} & echo 'p'id $!"));
        let line = terminal.until("pid ").await;
        let run = line.rsplit_once("pid ").unwrap().1.trim().parse().unwrap();
        terminal.until(printed).await;
        if lives(run) {
            assert!(!is_stopped(run));
            kill_process(pid(run), Signal::TERM).unwrap();
        }
        until(PATIENCE, || Ok(!lives(run))).await.unwrap();
        until_async(PATIENCE, async || is_free(&redis).await).await.unwrap();
    }
}

/// In the background, run is all that the shell signals.
#[tokio::test]
async fn signal_to_a_background_job_comes_once() {
    let redis = Redis::start().await.unwrap();
    let mut terminal = Terminal::start(&redis, SHELL);
    terminal.type_line("$LC run r -- sh $WORKER &");
    terminal.pids().await;
    for signal in ["USR1", "TERM"] {
        terminal.type_line(&format!("kill -{signal} %1"));
        terminal.until(signal).await;
    }
    sleep(Duration::from_millis(200)).await;
    terminal.end_worker();
    let printed = terminal.until("worker over").await;
    assert!(!printed.contains("TERM") && !printed.contains("USR1"), "{printed}");
}

/// The pager reads its keys from the terminal, which only the foreground may do.
#[tokio::test]
async fn pager_behind_a_pipe_reads_the_terminal() {
    let redis = Redis::start().await.unwrap();
    let pager = r#"{ cat; read key < /dev/tty; echo "key $key"; }"#;
    for script in [
        format!("$LC run r -- echo text | {pager}"),
        format!("$LC run r -- sh -c 'echo text | {pager}'"),
    ] {
        for shell in [SHELL, "exec sh"] {
            let mut terminal = Terminal::start(&redis, shell);
            terminal.type_line(&script);
            terminal.until("text\n").await;
            terminal.type_line("q");
            terminal.until("key q").await;
        }
    }
}

#[tokio::test]
async fn jobs_of_make_read_the_terminal_and_ctrl_c_ends_them() {
    let redis = Redis::start().await.unwrap();
    let mut terminal = Terminal::start(&redis, SHELL);
    let makefile = terminal.folder.path().join("Makefile");
    let job = |name: &str| format!("{name}:\n\t@$$LC run {name} -- sh -c");
    // A job reads a whole line at once: a shell's `read` takes single bytes, also those of the other's line.
    let reads = "'head -n 1 < /dev/tty; exec sleep 600'";
    let rules = format!("all: one two\n{} {reads}\n{} {reads}\n", job("one"), job("two"));
    std::fs::write(&makefile, rules).unwrap();
    terminal.type_line(&format!("make -j2 -f {}", makefile.display()));
    let locks = locks(&redis);
    let held = async |name: &str| -> anyhow::Result<bool> {
        Ok(locks.status(&crate::names::name(name)).await?.held.is_some())
    };
    until_async(PATIENCE, async || Ok(held("one").await? && held("two").await?)).await.unwrap();
    terminal.type_line("first");
    terminal.until("first").await;
    terminal.type_line("second");
    terminal.until("second").await;
    terminal.type_line(CTRL_C);
    until_async(PATIENCE, async || Ok(!held("one").await? && !held("two").await?)).await.unwrap();
}

/// A shell with job control makes `timeout` the leader of the foreground group. It signals its child,
/// and without --foreground its group too, where the command is.
#[tokio::test]
async fn timeout_on_a_terminal_ends_the_command() {
    let redis = Redis::start().await.unwrap();
    for (options, repeated) in [("", 1), ("--foreground", 0)] {
        let mut terminal = Terminal::start(&redis, SHELL);
        terminal.type_line(&format!("timeout {options} 600 $LC run r -- sh $WORKER; echo over $?"));
        let pids = terminal.pids().await;
        // Its time is over at once.
        kill_process(pid(parent(pids.1)), Signal::ALARM).unwrap();
        terminal.until("TERM").await;
        sleep(Duration::from_millis(200)).await;
        terminal.end_worker();
        let printed = terminal.until("over 124").await;
        assert!(printed.matches("TERM").count() <= repeated, "{options}: {printed}");
    }
}

/// As under `ssh -t`, where nobody else is on the terminal. The kernel tells this process alone.
#[tokio::test]
async fn terminal_that_is_closed_ends_the_command_of_its_leader() {
    let redis = Redis::start().await.unwrap();
    let mut terminal =
        Terminal::start(&redis, "exec $LC run r -- sh -c 'echo pids $$ $PPID; exec sleep 600'");
    let pids = terminal.pids().await;
    assert_eq!(rustix::process::getsid(Some(pid(pids.1))), Ok(pid(pids.1)));
    terminal.process.kill().unwrap();
    until(PATIENCE, || Ok(!lives(pids.0) && !lives(pids.1))).await.unwrap();
    until_async(PATIENCE, async || is_free(&redis).await).await.unwrap();
}

#[tokio::test]
async fn command_under_nohup_outlives_its_terminal() {
    let redis = Redis::start().await.unwrap();
    for (nohup, survives) in [("nohup ", true), ("", false)] {
        let mut terminal = Terminal::start(&redis, SHELL);
        let out = terminal.folder.path().join("out");
        let run = format!("{nohup}$LC run r --no-wait -- sh $WORKER > {} 2>&1 &", out.display());
        terminal.type_line(&run);
        let begun = || Ok(std::fs::read_to_string(&out).unwrap_or_default().contains("pids "));
        until(PATIENCE, begun).await.unwrap();
        terminal.process.kill().unwrap();
        if survives {
            sleep(Duration::from_millis(300)).await;
            assert!(!is_free(&redis).await.unwrap());
            terminal.end_worker();
        }
        until_async(PATIENCE, async || is_free(&redis).await).await.unwrap();
        let printed = std::fs::read_to_string(&out).unwrap();
        assert_eq!(printed.contains("worker over"), survives, "{printed}");
    }
}

/// As under cron, and as a service: without a terminal.
#[tokio::test]
async fn command_without_a_terminal_has_a_group_of_its_own() {
    let redis = Redis::start().await.unwrap();
    let mut run = Run::start(&redis, &[], "echo $$; read go");
    let command = pid(run.pid().await);
    assert_eq!(getpgid(Some(command)), Ok(command));
    run.continue_script();
    assert_eq!(run.exit_code().await, 0);
}

/// Wrapper and command both receive SIGINT from a terminal; forwarded, it would come twice. A
/// command that is detached by `setsid` does not receive it from the terminal.
#[tokio::test]
async fn interrupt_from_a_terminal_comes_once() {
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let listen = r#"trap 'echo INT' INT; trap 'echo QUIT' QUIT; echo $PPID
        while [ ! -e "$END" ]; do sleep 0.02; done; echo over"#;
    let script = folder.path().join("listen");
    std::fs::write(&script, listen).unwrap();
    for (session, by_terminal, key, signal) in [
        ("", true, CTRL_C, "INT"),
        ("setsid ", false, CTRL_C, "INT"),
        ("", true, CTRL_BACKSLASH, "QUIT"),
        ("setsid ", false, CTRL_BACKSLASH, "QUIT"),
    ] {
        let end = folder.path().join(format!("end {session} {signal}"));
        let started = folder.path().join(format!("started-{by_terminal}-{signal}"));
        let run = format!(
            "trap : INT QUIT; {} run r --status-fd 3 --locks {} -- {session}sh {} 3> {}; exit $?",
            LOCK_CLIENT,
            redis.url(),
            script.display(),
            started.display()
        );
        let mut command = without_terminal("script");
        command.args(["-qec", &run, "/dev/null"]).env("END", &end);
        let mut terminal = Process::spawn("terminal", &command, folder.path()).unwrap();
        let wrapper = terminal.line(PATIENCE).await.unwrap().trim().parse().unwrap();
        let wrapper = Pid::from_raw(wrapper).unwrap();
        let has_started = || Ok(std::fs::read_to_string(&started)?.contains("started"));
        until(PATIENCE, has_started).await.unwrap();
        // Two signals become one if the second comes before the first is taken. So the wrapper is
        // stopped until the command has taken its own.
        kill_process(wrapper, Signal::STOP).unwrap();
        terminal.write_line(key).unwrap();
        let mut printed = String::new();
        if !by_terminal {
            kill_process(wrapper, Signal::CONT).unwrap();
        }
        while !printed.contains(signal) {
            printed += &terminal.line(PATIENCE).await.unwrap();
        }
        kill_process(wrapper, Signal::CONT).unwrap();
        // Nothing else shows that it does not come once more.
        sleep(Duration::from_millis(200)).await;
        std::fs::write(&end, "").unwrap();
        while !printed.contains("over") {
            printed += &terminal.line(PATIENCE).await.unwrap();
        }
        assert_eq!(printed.matches(signal).count(), 1, "{session}: {printed}");
        assert_eq!(terminal.exit(PATIENCE).await.unwrap().code(), Some(0));
    }
}

/// In the foreground of a terminal, but not from the terminal.
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

/// A shell ends its loop if SIGINT itself ended the program in it. It continues after an exit with
/// 130.
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
