//! The browser that `lab serve` opens, and how it finds the page.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use rustix::process::{Pid, Signal, getpgrp, kill_process};
use tempfile::TempDir;
use testbed::wait::until;

use super::Server;
use crate::browser::Browser;

/// A program in the place of the user's opener. It notes its process group, and what it is to open.
const OPENER: &str = r#"#!/bin/sh
cut -d " " -f 5 /proc/$$/stat > "$NOTES.new"
printf '%s\n' "$@" >> "$NOTES.new"
mv "$NOTES.new" "$NOTES"
"#;

/// What the opener has noted.
struct Notes {
    group: i32,
    arguments: Vec<String>,
}

impl Notes {
    async fn read(path: &Path) -> Self {
        until(Duration::from_secs(60), || Ok(path.exists())).await.unwrap();
        let notes = fs::read_to_string(path).unwrap();
        let mut lines = notes.lines().map(str::to_owned);
        Self { group: lines.next().unwrap().parse().unwrap(), arguments: lines.collect() }
    }
}

#[tokio::test]
async fn browser_gets_the_token_from_a_file_that_nobody_else_reads_and_that_goes() {
    let folder = TempDir::new().unwrap();
    let notes = folder.path().join("notes");
    let opener = folder.path().join("xdg-open");
    fs::write(&opener, OPENER).unwrap();
    fs::set_permissions(&opener, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    command.args(["serve", "--listen", "127.0.0.1:0"]).env("PATH", path).env("NOTES", &notes);
    let mut server = Server::start_as(command);
    let Notes { group, arguments } = Notes::read(&notes).await;

    // What everybody reads among the arguments leads to the file, and says nothing of the token.
    let [argument] = &arguments[..] else { panic!("{arguments:?}") };
    assert!(!argument.contains(&server.token), "{argument}");
    let file = PathBuf::from(argument);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // Ctrl-C in this terminal reaches only its own group.
    assert_ne!(group, getpgrp().as_raw_nonzero().get());

    let browser = Browser::start().await;
    browser.open(&format!("file://{argument}")).await;
    // The page shows this part once it has taken the token out of its address.
    browser.wait_until("document.querySelector('#live:not([hidden])')").await;
    assert_eq!(browser.value("location.origin").await, server.url);
    assert_eq!(browser.value("sessionStorage.getItem('lab-token')").await, server.token);

    kill_process(Pid::from_child(&server.process), Signal::TERM).unwrap();
    server.process.wait().unwrap();
    assert!(!file.exists(), "it goes with the server, at the latest");
}
