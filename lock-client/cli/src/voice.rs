//! What the command says on stderr while it has something to watch over.

use std::{
    io::{self, Write},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

/// How long to wait, at the end, for a stderr that nobody reads.
const PATIENCE: Duration = Duration::from_millis(500);

/// Says things on stderr without ever being held up by it. A stderr that is a pipe which nobody reads
/// would block whoever writes to it: and with it the signal that the command has to be sent in time.
#[derive(Debug)]
pub(crate) struct Voice {
    lines: Option<Sender<String>>,
    all_said: Receiver<()>,
}

impl Voice {
    pub(crate) fn new() -> Self {
        let (lines, to_say) = channel::<String>();
        let (done, all_said) = channel();
        // It is left behind if it is held up; the end of the process ends it.
        thread::spawn(move || {
            for line in to_say {
                // A stderr that is closed can't be told so.
                let _ = writeln!(io::stderr(), "lock-client: {line}");
            }
            let _ = done.send(());
        });
        Self { lines: Some(lines), all_said }
    }

    pub(crate) fn say(&self, line: impl Into<String>) {
        let lines = self.lines.as_ref().expect("there is a voice until it is dropped");
        // The thread goes only when this does.
        let _ = lines.send(line.into());
    }
}

impl Drop for Voice {
    fn drop(&mut self) {
        self.lines = None;
        if let Err(RecvTimeoutError::Timeout) = self.all_said.recv_timeout(PATIENCE) {
            tracing::debug!("stderr takes nothing");
        }
    }
}
