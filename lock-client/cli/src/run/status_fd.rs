//! `--status-fd`: an open file descriptor that takes the events.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::RawFd,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{OFlags, fcntl_getfl},
    io::Errno,
};

use super::reporter::Event;
use crate::{
    failure::Failure,
    stderr::{PATIENCE, write_from_background},
};

/// A thread that writes events to the descriptor: a write that blocks would delay the signal to the child
/// of a lost lease. The end of the process ends it.
#[derive(Debug)]
pub(super) struct StatusFd {
    lines: Option<Sender<String>>,
    /// Its other end is closed when everything is written.
    written: Receiver<()>,
}

impl StatusFd {
    /// Opens a descriptor that this process has inherited.
    pub(super) fn open(number: RawFd) -> Result<Self, Failure> {
        let file = open(number).map_err(|error| {
            Failure::usage(format!(
                "--status-fd {number} can't be written to: {error}; it must be open for writing"
            ))
        })?;
        let mut file = Blocking(file);
        let (lines, to_write) = channel::<String>();
        let (end, written) = channel();
        thread::spawn(move || {
            write_from_background();
            let _end: Sender<()> = end;
            for line in to_write {
                // Its reader is gone, or the disk is full.
                if file.write_all(line.as_bytes()).is_err() {
                    return;
                }
            }
        });
        Ok(Self { lines: Some(lines), written })
    }

    /// Writes an event, soon.
    pub(super) fn write(&self, event: &Event<'_>) {
        if let Some(lines) = &self.lines {
            let line = serde_json::to_string(event).expect("events are plain JSON") + "\n";
            // The thread ends when its reader is gone.
            let _ = lines.send(line);
        }
    }
}

fn open(number: RawFd) -> io::Result<File> {
    let file = File::from(inheritance::duplicate(number)?);
    match fcntl_getfl(&file)? & OFlags::ACCMODE {
        OFlags::RDONLY => Err(Errno::BADF.into()),
        _ => Ok(file),
    }
}

/// A file to which a write waits for the reader. Another process may have set the descriptor not to
/// block, and it must stay so.
#[derive(Debug)]
struct Blocking(File);

impl Write for Blocking {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.0.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], None)?;
                }
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits until everything is written, but not for long.
impl Drop for StatusFd {
    fn drop(&mut self) {
        self.lines = None;
        let _ = self.written.recv_timeout(PATIENCE);
    }
}
