//! What the command prints: an event for each step, as a JSON line.

use std::{
    io::{self, Write},
    thread,
};

use fence::Token;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use tokio::sync::oneshot;

use super::Failure;

/// A step that was taken. Times are in milliseconds; a holder is never shown whole.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Event<'a> {
    /// The lock is ours.
    Acquired { resource: &'a str, token: Token, holder: String, remaining_ms: u64 },
    /// The storage had seen a higher token, as the counter was lost; the lock is ours, and has a new
    /// one.
    Reissued { token: Token },
    /// The fenced read was accepted: the storage refuses older tokens from here on.
    Read { token: Token, version: Option<u64>, value: Option<String> },
    /// The lease is kept for a while before the write.
    Holding { token: Token, for_ms: u64 },
    /// The lease is valid, and the write is next.
    LeaseChecked { token: Token, remaining_ms: u64 },
    /// The write was accepted.
    Written { token: Token, version: u64, value: &'a str },
    /// The storage refused the token.
    Refused { token: Token, highest_token: Token, reason: &'a str },
    /// The write may have happened, or may yet.
    OutcomeUnknown { token: Token },
    /// The lock is free again.
    Released,
    /// The lock was not ours any more.
    LeaseLost,
}

/// Prints events, and waits after each for a line on stdin if it is to go step by step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Steps {
    /// Goes on at once.
    Through,
    /// Waits after each event.
    Stepwise,
}

impl Steps {
    /// Prints an event.
    ///
    /// # Cancellation safety
    /// If this future is dropped, the event is printed all the same, once it can be.
    pub(crate) async fn print(self, event: &Event<'_>) -> Result<(), Failure> {
        print_aside(event).await.map_err(|error| cannot_print(&error))?;
        match self {
            Self::Through => Ok(()),
            Self::Stepwise => match aside(|| io::stdin().read_line(&mut String::new())).await {
                Ok(0) => Err(Failure::Usage("stdin ended before the last step".to_owned())),
                Ok(_) => Ok(()),
                Err(error) => Err(Failure::Usage(format!("can't read stdin: {error}"))),
            },
        }
    }
}

/// Prints an object as a JSON line, at once.
pub(crate) fn print(object: &impl Serialize) -> Result<(), Failure> {
    print_bytes(line(object).as_bytes())
}

/// The same, for those who go on with signals or a lease while nobody reads a pipe that is full.
///
/// # Cancellation safety
/// If this future is dropped, the line is printed all the same, once it can be.
pub(crate) async fn print_aside(object: &impl Serialize) -> io::Result<()> {
    let line = line(object);
    aside(move || write_out(line.as_bytes())).await
}

/// Prints bytes as they are.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    write_out(bytes).map_err(|error| cannot_print(&error))
}

pub(crate) fn cannot_print(error: &io::Error) -> Failure {
    Failure::CannotPrint(format!("can't print: {error}"))
}

/// Tells whether whoever read our stdout has gone.
pub(crate) fn reader_has_gone() -> bool {
    let stdout = io::stdout();
    let mut asked = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut asked, Some(&at_once)).is_ok()
        && asked[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// Does what may be held up on a thread that nobody waits for: the end of the process ends it.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = oneshot::channel();
    thread::spawn(move || {
        // Whoever asked for it may have gone.
        let _ = done.send(work());
    });
    result.await.expect("the work doesn't panic")
}

fn line(object: &impl Serialize) -> String {
    let line = serde_json::to_string(object).expect("events and states are plain JSON");
    format!("{line}\n")
}

fn write_out(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}
