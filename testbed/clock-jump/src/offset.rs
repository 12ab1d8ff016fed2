//! By how much the clock is shifted.

use std::{
    env,
    fs::File,
    os::fd::AsRawFd,
    ptr,
    sync::atomic::{AtomicI64, AtomicPtr, Ordering},
};

const SIZE: usize = size_of::<i64>();

/// Where the file is mapped; null if there is none, or not yet.
static OFFSET_MS: AtomicPtr<AtomicI64> = AtomicPtr::new(ptr::null_mut());

/// Has the loader map the file before `main`. What asks for the time still earlier sees the true one.
#[used]
#[unsafe(link_section = ".init_array")]
static MAP: extern "C" fn() = map;

/// The offset, in milliseconds, at this moment.
pub(crate) fn millis() -> i64 {
    // SAFETY: it is null, or points to a mapping of `SIZE` bytes, aligned as pages are, that stays.
    let offset = unsafe { OFFSET_MS.load(Ordering::Acquire).as_ref() };
    offset.map_or(0, |offset| offset.load(Ordering::Relaxed))
}

extern "C" fn map() {
    let Some(path) = env::var_os("FENCED_CLOCK_OFFSET_FILE") else { return };
    let Ok(file) = File::open(path) else { return };
    // What is mapped beyond a file's end kills who reads it.
    if !file.metadata().is_ok_and(|metadata| metadata.len() >= SIZE as u64) {
        return;
    }
    // SAFETY: a new mapping, at an address of the kernel's choice, of an open file.
    let mapped = unsafe {
        libc::mmap(ptr::null_mut(), SIZE, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    if mapped != libc::MAP_FAILED {
        OFFSET_MS.store(mapped.cast(), Ordering::Release);
    }
}
