//! Passes an ignored SIGPIPE on to the programs that this process executes.
//!
//! The Rust runtime ignores SIGPIPE before `main`, and the standard library sets it to its default in
//! every program that it executes. So a program never inherits that SIGPIPE is ignored, as it does
//! from a shell, unless the disposition is read before `main`.

use std::{
    io, mem,
    os::unix::process::CommandExt,
    process::Command,
    ptr,
    sync::atomic::{AtomicBool, Ordering},
};

/// Whether this process was started to ignore SIGPIPE.
static WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// The C library calls this before `main`.
#[used]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
static READ_BEFORE_MAIN: extern "C" fn() = read_disposition;

extern "C" fn read_disposition() {
    // SAFETY: a `sigaction` is plain data, for which zeros are valid.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: a null pointer asks and changes nothing, and `action` lives until the call returns.
    let asked = unsafe { libc::sigaction(libc::SIGPIPE, ptr::null(), &raw mut action) };
    let is_ignored = asked == 0 && action.sa_sigaction == libc::SIG_IGN;
    WAS_IGNORED.store(is_ignored, Ordering::Relaxed);
}

/// Lets a command ignore SIGPIPE if this process was started to ignore it.
pub fn inherit_sigpipe(command: &mut Command) {
    if WAS_IGNORED.load(Ordering::Relaxed) {
        // SAFETY: the closure only calls `signal`, which is safe between fork and exec.
        unsafe { command.pre_exec(ignore_sigpipe) };
    }
}

fn ignore_sigpipe() -> io::Result<()> {
    // SAFETY: to ignore a signal runs no code of ours.
    let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    if before == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
}
