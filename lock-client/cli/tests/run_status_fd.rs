//! `lock-client run --status-fd`: the events on pipes, files and sockets.

use std::{
    io::{Read, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Output, Stdio},
    time::Duration,
};

use testbed::{Redis, wait::until};
use tokio::time::sleep;

use crate::command::{PATIENCE, assert_failed, command, events, names, output};

/// Runs a script with the status piped to a reader, and prints the exit code of the wrapper. For
/// both, `$END` names a file that exists when the wrapper has ended, and `$BEGUN` one that they may
/// create.
async fn run_with_status_piped_to(reader: &str, redis: &Redis, script: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let pipe = format!(
        r#"{{ timeout -s KILL 20 "$0" run r --locks "$1" --status-fd 3 -- sh -c "$2" 3>&1 >&2
            echo "code $?" >&2; : > "$END"; }} | {{ {reader}; }}"#
    );
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &pipe]).arg(command(&[]).get_program()).args([&redis.url(), script]);
    shell.env("END", folder.path().join("end")).env("BEGUN", folder.path().join("begun"));
    output(shell).await
}

#[tokio::test]
async fn status_may_go_to_a_pipe() {
    let redis = Redis::start().await.unwrap();
    let output = run_with_status_piped_to("cat", &redis, "exit 5").await;
    assert_eq!(String::from_utf8_lossy(&output.stderr), "code 5\n");
    let events = events(&output);
    assert_eq!(names(&events), ["acquired", "started", "exited", "released"]);
    assert_eq!(events[0]["resource"], "r");
    assert!(events[0]["token"].is_u64() && events[0]["deadline_ms"].is_u64(), "{}", events[0]);
}

/// Neither a reader that is gone nor a full pipe stops the wrapper.
#[tokio::test]
async fn status_needs_no_reader() {
    let redis = Redis::start().await.unwrap();
    let no_reader = r#"exec <&-; : > "$BEGUN""#;
    let script = r#"while [ ! -e "$BEGUN" ]; do sleep 0.02; done; exit 5"#;
    let output = run_with_status_piped_to(no_reader, &redis, script).await;
    assert_eq!(String::from_utf8_lossy(&output.stderr), "code 5\n");

    let reads_nothing = r#"while [ ! -e "$END" ]; do sleep 0.02; done"#;
    let fill = "dd if=/dev/zero oflag=nonblock bs=1 >&3 2>&-; exit 5";
    let output = run_with_status_piped_to(reads_nothing, &redis, fill).await;
    assert_eq!(String::from_utf8_lossy(&output.stderr), "code 5\n");
}

/// The command opens descriptors of its own, which must not be mistaken for inherited ones.
#[tokio::test]
async fn descriptor_that_is_not_inherited_is_64() {
    let redis = Redis::start().await.unwrap();
    for number in 3..10 {
        let mut shell = std::process::Command::new("sh");
        let closed = r#"exec "$@" 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-"#;
        shell.args(["-c", closed, "sh"]).arg(command(&[]).get_program());
        shell.args(["run", "r", "--locks", &redis.url(), "--status-fd", &number.to_string()]);
        shell.args(["--", "true"]);
        assert_failed(
            &output(shell).await,
            64,
            &format!("--status-fd {number} can't be written to"),
        );
    }
}

#[tokio::test]
async fn status_overwrites_nothing_in_a_file_that_the_command_writes_to() {
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (number, script) in [
        ("1", "echo one; read go; echo two"),
        ("2", "echo one >&2; read go; echo two >&2"),
        #[cfg(target_os = "linux")]
        ("3", "echo one; read go; echo two"),
    ] {
        let file = folder.path().join(number);
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", r#"file=$1; shift; "$@" </dev/null >"$file" 2>&1 3>&1"#, "sh"])
            .arg(&file);
        shell.arg(command(&[]).get_program()).args(["run", "r", "--locks", &redis.url()]);
        shell.args(["--status-fd", number, "--", "sh", "-c", script]);
        assert!(output(shell).await.status.success());
        let written = std::fs::read_to_string(&file).unwrap();
        let (events, printed): (Vec<_>, Vec<_>) =
            written.lines().partition(|line| line.starts_with(r#"{"event":"#));
        assert_eq!((events.len(), printed), (4, vec!["one", "two"]), "{written}");
    }
}

#[tokio::test]
async fn status_may_go_to_a_socket_and_needs_no_reader() {
    let redis = Redis::start().await.unwrap();
    let run = |script: &str| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let redis = redis.url();
        let mut run = command(&["run", "r", "--locks", &redis, "--status-fd", "1", "--"]);
        run.args(["sh", "-c", script]).stdout(OwnedFd::from(theirs)).stdin(Stdio::null());
        (ours, run)
    };
    let (mut ours, mut reported) = run("exit 5");
    let status = tokio::task::spawn_blocking(move || reported.status().unwrap()).await.unwrap();
    assert_eq!(status.code(), Some(5));
    let mut events = String::new();
    ours.read_to_string(&mut events).unwrap();
    assert_eq!(events.lines().count(), 4, "{events}");

    // The command fills the socket, which has no reader.
    let (unread, mut filling) = run("dd if=/dev/zero oflag=nonblock bs=1024 2>&-; exit 5");
    let status = tokio::task::spawn_blocking(move || filling.status().unwrap()).await.unwrap();
    assert_eq!(status.code(), Some(5));
    drop(unread);
}

/// Another process may have set the descriptor not to block. A write then fails, or takes a part.
#[tokio::test]
async fn status_waits_for_a_reader_though_the_descriptor_does_not_block() {
    let redis = Redis::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let begun = folder.path().join("begun");
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let mut filled = 0;
    while let Ok(written) = theirs.write(&[b'.'; 100]) {
        filled += written;
    }
    let url = redis.url();
    let mut run = command(&["run", "r", "--locks", &url, "--status-fd", "1", "--"]);
    run.args(["sh", "-c", r#": > "$BEGUN"; read go"#]).env("BEGUN", &begun);
    run.stdout(OwnedFd::from(theirs)).stdin(Stdio::piped());
    let mut child = run.spawn().unwrap();
    // It has the other end, too.
    drop(run);
    until(PATIENCE, || Ok(begun.exists())).await.unwrap();
    // Nothing else shows that it tries to write.
    sleep(Duration::from_millis(300)).await;
    let reading = tokio::task::spawn_blocking(move || {
        let mut printed = String::new();
        ours.read_to_string(&mut printed).map(|_| printed)
    });
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let printed = reading.await.unwrap().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let events: Vec<&str> = printed[filled..].lines().collect();
    assert_eq!(events.len(), 4, "{events:?}");
    assert!(events[0].starts_with(r#"{"event":"acquired""#), "{events:?}");
}
