//! Messages on stderr that never hold up the command.

use std::{
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::Duration,
};

use rustix::termios::tcgetwinsize;

use crate::signals::is_in_foreground;

/// How long to wait at most until everything is printed.
const PATIENCE: Duration = Duration::from_millis(500);
/// Moves to the start of the line, and clears it.
const CLEAR_LINE: &str = "\r\x1b[K";

/// Prints messages on stderr, on a thread of its own.
///
/// If stderr is a full pipe that nobody reads, a write to it blocks. It must not block the signal
/// that ends the child in time.
#[derive(Debug)]
pub(crate) struct Messages {
    texts: Sender<Text>,
    /// Whether stderr is a terminal, which shows progress.
    shows_progress: bool,
}

#[derive(Debug)]
enum Text {
    /// A line that stays.
    Message(String),
    /// A line that the next one replaces.
    Progress(String),
    /// Clears the progress, and reports that everything before is printed.
    End(Sender<()>),
}

impl Messages {
    pub(crate) fn new() -> Self {
        let (texts, to_print) = channel();
        // If a write blocks this thread, the end of the process ends it. If stderr is closed, there
        // is nowhere else to print.
        thread::spawn(move || print(&to_print));
        Self { texts, shows_progress: io::stderr().is_terminal() }
    }

    /// Prints a message, soon.
    pub(crate) fn print(&self, line: impl Into<String>) {
        self.send(Text::Message(line.into()));
    }

    /// Whether stderr is a terminal, which shows progress.
    pub(crate) fn shows_progress(&self) -> bool {
        self.shows_progress
    }

    /// Shows a line in place of the last progress, if stderr is a terminal, and this process is in
    /// its foreground.
    pub(crate) fn progress(&self, line: String) {
        if self.shows_progress && is_in_foreground() {
            self.send(Text::Progress(line));
        }
    }

    /// Clears the progress. Waits until everything is printed, but not for long.
    pub(crate) fn end_progress(&self) {
        let (done, printed) = channel();
        self.send(Text::End(done));
        if printed.recv_timeout(PATIENCE).is_err() {
            tracing::debug!("stderr takes no messages");
        }
    }

    fn send(&self, text: Text) {
        // The thread ends only after this is dropped.
        let _ = self.texts.send(text);
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        self.end_progress();
    }
}

fn print(texts: &Receiver<Text>) {
    // Clears the progress that is shown.
    let mut clear = "";
    for text in texts {
        // In the background, the line belongs to another program.
        if !clear.is_empty() && !is_in_foreground() {
            clear = "";
        }
        let mut stderr = io::stderr();
        let (_, next_clear) = match text {
            Text::Message(line) => (writeln!(stderr, "{clear}lock-client: {line}"), ""),
            Text::Progress(line) => {
                let line = line.chars().take(width(&stderr) - 1).collect::<String>();
                (write!(stderr, "{CLEAR_LINE}{line}"), CLEAR_LINE)
            }
            Text::End(done) => {
                let cleared = write!(stderr, "{clear}");
                // The caller may wait no longer.
                let _ = done.send(());
                (cleared, "")
            }
        };
        clear = next_clear;
    }
}

/// The width of the terminal. A wider line could not be cleared.
fn width(terminal: impl AsFd) -> usize {
    let width = tcgetwinsize(terminal).map_or(0, |size| size.ws_col);
    // Some terminals don't know their width.
    if width == 0 { 80 } else { width.into() }
}
