//! Results on stdout: JSON lines, and bytes as they are.

use std::{
    io::{self, Write},
    thread,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{OFlags, fcntl_getfl, fstat, stat},
    io::Errno,
};
use serde::Serialize;
use tokio::sync::oneshot;

use crate::failure::Failure;

/// Prints an object as a JSON line.
pub(crate) fn print(object: &impl Serialize) -> Result<(), Failure> {
    print_bytes(json_line(object).as_bytes())
}

/// Prints bytes as they are.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    write(bytes).map_err(Failure::cannot_print)
}

/// Prints an object as a JSON line, on a thread of its own. If stdout is a full pipe that nobody
/// reads, the caller can still take signals and renew a lease.
///
/// # Cancellation safety
/// If this future is dropped, the line is still printed, as soon as stdout takes it.
pub(crate) async fn print_unblocked(object: &impl Serialize) -> io::Result<()> {
    let line = json_line(object);
    on_own_thread(move || write(line.as_bytes())).await
}

/// Waits for a line on stdin, on a thread of its own. Returns the length of the line; 0 at the end.
pub(crate) async fn read_line_unblocked() -> io::Result<usize> {
    on_own_thread(|| io::stdin().read_line(&mut String::new())).await
}

/// Returns whether stdout was closed when this process started.
///
/// The Rust runtime then opens `/dev/null` in its place, for reading and writing. A shell's
/// `> /dev/null` opens it for writing only.
pub(crate) fn is_closed() -> bool {
    let stdout = io::stdout();
    let is_null = || Ok::<_, Errno>(fstat(&stdout)?.st_rdev == stat("/dev/null")?.st_rdev);
    let for_both = || Ok::<_, Errno>(fcntl_getfl(&stdout)? & OFlags::ACCMODE == OFlags::RDWR);
    is_null() == Ok(true) && for_both() == Ok(true)
}

/// Returns whether the reader of stdout has closed its end.
pub(crate) fn reader_is_gone() -> bool {
    let stdout = io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&no_wait)).is_ok()
        && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// Does work that may block on a thread that nobody waits for. The end of the process ends it.
async fn on_own_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = oneshot::channel();
    thread::spawn(move || {
        // The caller may have dropped its end of the channel.
        let _ = done.send(work());
    });
    result.await.expect("the work doesn't panic")
}

fn json_line(object: &impl Serialize) -> String {
    let line = serde_json::to_string(object).expect("events and states are plain JSON");
    format!("{line}\n")
}

fn write(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}
