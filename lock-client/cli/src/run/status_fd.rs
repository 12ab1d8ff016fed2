//! `--status-fd`: an open file descriptor that takes the events.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
};

use rustix::{
    fs::{FileType, OFlags, fstat},
    net::{SendFlags, send},
};
#[cfg(target_os = "linux")]
use rustix::{
    io::Errno,
    process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open},
};

use super::events::Event;
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
    pub(super) fn open(number: Option<u32>) -> Result<Self, Failure> {
        let Some(number) = number else {
            return Ok(Self(None));
        };
        let outlet = match number {
            1 => Outlet::shared(io::stdout()),
            2 => Outlet::shared(io::stderr()),
            #[cfg(target_os = "linux")]
            _ => match inherited(number) {
                Err(error) if error.raw_os_error() == Some(Errno::BADF.raw_os_error()) => {
                    Err(error)
                }
                // A sandbox may forbid pidfd_getfd.
                Err(_) => Ok(None),
                Ok(descriptor) => Outlet::shared(descriptor),
            },
            #[cfg(not(target_os = "linux"))]
            _ => Ok(None),
        };
        let outlet = outlet.and_then(|shared| shared.map_or_else(|| Outlet::reopened(number), Ok));
        outlet.map(|outlet| Self(Some(outlet))).map_err(|error| {
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
        let line = event.to_line();
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
    /// again.
    fn shared(stream: impl AsFd) -> io::Result<Option<Self>> {
        let clone = || stream.as_fd().try_clone_to_owned();
        match FileType::from_raw_mode(fstat(&stream)?.st_mode) {
            FileType::RegularFile => Ok(Some(Self::File(clone()?.into()))),
            FileType::Socket => Ok(Some(Self::Socket(clone()?))),
            _ => Ok(None),
        }
    }

    /// Opens a descriptor again, so that it doesn't block and others keep their settings. A file is
    /// appended to.
    fn reopened(number: u32) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.append(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        options.open(format!("/dev/fd/{number}")).map(Self::File)
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

/// Duplicates a descriptor that this process has inherited. A descriptor that it has opened itself
/// is closed on exec.
#[cfg(target_os = "linux")]
fn inherited(number: u32) -> io::Result<OwnedFd> {
    let info =
        std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).map_err(|_| Errno::BADF)?;
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    if flags.is_none_or(|flags| flags & OFlags::CLOEXEC.bits() != 0) {
        return Err(Errno::BADF.into());
    }
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    Ok(pidfd_getfd(this, number.cast_signed(), PidfdGetfdFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_that_is_not_open_is_wrong_usage() {
        let failure = StatusFd::open(Some(987)).unwrap_err();
        assert_eq!(failure.exit_code(), 64);
        assert!(failure.message().unwrap().contains("--status-fd 987"));
    }
}
