//! `lock-client run` when it is killed.

use std::{process::Command, time::Duration};

use rustix::process::{Pid, Signal, getsid, kill_process, kill_process_group};
use testbed::{
    Redis,
    process::{Process, lives},
    wait::until,
};

use crate::{
    command::{PATIENCE, Run, state},
    programs::LOCK_CLIENT,
};

async fn until_dead(pid: u32) {
    until(PATIENCE, || Ok(!lives(pid))).await.unwrap();
}

fn id(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed()).unwrap()
}

fn kill(pid: u32) {
    let _ = kill_process(id(pid), Signal::KILL);
}

/// Kills a process when it is dropped, also one that has stopped.
struct KilledOnDrop(u32);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        kill(self.0);
    }
}

#[tokio::test]
async fn command_dies_with_a_killed_wrapper() {
    let redis = Redis::start().await.unwrap();
    let mut run =
        Run::start(&redis, &[], "trap '' HUP INT TERM; echo $$; sleep 600 & echo $!; wait");
    let (child, grandchild) = (run.pid().await, run.pid().await);
    assert!(lives(child) && lives(grandchild));
    run.process().kill().unwrap();
    until_dead(child).await;
    assert!(lives(grandchild), "as the help says: what the command has started lives on");
    kill(grandchild);
}

/// The command has a group of its own: without a terminal, a signal to the wrapper's misses it.
#[tokio::test]
async fn command_dies_with_the_killed_group_of_its_wrapper() {
    let redis = Redis::start().await.unwrap();
    let mut run =
        Run::start(&redis, &[], "trap '' HUP INT TERM; echo $$; while :; do sleep 1; done");
    let child = run.pid().await;
    kill_process_group(run.process().pid(), Signal::KILL).unwrap();
    until_dead(child).await;
}

/// Nobody is left that knows what the wrapper has stopped. The kernel sends SIGHUP and SIGCONT to a stopped
/// group that has lost its parents, but a session of its own had none before either.
#[tokio::test]
async fn only_a_session_of_its_own_stays_stopped_after_its_wrapper_is_killed() {
    let redis = Redis::start().await.unwrap();
    let script = "sleep 600 & echo $!; timeout 600 sleep 600 & echo $!
        setsid sleep 600 & echo $!; echo $$; wait";
    let mut run = Run::start(&redis, &[], script);
    let (job, own_group, own_session) = (run.pid().await, run.pid().await, run.pid().await);
    let command = run.pid().await;
    let _guard = KilledOnDrop(own_session);
    let is_detached = || Ok(getsid(Some(id(own_session))) == Ok(id(own_session)));
    until(PATIENCE, is_detached).await.unwrap();
    let wrapper = run.process().pid().as_raw_pid().cast_unsigned();
    run.signal(Signal::TSTP);
    let all = [job, own_group, own_session, command, wrapper];
    until(PATIENCE, || Ok(all.iter().all(|pid| state(*pid) == 'T'))).await.unwrap();
    run.process().kill().unwrap();
    for pid in [job, own_group, command] {
        until_dead(pid).await;
    }
    assert_eq!(state(own_session), 'T', "as the help says");
    kill_process(id(own_session), Signal::CONT).unwrap();
    until(PATIENCE, || Ok(state(own_session) == 'S')).await.unwrap();
}

/// The control for the tests above: without the wrapper, a child outlives its parent.
#[tokio::test]
async fn ordinary_child_outlives_its_killed_parent() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 600 & echo $!; wait"]);
    let mut parent = Process::spawn("parent", &command, folder.path()).unwrap();
    let child: u32 = parent.line(PATIENCE).await.unwrap().parse().unwrap();
    parent.kill().unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(lives(child));
    kill(child);
}

#[tokio::test]
async fn nested_commands_die_with_the_outermost_wrapper() {
    let redis = Redis::start().await.unwrap();
    let program = LOCK_CLIENT;
    // Without `exec`, the shell would be the command, and the inner wrapper only its child.
    let inner = format!("{} run other -- sh -c 'echo $$; read go'", program);
    let nested = format!("exec {} run r -- {inner}", program);
    let mut run = Run::start(&redis, &[], &nested);
    let child = run.pid().await;
    assert!(lives(child));
    run.process().kill().unwrap();
    until_dead(child).await;
}
