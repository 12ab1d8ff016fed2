//! What a process inherits in signals and descriptors, and what it passes on to the program that it
//! executes.
//!
//! The Rust runtime ignores SIGPIPE before `main`, and the standard library sets it to its default in
//! every program that it executes. So a program never inherits that SIGPIPE is ignored, as it does
//! from a shell, unless the disposition is read before `main`.

use std::{
    io, mem,
    os::{
        fd::{FromRawFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    process::Command,
    ptr,
    sync::atomic::{AtomicBool, Ordering},
};

/// Whether this process was started to ignore SIGPIPE.
static SIGPIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// The C library calls this before `main`.
#[used]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
static READ_BEFORE_MAIN: extern "C" fn() = read_disposition;

extern "C" fn read_disposition() {
    SIGPIPE_WAS_IGNORED.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
}

/// Whether this process ignores a signal.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: a `sigaction` is plain data, for which zeros are valid.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: a null pointer asks and changes nothing, and `action` lives until the call returns.
    let asked = unsafe { libc::sigaction(signal, ptr::null(), &raw mut action) };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Lets this thread receive a signal that the parent of this process may have blocked. Threads that it
/// starts later receive the signal too.
pub fn unblock(signal: i32) -> io::Result<()> {
    change_mask(libc::SIG_UNBLOCK, signal)
}

/// Keeps a signal from this thread.
pub fn block(signal: i32) -> io::Result<()> {
    change_mask(libc::SIG_BLOCK, signal)
}

fn change_mask(change: i32, signal: i32) -> io::Result<()> {
    // SAFETY: a `sigset_t` is plain data, for which zeros are valid. `sigemptyset` initializes it.
    let mut signals: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: both write to `signals` only.
    let made =
        unsafe { libc::sigemptyset(&raw mut signals) + libc::sigaddset(&raw mut signals, signal) };
    if made != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `signals` lives until the call returns, and the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(change, &raw const signals, ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Sends a signal as `sigqueue(3)` does. The receiver sees the difference from `kill(2)`.
#[cfg(target_os = "linux")]
pub fn queue(process: i32, signal: i32) -> io::Result<()> {
    let value = libc::sigval { sival_ptr: ptr::null_mut() };
    // SAFETY: it only sends a signal, and nobody follows the pointer.
    match unsafe { libc::sigqueue(process, signal, value) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Duplicates a descriptor that this process has inherited. It fails for one that this process has
/// opened itself, because Rust opens all to be closed on exec.
pub fn duplicate(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: this request changes nothing, and fails if the descriptor is not open.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    if flags == -1 {
        return Err(io::Error::last_os_error());
    }
    if flags & libc::FD_CLOEXEC != 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: it only makes another descriptor.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if copy == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Lets a command ignore SIGPIPE if this process was started to ignore it.
pub fn pass_on_sigpipe(command: &mut Command) {
    if SIGPIPE_WAS_IGNORED.load(Ordering::Relaxed) {
        // SAFETY: the closure only calls `signal`, which is safe between fork and exec.
        unsafe { command.pre_exec(ignore_sigpipe) };
    }
}

fn ignore_sigpipe() -> io::Result<()> {
    // SAFETY: to ignore a signal runs no code of ours.
    let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    if before == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Lets the kernel kill a command when the thread that starts it ends, even by SIGKILL (see
/// `PR_SET_PDEATHSIG` in `prctl(2)`). The kernel forgets this when a set-user-ID program is executed.
#[cfg(target_os = "linux")]
pub fn die_with_this_thread(command: &mut Command) {
    let parent = std::process::id().cast_signed();
    let request = move || {
        // SAFETY: this request has a number as its argument, and no memory.
        let requested = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        // A parent that died before the request sends no signal.
        // SAFETY: `getppid` only returns a number.
        if requested == 0 && unsafe { libc::getppid() } == parent {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::ESRCH))
        }
    };
    // SAFETY: the closure calls two system calls, and allocates nothing.
    unsafe { command.pre_exec(request) };
}
