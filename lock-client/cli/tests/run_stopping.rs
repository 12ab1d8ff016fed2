//! `lock-client run` that is stopped and continued: by Ctrl-Z, `fg` and `bg`, or by a signal.

use std::{fs, time::Duration};

use rustix::{
    fs::{CWD, Mode, mkfifoat},
    process::{Signal, getpgid, kill_process},
};
use testbed::{
    Redis,
    process::{Process, lives},
    wait::{until, until_async},
};
use tokio::time::sleep;

use crate::{
    command::{PATIENCE, Run, as_nobody, as_root, state},
    terminal::{
        CTRL_C, CTRL_Z, SHELL, Terminal, is_free, is_stopped, parent, pid, stat,
        until_in_foreground, until_stopped,
    },
};

#[tokio::test]
async fn ctrl_z_stops_run_and_command_and_bg_and_fg_continue_both() {
    let redis = Redis::start().await.unwrap();
    let mut terminal = Terminal::start(&redis, SHELL);
    // Once from the foreground, and once from the background, where the command has its own group.
    for (end, shares_group) in [("", true), (" &", false)] {
        terminal.type_line(&format!("$LC run r -- sh $WORKER{end}"));
        let pids = terminal.pids().await;
        assert_eq!(getpgid(Some(pid(pids.0))) == getpgid(Some(pid(pids.1))), shares_group);
        if !shares_group {
            terminal.type_line("fg");
            until_in_foreground(pids.1).await;
        }
        terminal.type_line(CTRL_Z);
        until_stopped(&[pids.0, pids.1], true).await;
        terminal.type_line("bg");
        until_stopped(&[pids.0, pids.1], false).await;
        terminal.type_line("fg");
        until_in_foreground(pids.1).await;
        terminal.type_line(CTRL_C);
        until_async(PATIENCE, async || is_free(&redis).await).await.unwrap();
        until(PATIENCE, || Ok(!lives(pids.1))).await.unwrap();
        // An interactive shell leaves out the rest of a line that SIGINT has ended.
        terminal.type_line("echo over $?");
        terminal.until("over 130").await;
    }
}

/// `timeout` leaves the group of `run` when it has started. The terminal's signals don't reach it then.
#[tokio::test]
async fn ctrl_z_stops_what_has_left_the_group_of_run() {
    let redis = Redis::start().await.unwrap();
    let mut terminal = Terminal::start(&redis, SHELL);
    // The command itself, and a process that it has started.
    for (command, generations) in
        [("timeout 600 sh $WORKER", 1), ("sh -c 'timeout 600 sh $WORKER; :'", 2)]
    {
        terminal.type_line(&format!("$LC run r --kill-after 500ms -- {command}"));
        let (worker, timeout) = terminal.pids().await;
        assert_ne!(getpgid(Some(pid(timeout))), getpgid(Some(pid(parent(timeout)))));
        let mut all = vec![worker, timeout];
        for _ in 0..generations {
            all.push(parent(all[all.len() - 1]));
        }
        terminal.type_line(CTRL_Z);
        until_stopped(&all, true).await;
        terminal.type_line("bg");
        until_stopped(&all, false).await;
        let run = all[all.len() - 1];
        terminal.type_line("fg");
        until_in_foreground(run).await;
        terminal.end_worker();
        until_async(PATIENCE, async || is_free(&redis).await).await.unwrap();
        until(PATIENCE, || Ok(!lives(run))).await.unwrap();
        fs::remove_file(terminal.folder.path().join("end")).unwrap();
    }
}

/// The leader of a session can't be stopped by its terminal. `run` renews the lock for it.
#[tokio::test]
async fn ctrl_z_does_not_stop_run_alone() {
    let redis = Redis::start().await.unwrap();
    let mut terminal = Terminal::start(&redis, SHELL);
    for command in ["setsid sh $WORKER", "sh -c 'trap \"\" TSTP; . $WORKER'"] {
        terminal.type_line(&format!("$LC run r -- {command}"));
        let (worker, run) = terminal.pids().await;
        terminal.type_line(CTRL_Z);
        sleep(Duration::from_millis(1_500)).await;
        assert!(!is_stopped(run) && !is_stopped(worker), "{command}");
        kill_process(pid(run), Signal::TERM).unwrap();
        terminal.until("TERM").await;
        terminal.end_worker();
        until_async(PATIENCE, async || is_free(&redis).await).await.unwrap();
        until(PATIENCE, || Ok(!lives(run))).await.unwrap();
        fs::remove_file(terminal.folder.path().join("end")).unwrap();
    }
}

/// The command waits for its child to execute a program, and takes SIGSTOP only after that. SIGCONT
/// comes to run alone.
#[tokio::test]
async fn command_that_could_not_stop_yet_continues_with_run() {
    let redis = Redis::start().await.unwrap();
    let mut terminal = Terminal::start(&redis, SHELL);
    let path = |file: &str| terminal.folder.path().join(file);
    let (script, file) = (path("waiting"), path("file"));
    mkfifoat(CWD, &file, Mode::RWXU).unwrap();
    let waiting = r#"import os, sys
print("pids", os.getpid(), os.getppid(), flush=True)
open_file = (os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)
os.posix_spawn("/bin/true", ["true"], os.environ, file_actions=[open_file])
print("worker", "over", flush=True)"#;
    fs::write(&script, waiting).unwrap();
    let (script, file) = (script.display(), file.display());
    terminal.type_line(&format!("$LC run r -- python3 {script} {file}"));
    let (command, run) = terminal.pids().await;
    until(PATIENCE, || Ok(stat(command)[0] == "D")).await.unwrap();
    terminal.type_line(CTRL_Z);
    until_stopped(&[run], true).await;
    // Until the shell has noticed it, it waits for run, and reads no line.
    terminal.until("Stopped").await;
    kill_process(pid(run), Signal::CONT).unwrap();
    until_stopped(&[run], false).await;
    // In between, run looks at its processes, which takes a moment. The shell opens the file.
    sleep(Duration::from_millis(300)).await;
    terminal.type_line(&format!("echo > {file}"));
    terminal.until("worker over").await;
    until_async(PATIENCE, async || is_free(&redis).await).await.unwrap();
}

#[tokio::test]
async fn ctrl_z_stops_run_and_what_is_left() {
    let redis = Redis::start().await.unwrap();
    // A shell that waits for a child to execute its program can't be stopped in that moment.
    let mut run = Run::start(&redis, &[], "sh -c 'echo $$; exec sleep 600' & echo $$; exit 5");
    let pids = [run.pid().await, run.pid().await];
    run.event("exited").await;
    let worker = pids.into_iter().find(|pid| lives(*pid)).unwrap();
    let wrapper = run.process().pid().as_raw_pid().cast_unsigned();
    for (signal, stops) in [(Signal::TSTP, true), (Signal::CONT, false)] {
        run.signal(signal);
        until(PATIENCE, || Ok([wrapper, worker].map(|pid| state(pid) == 'T') == [stops; 2]))
            .await
            .unwrap();
    }
    run.signal(Signal::TERM);
    assert_eq!(run.exit_code().await, 5);
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
    mkfifoat(CWD, &file, Mode::RWXU).unwrap();
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
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let root = as_root(&redis, folder.path()) + " sleep 601";
    // The control: a process of the same user is stopped.
    for (worker, stops) in [(&*root, false), ("sleep 601", true)] {
        let mut command = as_nobody();
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
            assert!(!is_free(&redis).await.unwrap(), "it is renewed");
            assert!(![wrapper, pids[0], pids[1]].map(state).contains(&'T'));
        }
        let worker = pid(pids[0]);
        kill_process(worker, Signal::KILL).unwrap();
        run.kill().unwrap();
    }
}
