//! What `lab replay` prints, for readers and for pipes.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, pipe},
    os::unix::fs::symlink,
    process::{Command, Stdio},
};

use anstream::adapter::strip_str;
use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use tempfile::TempDir;

use super::{REPLAY, assert_fits, lab, printed};

const LAB: &str = env!("CARGO_BIN_EXE_lab");
/// The exit code if the reader of stdout is gone.
const READER_GONE: Option<i32> = Some(141);

#[tokio::test]
async fn demo_explains_its_words_and_shows_the_value_changing() {
    let text = printed(&REPLAY).await;
    assert_fits(&text);
    let position = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part:?} is in {text}"));
    let story = position("seconds client 1");
    assert!(position("a limited time: a lease") < story, "the word comes with what it means");
    assert!(position("comes with a token, a number") < story);
    // The columns: the time, four tracks of 16 characters, and two between them.
    let storage: Vec<String> = text.lines().map(|line| line.chars().skip(62).collect()).collect();
    let storage = storage.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
    for change in [
        "accepts 34: nothing → 'by client 2'",
        "accepts 33: 'by client 2' → 'by client 1': NEWER DATA IS LOST",
        "REJECTS 33: it has seen 34. Still 'by client 2'",
    ] {
        assert!(storage.contains(change), "{change:?} is in {storage}");
    }
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "WITHOUT the fence: the storage accepts every write",
        "WITH the fence: the storage checks the token of each write",
        "client 1 lock (Redis) client 2 storage",
        "WITHOUT the fence value: by client 1; token: 33; stale writes accepted: 1; \
         stale writes rejected: 0; updates lost: 1",
        "WITH the fence value: by client 2; token: 34; stale writes accepted: 0; \
         stale writes rejected: 1; updates lost: 0",
        "Shown:",
    ] {
        assert!(words.contains(part), "{part:?} is in {text}");
    }
    assert!(!text.contains('\u{1b}'), "no colours where no terminal is");
}

/// From a folder of its own, and with a name that a shell would split.
#[tokio::test]
async fn last_line_of_the_demo_is_a_command_that_works_as_printed() {
    let folder = TempDir::new().unwrap();
    symlink(LAB, folder.path().join("my lab")).unwrap();
    let shell = async |script: String| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).current_dir(folder.path());
        let output = tokio::task::spawn_blocking(move || shell.output().unwrap()).await.unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let demo = shell(format!("'./my lab' {}", REPLAY.join(" "))).await;
    let list = shell(demo.lines().last().unwrap().to_owned()).await;
    for scenario in lab::scenario::all() {
        assert!(list.contains(scenario.name), "{} is in {list}", scenario.name);
    }
    assert!(list.lines().all(|line| line.chars().count() <= 80), "{list}");
}

#[tokio::test]
async fn unknown_scenario_is_2_and_names_the_command_that_lists_them() {
    let unknown = lab(&["replay", "none"]).await;
    assert_eq!(unknown.status.code(), Some(2));
    let error = String::from_utf8(unknown.stderr).unwrap();
    assert!(error.contains(&format!("no scenario `none`; `{LAB} replay --list`")), "{error}");
}

#[tokio::test]
async fn timeline_is_as_wide_as_its_terminal() {
    const COLUMNS: u16 = 120;
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap().into_string().unwrap();
    let terminal = File::options().read(true).write(true).open(name).unwrap();
    let size = Winsize { ws_row: 50, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal, size).unwrap();
    // The terminal is closed here as soon as the command has it.
    let mut replay =
        Command::new(LAB).args(REPLAY).arg("never-saw-34").stdout(terminal).spawn().unwrap();
    let reading = tokio::task::spawn_blocking(move || {
        let mut text = Vec::new();
        // When the other end is closed, Linux reports that as an error.
        let _ = File::from(controller).read_to_end(&mut text);
        assert!(replay.wait().unwrap().success());
        String::from_utf8(text).unwrap()
    });
    let text = reading.await.unwrap().replace('\r', "");
    let text = strip_str(&text).to_string();
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest.is_some_and(|widest| (100..=COLUMNS.into()).contains(&widest)), "{text}");
}

/// As `lab replay | head` does, or a pager that its reader quits.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn replay_whose_reader_is_gone_ends_quietly_and_leaves_nothing() {
    let folder = TempDir::new().unwrap();
    let mut replay = Command::new(LAB)
        .args(REPLAY)
        .env("TMPDIR", folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(replay.stdout.take().unwrap());
    let lab = replay.id();
    let started = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        while !line.contains("PAUSED") {
            line.clear();
            assert!(stdout.read_line(&mut line).unwrap() > 0, "the replay ended before the pause");
        }
        descendants(lab)
    });
    let started = started.await.unwrap();
    assert!(started.len() >= 3, "a Redis, a storage server and a client: {started:?}");

    let ended = tokio::task::spawn_blocking(move || replay.wait_with_output().unwrap());
    let output = ended.await.unwrap();
    assert_eq!(output.status.code(), READER_GONE);
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    for process in started {
        assert!(!testbed::process::lives(process), "{process} is left");
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "no folder is left");
}

#[tokio::test]
async fn list_whose_reader_is_gone_ends_quietly() {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let output = Command::new(LAB).args(["replay", "--list"]).stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), READER_GONE);
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

/// The processes that a process has started, and that those have started.
#[cfg(target_os = "linux")]
pub(crate) fn descendants(of: u32) -> Vec<u32> {
    // Each thread has its own.
    let threads = std::fs::read_dir(format!("/proc/{of}/task")).into_iter().flatten().flatten();
    let children = threads.flat_map(|thread| {
        let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        let children = children.split_whitespace().map(|child| child.parse().unwrap());
        children.collect::<Vec<u32>>()
    });
    children.flat_map(|child| [vec![child], descendants(child)].concat()).collect()
}
