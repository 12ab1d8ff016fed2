//! Messages on stderr that never hold up the command.

use std::{
    io::{self, Write},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

/// How long the end of the command waits until its messages are printed.
const PATIENCE: Duration = Duration::from_millis(500);

/// Prints messages on stderr, on a thread of its own.
///
/// If stderr is a full pipe that nobody reads, a write to it blocks. It must not block the signal
/// that ends the child in time.
#[derive(Debug)]
pub(crate) struct Messages {
    lines: Option<Sender<String>>,
    printed: Receiver<()>,
}

impl Messages {
    pub(crate) fn new() -> Self {
        let (lines, to_print) = channel::<String>();
        let (done, printed) = channel();
        // If a write blocks this thread, the end of the process ends it.
        thread::spawn(move || {
            for line in to_print {
                // If stderr is closed, there is nowhere else to print.
                let _ = writeln!(io::stderr(), "lock-client: {line}");
            }
            let _ = done.send(());
        });
        Self { lines: Some(lines), printed }
    }

    /// Prints a message, soon.
    pub(crate) fn print(&self, line: impl Into<String>) {
        let lines = self.lines.as_ref().expect("the channel is open until this is dropped");
        // The thread ends only after this is dropped.
        let _ = lines.send(line.into());
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        self.lines = None;
        if let Err(RecvTimeoutError::Timeout) = self.printed.recv_timeout(PATIENCE) {
            tracing::debug!("stderr takes no messages");
        }
    }
}
