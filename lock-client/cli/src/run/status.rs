//! `--status-fd`: what happens, told to whoever started the command.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
};

use fence::Token;
use rustix::{
    fs::{FileType, OFlags, fstat},
    net::{SendFlags, send},
};
#[cfg(target_os = "linux")]
use rustix::{
    io::Errno,
    process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open},
};
use serde::Serialize;

use crate::Failure;

/// What happened. A caller can tell by it the command's own 75 or 79 from ours. No holder is told.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(super) enum Event<'a> {
    /// The lock is ours.
    Acquired { resource: &'a str, token: Token, deadline_ms: u64 },
    /// The lock was ours already: this runs under another `run` of the same name.
    ReEntered { resource: &'a str, token: Token },
    /// Somebody else holds the lock. Nothing is run.
    Busy,
    /// The lock service did not answer, or refused. Nothing is run.
    Unavailable { error: &'a str },
    /// A signal ended the wait for the lock. Nothing is run.
    Interrupted { signal: i32 },
    /// The command can't be run.
    CannotRun { error: &'a str },
    /// The command runs.
    Started { pid: u32 },
    /// The lock is no longer ours, or can't be kept.
    Lost { reason: Reason },
    /// The command ended by itself.
    Exited { code: i32 },
    /// A signal ended the command.
    Killed { signal: i32 },
    /// The lock was ours until now, and is free.
    Released,
    /// The lock was not ours any more when it was to be released.
    NotHeld,
    /// There was no answer: the lock is free when its ttl is over.
    NotReleased { error: &'a str },
}

/// Why a lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Reason {
    /// The lock service said that the lock is not ours.
    NotOurs,
    /// No renewal came through in time, though the lock may still be ours.
    NotRenewed,
    /// The deadline has passed.
    Expired,
}

impl Reason {
    pub(super) fn told(self) -> &'static str {
        match self {
            Self::NotOurs => "the lock is not ours any more",
            Self::NotRenewed => "the lease could not be renewed",
            Self::Expired => "the lease has run out",
        }
    }
}

/// Where events are told, if anywhere.
#[derive(Debug)]
pub(super) struct Status(Option<Outlet>);

/// A descriptor that takes lines without ever being waited for, as the command has to be told in
/// time that its lease is lost.
#[derive(Debug)]
enum Outlet {
    File(File),
    Socket(OwnedFd),
}

impl Status {
    /// Opens a descriptor that this process was started with.
    pub(super) fn to(descriptor: Option<u32>) -> Result<Self, Failure> {
        let Some(number) = descriptor else {
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
                // A sandbox may not allow that.
                Err(_) => Ok(None),
                Ok(descriptor) => Outlet::shared(descriptor),
            },
            #[cfg(not(target_os = "linux"))]
            _ => Ok(None),
        };
        let outlet = outlet.and_then(|shared| shared.map_or_else(|| Outlet::anew(number), Ok));
        outlet.map(|outlet| Self(Some(outlet))).map_err(|error| {
            let why = "it has to be open to a pipe that is read, or to a file";
            Failure::Usage(format!("--status-fd {number} can't be written to: {error}; {why}"))
        })
    }

    /// Tells an event, in one write. If it can't be told, it is not.
    pub(super) fn tell(&mut self, event: &Event<'_>) {
        let Some(outlet) = &mut self.0 else {
            return;
        };
        let line = line(event);
        match outlet.write(line.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(written) if written == line.len() => {}
            // Nothing can follow on a part of a line.
            _ => self.0 = None,
        }
    }
}

impl Outlet {
    /// The stream itself, where it is a file, which others write to at the same offset, or a socket,
    /// which can't be opened anew.
    fn shared(stream: impl AsFd) -> io::Result<Option<Self>> {
        let clone = || stream.as_fd().try_clone_to_owned();
        match FileType::from_raw_mode(fstat(&stream)?.st_mode) {
            FileType::RegularFile => Ok(Some(Self::File(clone()?.into()))),
            FileType::Socket => Ok(Some(Self::Socket(clone()?))),
            _ => Ok(None),
        }
    }

    /// A descriptor opened anew, with settings of its own: where it is a file, it appends.
    fn anew(number: u32) -> io::Result<Self> {
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

/// A descriptor that this process was started with. Those that it has opened are closed on exec.
#[cfg(target_os = "linux")]
fn inherited(number: u32) -> io::Result<OwnedFd> {
    let info =
        fs::read_to_string(format!("/proc/self/fdinfo/{number}")).map_err(|_| Errno::BADF)?;
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    if flags.is_none_or(|flags| flags & OFlags::CLOEXEC.bits() != 0) {
        return Err(Errno::BADF.into());
    }
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    Ok(pidfd_getfd(this, number.cast_signed(), PidfdGetfdFlags::empty())?)
}

fn line(event: &Event<'_>) -> String {
    let object = serde_json::to_string(event).expect("events are plain JSON");
    format!("{object}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_json_lines() {
        let acquired = Event::Acquired {
            resource: "r",
            token: Token::new(34).unwrap(),
            deadline_ms: 1_800_000_000_000,
        };
        let expected =
            r#"{"event":"acquired","resource":"r","token":34,"deadline_ms":1800000000000}"#;
        assert_eq!(line(&acquired), format!("{expected}\n"));
        let lost = Event::Lost { reason: Reason::NotRenewed };
        assert_eq!(line(&lost), "{\"event\":\"lost\",\"reason\":\"not-renewed\"}\n");
        assert_eq!(
            line(&Event::ReEntered { resource: "r", token: Token::new(1).unwrap() })
                .split(',')
                .next()
                .unwrap(),
            "{\"event\":\"re-entered\""
        );
    }

    #[test]
    fn descriptor_that_is_not_open_is_wrong_usage() {
        let failure = Status::to(Some(987)).unwrap_err();
        assert_eq!(failure.exit_code(), 64);
        assert!(failure.message().contains("--status-fd 987"));
    }
}
