//! `--status-fd`: an open file descriptor that takes the events.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::{
        fd::{OwnedFd, RawFd},
        unix::fs::OpenOptionsExt,
    },
};

use rustix::{
    fs::{FileType, OFlags, fstat},
    net::{SendFlags, send},
};

use super::reporter::Event;
use crate::failure::Failure;

/// The descriptor for events, if there is one.
#[derive(Debug)]
pub(super) struct StatusFd(Option<Outlet>);

/// A descriptor whose writes never block: a blocked write would delay the signal to the child of a
/// lost lease.
#[derive(Debug)]
enum Outlet {
    File(File),
    Socket(OwnedFd),
}

impl StatusFd {
    /// Opens a descriptor that this process has inherited.
    pub(super) fn open(number: Option<RawFd>) -> Result<Self, Failure> {
        let outlet = number.map(Outlet::open).transpose();
        outlet.map(Self).map_err(|error| {
            let number = number.unwrap_or_default();
            Failure::Usage(format!(
                "--status-fd {number} can't be written to: {error}; it must be open, to a pipe \
                 with a reader or to a file"
            ))
        })
    }

    /// Whether events are written.
    pub(super) fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Writes an event, in one write. If the descriptor doesn't take it, it is dropped.
    pub(super) fn write(&mut self, event: &Event<'_>) {
        let Some(outlet) = &mut self.0 else {
            return;
        };
        let line = serde_json::to_string(event).expect("events are plain JSON") + "\n";
        match outlet.write(line.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(written) if written == line.len() => {}
            // Another line would be joined to the part of this one.
            _ => self.0 = None,
        }
    }
}

impl Outlet {
    /// Duplicates a file, whose offset other writers share, or a socket, which can't be opened
    /// again. Opens anything else again, so that it doesn't block and others keep their settings.
    fn open(number: RawFd) -> io::Result<Self> {
        let inherited = inheritance::duplicate(number)?;
        match FileType::from_raw_mode(fstat(&inherited)?.st_mode) {
            FileType::RegularFile => Ok(Self::File(inherited.into())),
            FileType::Socket => Ok(Self::Socket(inherited)),
            _ => {
                let mut options = OpenOptions::new();
                options.write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
                options.open(format!("/dev/fd/{number}")).map(Self::File)
            }
        }
    }

    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.write(line),
            Self::Socket(socket) => {
                Ok(send(socket, line, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
            }
        }
    }
}
