//! Messages, progress and logs on stderr, which never hold up the command.
//!
//! If stderr is a full pipe that nobody reads, a write to it blocks. It must not block the signal
//! that ends the child in time. So a thread of its own prints everything.

use std::{
    env,
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
    sync::{
        LazyLock,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use rustix::{process::Signal, termios::tcgetwinsize};
use tracing_subscriber::EnvFilter;

use crate::process::is_in_foreground;

/// How long to wait at most until everything is printed.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);
/// What `--verbose` logs.
const VERBOSE: &str = "lock_client=debug,lock_client_cli=debug";
/// Moves to the start of the line, and clears it.
const CLEAR_LINE: &str = "\r\x1b[K";

/// The thread that prints. If a write blocks it, the end of the process ends it.
static PRINTER: LazyLock<Sender<Text>> = LazyLock::new(|| {
    let (texts, to_print) = channel();
    thread::spawn(move || {
        write_from_background();
        print_all(&to_print);
    });
    texts
});

#[derive(Debug)]
enum Text {
    /// Lines that stay.
    Lines(Vec<u8>),
    /// A line that the next one replaces.
    Progress(String),
    /// Clears the progress, and reports that everything before is printed.
    End(Sender<()>),
}

/// Prints a message, soon.
pub(crate) fn print(line: impl AsRef<str>) {
    send(Text::Lines(format!("lock-client: {}\n", line.as_ref()).into()));
}

/// Whether stderr is a terminal, which shows progress.
pub(crate) fn shows_progress() -> bool {
    io::stderr().is_terminal()
}

/// Shows a line in place of the last progress, if stderr is a terminal, and this process is in its
/// foreground.
pub(crate) fn show_progress(line: String) {
    if shows_progress() && is_in_foreground() {
        send(Text::Progress(line));
    }
}

/// Clears the progress. Waits until everything is printed, but not for long.
pub(crate) fn flush() {
    let (done, printed) = channel();
    send(Text::End(done));
    // A stderr that takes nothing does not hold up the command.
    let _ = printed.recv_timeout(PATIENCE);
}

/// Lets this thread write to its terminal from the background, after `stty tostop` too. SIGTTOU would
/// stop the whole process, and then nobody renews the lock.
pub(crate) fn write_from_background() {
    let blocked = inheritance::block(Signal::TTOU.as_raw());
    blocked.expect("the signal exists");
}

/// Starts the logs, if they were asked for. `RUST_LOG` decides before `--verbose`.
pub(crate) fn log(verbose: bool) {
    let filter = match env::var("RUST_LOG") {
        Ok(filter) if !filter.is_empty() => filter,
        _ if verbose => VERBOSE.to_owned(),
        _ => return,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_writer(|| Logs)
        .with_ansi(io::stderr().is_terminal())
        .with_env_filter(EnvFilter::builder().parse_lossy(filter));
    // A program that runs this command as a part of itself may have a subscriber already.
    let _ = subscriber.try_init();
}

/// Writes logs, each entry at once.
struct Logs;

impl Write for Logs {
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        send(Text::Lines(entry.to_vec()));
        Ok(entry.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn send(text: Text) {
    PRINTER.send(text).expect("the thread never ends");
}

fn print_all(texts: &Receiver<Text>) {
    // Clears the progress that is shown.
    let mut clear = "";
    for text in texts {
        // In the background, the line belongs to another program.
        if !clear.is_empty() && !is_in_foreground() {
            clear = "";
        }
        let mut stderr = io::stderr();
        // If stderr is closed, there is nowhere else to print. Nobody may wait for the end.
        let (_, next_clear) = match text {
            Text::Lines(lines) => (stderr.write_all(&[clear.as_bytes(), &lines].concat()), ""),
            Text::Progress(line) => {
                let line = line.chars().take(width(&stderr) - 1).collect::<String>();
                (write!(stderr, "{CLEAR_LINE}{line}"), CLEAR_LINE)
            }
            Text::End(done) => {
                let cleared = write!(stderr, "{clear}");
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
